//! The holders of a site's blocks: paths from roots to the blocks, as text and JSON. Names come from
//! traced programs, so control characters in them are escaped.

mod sought;

use serde_json::{Value, json};

pub(crate) use self::sought::{holders, holders_json};
use super::stack;
use crate::{
    analysis::verdict::{How, Keeper, alike, container, filling_line},
    escape::clean,
    recording::{Collector, Holders, Path, Stacks, Step, StepKind, Way, WayKind},
    units::{grouped, plural},
};

/// Share by which a container's growth may differ from its site's and still match it.
const LIKE: f64 = 0.25;

/// Of a path that is likely: what is left over in memory looks like a pointer, too.
const BY_WORDS: &str = "words there lead to them";

const LEFT_OUT: &str = "…";

/// Ways that are listed.
const WAYS: usize = 5;

/// Steps of a long path that are listed after its container, and at its end.
const ENDS: usize = 3;

pub(super) const NOTHING: &str = "nothing points to it: lost";

/// The keeper of the blocks; `line` is the one that fills the container, if it is to be named.
pub(super) fn sentence(of: &Keeper, line: Option<String>) -> String {
    let filled = line.map_or(String::new(), |line| format!(", filled by {line}"));
    match &of.how {
        How::Container(container) => format!("probably kept by a {container}{filled}"),
        How::Path { path, .. } => {
            let probably = if of.is_likely() { "probably " } else { "" };
            format!("{probably}kept by {}{filled}", keeper(path))
        }
        How::Cycle { collector, .. } => cycle(*collector),
        How::Surplus { path, .. } => surplus(path),
        How::Hidden { path, .. } => hidden(path),
        How::Nothing { .. } => NOTHING.into(),
        How::LostWith { path, .. } => lost_with(path),
        How::LostCycle { path, .. } => lost_cycle(path),
    }
}

/// How blocks are lost with another one.
fn lost_with(path: &Path) -> String {
    format!("lost with {}, to which nothing points", first(path))
}

/// How lost blocks keep each other.
fn lost_cycle(path: &Path) -> String {
    let types = path
        .steps
        .iter()
        .filter_map(|step| step.type_name.as_deref());
    let mut shared = false;
    let mut names: Vec<String> = Vec::new();
    for name in types {
        let owned = in_control_block(name);
        shared |= owned.is_some();
        let name = format!("`{}`", clean(owned.unwrap_or(name)));
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let by = if shared { " by std::shared_ptr" } else { "" };
    match &names[..] {
        [] => format!("only a cycle of lost blocks keeps it: they point to each other{by}"),
        [one] => format!("only a cycle of lost blocks keeps it: {one} points back to itself{by}"),
        all => format!(
            "only a cycle of lost blocks keeps it: {} point to each other{by}",
            all.join(" and ")
        ),
    }
}

/// The type that a control block of std::shared_ptr is for, in GCC's C++ library and in LLVM's.
fn in_control_block(name: &str) -> Option<&str> {
    const BLOCKS: [&str; 5] = [
        "std::_Sp_counted_ptr_inplace<",
        "std::_Sp_counted_ptr<",
        "std::_Sp_counted_deleter<",
        "std::__1::__shared_ptr_emplace<",
        "std::__1::__shared_ptr_pointer<",
    ];
    let rest = BLOCKS.iter().find_map(|block| name.strip_prefix(block))?;
    let mut depth = 0;
    let end = rest.find(|character| {
        depth += i32::from(character == '<') - i32::from(character == '>');
        depth < 0 || depth == 0 && character == ','
    });
    Some(rest[..end?].trim_end_matches(['*', ' ']))
}

/// How a cycle keeps blocks.
fn cycle(collector: Collector) -> String {
    format!("only a cycle keeps it: {}", freed(collector))
}

fn freed(collector: Collector) -> &'static str {
    match collector {
        Collector::On => "gc.collect() would free it",
        Collector::Off => "gc.collect() would free it, but the collector is off",
        Collector::Frozen => "gc.freeze() has set it aside, so the collector skips it",
    }
}

/// How a reference that native code did not give back keeps blocks.
fn surplus(path: &Path) -> String {
    format!(
        "kept by a leaked reference to {} (native code did not give it back)",
        first(path)
    )
}

/// How an object keeps blocks that the collector cannot see into.
fn hidden(path: &Path) -> String {
    format!(
        "kept by {}, in a cycle that the collector cannot see",
        first(path)
    )
}

