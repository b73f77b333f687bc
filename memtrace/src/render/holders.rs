//! The holders of a site's blocks, as text and JSON; `path` has the text of paths. Names come from traced programs, so
//! control characters in them are escaped.

mod absent;
mod path;
mod sought;

use serde_json::{Value, json};

use self::path::shortened;
pub(super) use self::{
    absent::absent,
    path::{keeper, name_of, whole},
};
pub(crate) use self::{
    path::folded,
    sought::{holders, holders_json},
};
use super::stack;
use crate::{
    analysis::verdict::{How, Keeper, alike, filling_line},
    escape::clean,
    recording::{Collector, Holders, Path, Stacks, Way, WayKind},
    units::plural,
};

/// Ways that are listed.
const WAYS: usize = 5;

pub(super) const NOTHING: &str = "nothing points to it: lost";

/// Labels of the line of a keeper: it fills the container, or it is the native code that Python called.
pub(super) const FILLED_BY: &str = "filled by";
const CALLED: &str = "called";

/// The label of a keeper's line.
pub(crate) const fn line_label(of: &Keeper) -> &'static str {
    match of.how {
        How::Surplus { .. } => CALLED,
        _ => FILLED_BY,
    }
}

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

/// The references that keep it, if they were leaked.
pub(super) fn leaked(of: &Keeper) -> Option<String> {
    match &of.how {
        How::Surplus { path, .. } => Some(format!("leaked references to {}", first(path))),
        _ => None,
    }
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

/// A way of being held in words; `path` writes one from a root. One of words alone may be left over in memory.
pub(super) fn way(held: &WayKind, path: impl Fn(&Path) -> String) -> String {
    let from = |what: String, of: &Path| match &of.steps[..] {
        [_] | [] => what,
        _ => format!("{what}; from there: {}", path(of)),
    };
    match held {
        WayKind::Path(of) if of.is_of_words() => format!("probably {}", path(of)),
        WayKind::Path(of) => path(of),
        WayKind::Cycle(collector, of) => match &of.steps[..] {
            [] => cycle(*collector),
            _ => format!("{}; the cycle: {}", cycle(*collector), path(of)),
        },
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

/// The ways in which the blocks of a site are held, the most frequent first, a line each. Paths through one container
/// share a line.
pub(crate) fn lines(holders: &Holders, rate: Option<f64>) -> Vec<String> {
    let known: u32 = holders.ways.iter().map(|way| way.blocks).sum();
    let unknown = holders.sampled.saturating_sub(known);
    let mut all = alike(&holders.ways);
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
    let why = holders.unknown.map(absent::unknown);
    let why = why.map_or(String::new(), |why| format!(": {why}"));
    let unknown = match (unknown, holders.ways.len()) {
        (0, _) => None,
        (_, 0) => Some(format!(
            "held: unknown for the {} examined{why}",
            blocks(holders.sampled)
        )),
        (n, _) => Some(format!("unknown for {n}{why}")),
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
    let most = alike(&holders.ways).into_iter().next()?;
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
        How::Cycle { path, share, .. } => {
            value["path"] = path_json(path, stacks);
            value["share"] = json!(share);
            value["verified"] = json!(false);
        }
        How::Nothing { share } => {
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
            "limit": step.limit,
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
