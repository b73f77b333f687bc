//! Paths as text: the names by which the program refers to what keeps its blocks, and the steps from a root to them. What
//! does not fit is left out where it says least: inside libraries.

use crate::{
    analysis::verdict::{How, Keeper, container},
    escape::clean,
    recording::{Path, Step, StepKind},
    units::grouped,
};

/// Share by which a container's growth may differ from its site's and still match it.
const LIKE: f64 = 0.25;

/// Of a path that is likely: what is left over in memory looks like a pointer, too.
const BY_WORDS: &str = "words there lead to them";

const LEFT_OUT: &str = "…";

/// Columns of a path in a list.
const LINE: usize = 160;

/// Operations in a graph of PyTorch's autograd.
const AUTOGRAD: &str = "torch::autograd::generated::";

/// The traceback of an exception, and the steps from there to a frame.
const OF_EXCEPTION: &str = ".__traceback__";
const TRACEBACK: [&str; 2] = [".tb_next", ".tb_frame"];

/// Types whose attributes say what they are.
const BY_ATTRIBUTE: [&str; 2] = ["traceback", "frame"];

/// The name of the keeper, for a headline without a line. A stack or a register has no useful name.
pub(in super::super) fn name_of(of: &Keeper) -> Option<String> {
    let How::Path { path, .. } = &of.how else {
        return None;
    };
    let root = path.steps.first().map(|step| step.kind);
    let is_passing = matches!(root, Some(StepKind::Stack | StepKind::Register));
    (path.container.is_some() || !is_passing).then(|| place(path))
}

/// `__main__.service.history (list, 1,648 items, +27/s)`, or what else is known.
pub(in super::super) fn keeper(path: &Path) -> String {
    let container = container(path).filter(|_| path.chain().is_none());
    let figures = container.map(|step| figures(step, None));
    let known = figures.filter(|figures| !figures.is_empty());
    match known.or_else(|| path.is_of_words().then(|| BY_WORDS.to_owned())) {
        Some(known) => format!("{} ({known})", place(path)),
        None => place(path),
    }
}

/// `__main__.service.history`: the container, or the last step that has a name; `a chain of 275 Node from __main__.s.head`
/// of a linked list.
pub(super) fn place(path: &Path) -> String {
    if let Some((first, nodes)) = path.chain() {
        let of_type = path.steps[first].type_name.as_deref();
        let of_type = of_type.filter(|name| !name.is_empty()).unwrap_or("blocks");
        let of_type = match of_type.strip_prefix("node of ") {
            Some(container) => format!("nodes of {container}"),
            None => of_type.to_owned(),
        };
        let from = place_of(path, Some(first));
        return format!(
            "a chain of {} {} from {from}",
            grouped(nodes),
            clean(&of_type)
        );
    }
    if let (Some(expression), None) = (&path.expression, path.container) {
        return clean(expression);
    }
    place_of(path, path.container)
}

/// The place of a step, or else of the last one that has a name: all names as far as they follow the root, and the last.
fn place_of(path: &Path, step: Option<usize>) -> String {
    let steps = match step {
        Some(step) => &path.steps[..(step + 1).min(path.steps.len())],
        None => &path.steps[..],
    };
    let Some((root, others)) = steps.split_first() else {
        return "an unknown object".into();
    };
    let name = match root.name.is_empty() {
        true => root.kind.name().to_owned(),
        false => clean(&root.name),
    };
    let run = others.iter().take_while(|step| is_attribute(step)).count();
    let (run, rest) = others.split_at(run);
    let names: String = run.iter().map(|step| &*step.name).collect();
    let begin = match (root.kind, names.strip_prefix(": ")) {
        (StepKind::Frame, Some(local)) => format!("{} in {name}", clean(local)),
        _ => format!("{name}{}", clean(&names)),
    };
    // A block's name is the pointer's place in it, which matters only to scripts.
    let is_name = |step: &&Step| !step.name.is_empty() && step.kind != StepKind::Block;
    match (rest.iter().rfind(is_name), rest) {
        (Some(last), [_]) => format!("{begin} {}", clean(last.name.trim_start())),
        (Some(last), _) => format!("{begin} {LEFT_OUT} {}", clean(last.name.trim_start())),
        (None, _) => begin,
    }
}

/// Whether a step has a name that follows that of its holder.
fn is_attribute(step: &Step) -> bool {
    step.name.starts_with(['.', '[', ':']) || step.name.starts_with(" (")
}

/// `list, 1,648 items, +27/s like the site`, `lru_cache, 128 of 128 items`; `rate` is that of the site, blocks per second.
pub(super) fn figures(step: &Step, rate: Option<f64>) -> String {
    let grows = step.growth_per_s.filter(|growth| growth.abs() >= 0.05);
    let growth = grows.map(|growth| {
        let like = rate.is_some_and(|rate| (growth - rate).abs() <= LIKE * rate);
        let like = if like { " like the site" } else { "" };
        match growth.abs() < 9.95 {
            true => format!("{growth:+.1}/s{like}").replace(".0/s", "/s"),
            false => format!("{growth:+.0}/s{like}"),
        }
    });
    let items = step.length.map(|length| match (length, step.limit) {
        (_, Some(limit)) => format!("{} of {} items", grouped(length), grouped(limit)),
        (1, None) => "1 item".to_owned(),
        (_, None) => format!("{} items", grouped(length)),
    });
    let known = step.type_name.as_deref().map(clean).into_iter();
    known
        .chain(items)
        .chain(growth)
        .collect::<Vec<_>>()
        .join(", ")
}