/// The type of the first step: `a Node`.
fn first(path: &Path) -> String {
    let step = path.steps.first();
    match step.and_then(|step| step.type_name.as_deref()) {
        Some(name) => format!("`{}`", clean(name)),
        None => "a block of native memory".to_owned(),
    }
}

/// A way of being held in words; `path` writes one from a root.
pub(super) fn way(held: &WayKind, path: impl Fn(&Path) -> String) -> String {
    let from = |what: String, of: &Path| match &of.steps[..] {
        [_] | [] => what,
        _ => format!("{what}; from there: {}", path(of)),
    };
    match held {
        WayKind::Path(of) => path(of),
        WayKind::Cycle(collector) => cycle(*collector),
        WayKind::Surplus(of) => from(surplus(of), of),
        WayKind::Hidden(of) => from(hidden(of), of),
        WayKind::Nothing => NOTHING.to_owned(),
        WayKind::LostWith(of) => lost_with(of),
        WayKind::LostCycle(of) => lost_cycle(of),
    }
}

/// The keeper of the blocks, behind a label, without its figures if they do not fit.
pub(crate) fn kept_by_in(of: &Keeper, columns: usize) -> String {
    let whole = kept_by(of);
    let probably = if of.is_likely() { "probably " } else { "" };
    match name_of(of).filter(|_| whole.chars().count() > columns) {
        Some(name) => format!("{probably}{name}"),
        None => whole,
    }
}

/// The keeper of the blocks, behind a label.
pub(crate) fn kept_by(of: &Keeper) -> String {
    match &of.how {
        How::Container(container) => format!("probably a {container}"),
        How::Path { path, .. } if of.is_likely() => format!("probably {}", keeper(path)),
        How::Path { path, .. } => keeper(path),
        How::Cycle { collector, .. } => format!("only a cycle: {}", freed(*collector)),
        How::Surplus { .. } | How::Hidden { .. } => {
            sentence(of, None).trim_start_matches("kept by ").to_owned()
        }
        How::LostWith { .. } => format!("nothing: {}", sentence(of, None)),
        How::LostCycle { .. } => sentence(of, None).replacen(" keeps it", "", 1),
        How::Nothing { .. } => "nothing: no pointer to these blocks was found".into(),
    }
}

/// The name of the keeper, for a headline without a line. A stack or a register has none that helps.
pub(super) fn name_of(of: &Keeper) -> Option<String> {
    let How::Path { path, .. } = &of.how else {
        return None;
    };
    let root = path.steps.first().map(|step| step.kind);
    let is_passing = matches!(root, Some(StepKind::Stack | StepKind::Register));
    (path.container.is_some() || !is_passing).then(|| place(path))
}

/// `__main__.service.history (list, 1,648 items, +27/s)`, or whatever is known instead.
pub(super) fn keeper(path: &Path) -> String {
    let container = container(path).filter(|_| path.chain().is_none());
    let figures = container.map(|step| figures(step, None));
    let known = figures.filter(|figures| !figures.is_empty());
    match known.or_else(|| path.is_of_words().then(|| BY_WORDS.to_owned())) {
        Some(known) => format!("{} ({known})", place(path)),
        None => place(path),
    }
}

/// `__main__.service.history`: the container, or the root and the last step that has a name; `a chain of 275 Node from
/// __main__.s.head` of a linked list.
fn place(path: &Path) -> String {
    if let Some((first, nodes)) = path.chain() {
        let of_type = path.steps[first].type_name.as_deref();
        let of_type = of_type.filter(|name| !name.is_empty()).unwrap_or("blocks");
        let from = place_of(path, Some(first));
        return format!(
            "a chain of {} {} from {from}",
            grouped(nodes),
            clean(of_type)
        );
    }
    if let (Some(expression), None) = (&path.expression, path.container) {
        return clean(expression);
    }
    place_of(path, path.container)
}

/// The place of a step, or else of the last one that has a name.
fn place_of(path: &Path, step: Option<usize>) -> String {
    let named: Vec<&Step> = match step {
        Some(step) => path.steps.iter().take(step + 1).collect(),
        None => path.steps.iter().collect(),
    };
    let is_attribute = |step: &&Step| step.name.starts_with(['.', '[', ':']);
    let Some((root, others)) = named.split_first() else {
        return "an unknown object".into();
    };
    let name = match root.name.is_empty() {
        true => root.kind.name().to_owned(),
        false => clean(&root.name),
    };
    if step.is_some() && others.iter().all(is_attribute) {
        let names: String = others.iter().map(|step| &*step.name).collect();
        return match (root.kind, names.strip_prefix(": ")) {
            (StepKind::Frame, Some(local)) => format!("{} in {name}", clean(local)),
            _ => format!("{name}{}", clean(&names)),
        };
    }
    // A block's name is the pointer's place in it, which matters only to scripts.
    let is_name = |step: &&&Step| !step.name.is_empty() && step.kind != StepKind::Block;
    let last = others.iter().rfind(is_name);
    match (last, others) {
        (Some(last), [_]) => format!("{name} {}", clean(&last.name)),
        (Some(last), _) => format!("{name} {LEFT_OUT} {}", clean(&last.name)),
        (None, _) => name,
    }
}

/// `list, 1,648 items, +27/s like the site`; `rate` is that of the site, blocks per second.
fn figures(step: &Step, rate: Option<f64>) -> String {
    let grows = step.growth_per_s.filter(|growth| growth.abs() >= 0.05);
    let growth = grows.map(|growth| {
        let like = rate.is_some_and(|rate| (growth - rate).abs() <= LIKE * rate);
        let like = if like { " like the site" } else { "" };
        match growth.abs() < 9.95 {
            true => format!("{growth:+.1}/s{like}").replace(".0/s", "/s"),
            false => format!("{growth:+.0}/s{like}"),
        }
    });
    let items = step.length.map(|length| match length {
        1 => "1 item".to_owned(),
        _ => format!("{} items", grouped(length)),
    });
    let known = step.type_name.as_deref().map(clean).into_iter();
    known
        .chain(items)
        .chain(growth)
        .collect::<Vec<_>>()
        .join(", ")
}

/// The steps of a path, each as it follows the one before: ` . history`, `[i] → Tensor`.
fn words(path: &Path, rate: Option<f64>, with_figures: bool) -> Vec<String> {
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
        // Up to the container, names describe the steps; after that, types do.
        let shows_type = !is_container && (is_inside || name.is_empty() || index == last);
        let mut word = match (index, name.strip_prefix('.')) {
            (0, _) => root(step),
            (_, Some(attribute)) => format!(" . {}", clean(attribute)),
            _ if name.is_empty() => String::new(),
            // A local variable of a frame.
            _ if name.starts_with(": ") => clean(name),
            _ if name.starts_with('[') && is_inside => format!(" {}", clean(name)),
            _ if name.starts_with('[') => clean(name),
            _ => format!(" → {}", clean(name)),
        };
        match type_name {
            Some(name) if shows_type && index > 0 => word += &format!(" → {}", clean(name)),
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
pub(super) fn whole(path: &Path, rate: Option<f64>) -> String {
    words(path, rate, true).concat().trim_end().to_owned()
}

/// The same, without the steps in the middle if it is long.
fn shortened(path: &Path, rate: Option<f64>) -> String {
    let mut words = words(path, rate, true);
    let begin = path.container.unwrap_or(0) + 1 + ENDS;
    let end = words.len().saturating_sub(ENDS);
    if let Some(left_out) = end.checked_sub(begin).filter(|steps| *steps > 1) {
        words.splice(begin..end, [format!(" → {LEFT_OUT} ({left_out} left out)")]);
    }
    words.concat().trim_end().to_owned()
}

/// A path without figures, in this many columns if possible: root, container and the last steps stay.
pub(crate) fn folded(path: &Path, columns: usize) -> String {
    let words = words(path, None, false);
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
    let inside = path.container.unwrap_or(0);
    let stays = |index: usize| index == 0 || Some(index) == path.container || index + 1 >= last;
    // First the steps inside the container, from the end on.
    let order = (inside..=last).rev().chain((0..inside).rev());
    for index in order.filter(|index| !stays(*index)) {
        if text(&is_shown).chars().count() <= columns {
            break;
        }
        is_shown[index] = false;
    }
    text(&is_shown)
}

/// The ways in which the blocks of a site are held, the most frequent first, a line each. Paths through one container
/// share a line.
pub(crate) fn lines(holders: &Holders, rate: Option<f64>) -> Vec<String> {
    let known: u32 = holders.ways.iter().map(|way| way.blocks).sum();
    let unknown = holders.sampled.saturating_sub(known);
    let mut all = alike(holders);
    let rest = all.split_off(all.len().min(WAYS));
    let ways = all.iter().enumerate().map(|(index, of)| {
        let held = way(&of.way.held, |path| shortened(path, rate));
        let paths = match of.ways {
            1 => String::new(),
            n => format!(", by {n} paths such as"),
        };
        match index {
            0 => format!("held{}{paths}: {held}", seen(of.blocks, holders)),
            _ => format!("also, {}{paths}: {held}", of.blocks),
        }
    });
    let blocks_of_rest: u32 = rest.iter().map(|of| of.blocks).sum();
    let in_other_ways = plural(rest.len() as u64, "other way");
    let rest = (blocks_of_rest > 0).then(|| format!("also, {blocks_of_rest}: in {in_other_ways}"));
    let unknown = match (unknown, holders.ways.len()) {
        (0, _) => None,
        (_, 0) => Some(format!(
            "held: unknown for the {} examined",
            blocks(holders.sampled)
        )),
        (n, _) => Some(format!("unknown for {n}")),
    };
    ways.chain(rest).chain(unknown).collect()
}

/// ` at 31.4 s, 60 of 60 blocks examined`
fn seen(held: u32, holders: &Holders) -> String {
    let at = seen_s(holders).map_or(String::new(), |seen| format!(" at {seen:.1} s"));
    format!("{at}, {held} of {} examined", blocks(holders.sampled))
}

/// When a search saw the most frequent way, and for how many blocks; `None`: it saw none.
pub(crate) fn most_seen(holders: &Holders) -> Option<String> {
    let most = alike(holders).into_iter().next()?;
    let seen = seen(most.blocks, holders);
    Some(seen.trim_start_matches([',', ' ']).to_owned())
}

fn blocks(count: u32) -> String {
    plural(count.into(), "block")
}

/// `keeper` of a verdict; `holders` are those of its site.
pub(super) fn kept_by_json(of: &Keeper, holders: Option<&Holders>, stacks: &Stacks) -> Value {
    // A guess stands on its line.
    let line = of.line.as_ref().map(|line| stack::line(line, true));
    let line = line.filter(|_| matches!(of.how, How::Container(_)));
    let mut value = json!({
        "how": of.how.name(),
        "text": sentence(of, line),
        "file": of.line.as_ref().and_then(|line| line.file.as_deref()),
        "line": of.line.as_ref().and_then(|line| line.line),
        "function": of.line.as_ref().and_then(|line| line.function.as_deref()),
    });
    if !matches!(of.how, How::Container(_)) {
        value["seen_s"] = json!(holders.and_then(seen_s));
    }
    match &of.how {
        How::Container(_) => {}
        How::Path { path, share } => {
            value["path"] = path_json(path, stacks);
            value["container"] = json!(path.container);
            value["share"] = json!(share);
            value["verified"] = json!(true);
        }
        How::Surplus { path, share }
        | How::Hidden { path, share }
        | How::LostWith { path, share }
        | How::LostCycle { path, share } => {
            value["path"] = path_json(path, stacks);
            value["share"] = json!(share);
            value["verified"] = json!(true);
        }
        How::Cycle { share, .. } | How::Nothing { share } => {
            value["share"] = json!(share);
            value["verified"] = json!(false);
        }
    }
    value
}

/// `holders` of a site.
pub(super) fn json(holders: &Holders, stacks: &Stacks) -> Value {
    let ways = holders.ways.iter().map(|way| json_of_way(way, stacks));
    json!({
        "sampled": holders.sampled,
        "seen_s": seen_s(holders),
        "ways": ways.collect::<Vec<_>>(),
    })
}

/// Seconds after the start of the recording; `None`: at its end.
fn seen_s(of: &Holders) -> Option<f64> {
    of.seen.map(|seen| seen.as_secs_f64())
}

fn json_of_way(way: &Way, stacks: &Stacks) -> Value {
    let mut value = json!({ "how": way.held.name(), "blocks": way.blocks });
    if let Some(path) = way.held.path() {
        value["expression"] = json!(path.expression);
        value["container"] = json!(path.container);
        value["path"] = path_json(path, stacks);
    }
    value
}

fn path_json(path: &Path, stacks: &Stacks) -> Value {
    let steps = path.steps.iter().map(|step| {
        let line = step.buffer.and_then(|site| filling_line(site, stacks));
        json!({
            "kind": step.kind.name(),
            "name": step.name,
            "type": step.type_name,
            "length": step.length,
            "growth_per_s": step.growth_per_s,
            "repeated": step.repeated,
            "function": line.and_then(|line| line.function.as_deref()),
            "file": line.and_then(|line| line.file.as_deref()),
            "line": line.and_then(|line| line.line),
        })
    });
    steps.collect()
}

#[cfg(test)]
mod tests;