/// The steps of a path, each as it follows the one before: ` . history`, `[i] → Tensor`.
pub(super) fn words(path: &Path, rate: Option<f64>, with_figures: bool) -> Vec<String> {
    let last = path.steps.len().saturating_sub(1);
    let mut is_inside = false;
    let mut words = Vec::with_capacity(path.steps.len());
    for (index, step) in path.steps.iter().enumerate() {
        let is_container = path.container == Some(index);
        let type_name = step.type_name.as_deref().filter(|name| !name.is_empty());
        // The pointer's place in a block matters only to scripts.
        let name = match step.kind {
            StepKind::Block => "",
            _ => &step.name,
        };
        let is_told = type_name.is_some_and(|of| BY_ATTRIBUTE.contains(&of)) && !name.is_empty();
        // Up to the container, names describe the steps; after that, types do.
        let shows_type =
            !is_container && (is_inside && !is_told || name.is_empty() || index == last);
        let mut word = match (index, name.strip_prefix('.')) {
            (0, _) => root(step),
            (_, Some(attribute)) => format!(" . {}", clean(attribute)),
            _ if name.is_empty() => String::new(),
            // A local variable of a frame.
            _ if name.starts_with(": ") => clean(name),
            _ if name.starts_with('[') && is_inside => format!(" {}", clean(name)),
            _ if name.starts_with('[') => clean(name),
            _ => format!(" → {}", clean(name.trim_start())),
        };
        match type_name {
            Some(name) if shows_type && index > 0 => {
                let name = name.strip_prefix(AUTOGRAD).unwrap_or(name);
                word += &format!(" → {}", clean(name));
            }
            None if index > 0 && name.is_empty() => {
                word += &format!(" → {}", step.kind.name());
            }
            _ => {}
        }
        if step.repeated > 1 {
            word += &format!(" ×{}", grouped(step.repeated));
        }
        if is_container {
            is_inside = true;
            let figures = figures(step, rate);
            if with_figures && !figures.is_empty() {
                word += &format!("  ({figures}) ");
            }
        }
        words.push(word);
    }
    words
}

/// The root of a path.
fn root(step: &Step) -> String {
    let name = clean(&step.name);
    let of_type = || step.type_name.as_deref().map(clean);
    match step.kind {
        _ if name.is_empty() => of_type().unwrap_or_else(|| step.kind.name().to_owned()),
        StepKind::Module => format!("module {name}"),
        StepKind::Frame => format!("frame {name}"),
        StepKind::Mapping => format!("mapping {name}"),
        _ => name,
    }
}

/// `module __main__ . service . history  (list, 1,648 items, +27/s like the site)  [i] → Tensor → … → block`
pub(in super::super) fn whole(path: &Path, rate: Option<f64>) -> String {
    words(path, rate, true).concat().trim_end().to_owned()
}

/// The same, without the steps that say least if it is long.
pub(super) fn shortened(path: &Path, rate: Option<f64>) -> String {
    let words = words(path, rate, true);
    fitted(path, &words, LINE).trim_end().to_owned()
}

/// A path without figures, in this many columns if possible.
pub(crate) fn folded(path: &Path, columns: usize) -> String {
    fitted(path, &words(path, None, false), columns)
}

/// The steps in this many columns if possible. Root, container and block stay.
fn fitted(path: &Path, words: &[String], columns: usize) -> String {
    let mut is_shown = vec![true; words.len()];
    let text = |is_shown: &[bool]| {
        let mut text = String::new();
        let mut left_out = false;
        for (word, shown) in words.iter().zip(is_shown) {
            if *shown {
                text += word;
            } else if !left_out {
                text += " → ";
                text += LEFT_OUT;
            }
            left_out = !shown;
        }
        text
    };
    let last = words.len().saturating_sub(1);
    let mut order: Vec<usize> = (1..last)
        .filter(|index| Some(*index) != path.container)
        .collect();
    // Of those that say as much, the ones inside the container first, from the end on.
    order.sort_by_key(|index| {
        let is_before = path.container.is_some_and(|container| *index < container);
        let place = if is_before {
            *index
        } else {
            usize::MAX - index
        };
        (telling(path, *index), is_before, place)
    });
    for index in order {
        if text(&is_shown).chars().count() <= columns {
            break;
        }
        is_shown[index] = false;
    }
    text(&is_shown)
}

/// How much a step says to the programmer: 0 for a block of no known type.
fn telling(path: &Path, index: usize) -> u8 {
    let step = &path.steps[index];
    let of_type = step.type_name.as_deref().unwrap_or_default();
    let is_up_to_container = path.container.is_some_and(|container| index < container);
    match step.kind {
        _ if is_up_to_container && is_attribute(step) => 5,
        StepKind::Block if of_type.is_empty() => 0,
        StepKind::Block if of_type.starts_with(AUTOGRAD) => 2,
        StepKind::Block => 1,
        // An exception is known by its own type, and a frame by its variable.
        _ if TRACEBACK.contains(&&*step.name) => 2,
        _ if step.name == OF_EXCEPTION => 3,
        _ if path
            .steps
            .get(index + 1)
            .is_some_and(|next| next.name == OF_EXCEPTION) =>
        {
            4
        }
        // The program's own attributes and variables.
        _ if step.name.starts_with('.') || step.name.starts_with(": ") => 4,
        // The elements of the container.
        _ if Some(index) == path.container.map(|container| container + 1) => 3,
        _ => 2,
    }
}
