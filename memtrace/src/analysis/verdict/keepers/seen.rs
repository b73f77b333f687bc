//! The keeper of a site's blocks, from observations in the memory of its process.

use super::keeper::{How, Keeper, container, is_growing};
use crate::{
    frames::{Frame, containers, own_line},
    ledger::SiteKey,
    recording::{GrowingType, Holders, Path, Stacks, Step, StepKind, Way, WayKind},
};

/// A way of keeping counts for the site if it applies to at least this share of the blocks with a
/// known holder...
const OF_KNOWN: f64 = 0.8;

/// ...and to this share of all sampled blocks. This is enough for a container that grows: the words of memory of no
/// known type can lead to the other blocks by accident.
const OF_ALL: f64 = 0.5;

/// Ways that are the same for a site.
pub(crate) struct Alike<'a> {
    /// The most frequent of them.
    pub(crate) way: &'a Way,
    /// Blocks held in any of them.
    pub(crate) blocks: u32,
    /// How many they are.
    pub(crate) ways: usize,
}

/// The ways in which blocks are held, those that are the same for the site taken together; the most frequent first.
pub(crate) fn alike(ways: &[Way]) -> Vec<Alike<'_>> {
    let mut all: Vec<Alike<'_>> = Vec::new();
    for way in ways {
        match all.iter_mut().find(|known| are_alike(known.way, way)) {
            Some(known) => {
                known.blocks = known.blocks.saturating_add(way.blocks);
                known.ways += 1;
            }
            None => all.push(Alike {
                way,
                blocks: way.blocks,
                ways: 1,
            }),
        }
    }
    all.sort_by_key(|of| std::cmp::Reverse(of.blocks));
    all
}

/// Whether the holders of half of the sampled blocks are known.
pub(super) fn are_known(holders: &Holders) -> bool {
    let known: u64 = holders.ways.iter().map(|way| u64::from(way.blocks)).sum();
    2 * known >= u64::from(holders.sampled)
}

/// The holder of most of the blocks, and the site of the container's own memory; `None` if no way
/// applies to most.
pub(crate) fn keeper(holders: &Holders, stacks: &Stacks) -> Option<(Keeper, Option<SiteKey>)> {
    of_most(&holders.ways, holders.sampled, Some(holders.site), stacks)
}

/// The holder of most of the objects of a type that grows.
pub(in super::super) fn keeper_of_type(of: &GrowingType, stacks: &Stacks) -> Option<Keeper> {
    let (keeper, _) = of_most(&of.ways, of.examined, None, stacks)?;
    Some(keeper)
}

/// See [`keeper`]. The blocks are of this site, if they are of one.
fn of_most(
    ways: &[Way],
    sampled: u32,
    site: Option<SiteKey>,
    stacks: &Stacks,
) -> Option<(Keeper, Option<SiteKey>)> {
    let known: f64 = ways.iter().map(|way| f64::from(way.blocks)).sum();
    let all = alike(ways);
    let most = all.first()?;
    let grows = match &most.way.held {
        WayKind::Path(path) => container(path).is_some_and(is_growing),
        _ => false,
    };
    let of_known = match grows {
        true => 0.0,
        false => OF_KNOWN * known,
    };
    let held: u32 = match is_lost(most.way) {
        true => all
            .iter()
            .filter(|of| is_lost(of.way))
            .map(|of| of.blocks)
            .sum(),
        false => most.blocks,
    };
    let blocks = f64::from(held);
    let is_of_most = blocks > 0.0 && blocks >= of_known.max(OF_ALL * f64::from(sampled));
    let way = Some(most.way).filter(|way| is_of_most && !is_behind_others(way))?;
    let share = blocks / f64::from(sampled.max(1));
    let how = match &way.held {
        WayKind::Path(path) => {
            let mut path = path.clone();
            if container(&path).is_some_and(|step| is_link(step, site)) {
                path.container = None;
            }
            let filled = container(&path);
            let line = filled.and_then(|step| line_of(step, stacks)).cloned();
            let buffer = filled.and_then(|step| step.buffer);
            // What a word of another block leads to may be left over: a type would make it certain.
            let is_proven = |index: &usize| *index <= 1 || !path.is_of_words();
            if let Some(container) = path.container.filter(is_proven) {
                let step = &mut path.steps[container];
                let of_type = step.type_name.take();
                step.type_name = of_type.or_else(|| type_of(step, stacks).map(str::to_owned));
            }
            let how = How::Path { path, share };
            return Some((Keeper::new(how, line), buffer));
        }
        WayKind::Cycle(collector, path) => How::Cycle {
            collector: *collector,
            path: path.clone(),
            share,
        },
        WayKind::Surplus(path) => How::Surplus {
            path: path.clone(),
            share,
        },
        WayKind::Hidden(path) => How::Hidden {
            path: path.clone(),
            share,
        },
        WayKind::Nothing => How::Nothing { share },
        WayKind::LostWith(path) => How::LostWith {
            path: path.clone(),
            share,
        },
        WayKind::LostCycle(path) => How::LostCycle {
            path: path.clone(),
            share,
        },
    };
    Some((Keeper::new(how, None), None))
}

/// Whether memory of unknown use leads to the blocks: that names nothing that keeps them.
fn is_behind_others(way: &Way) -> bool {
    let WayKind::Path(path) = &way.held else {
        return false;
    };
    let is_named = container(path).is_some_and(is_growing) || path.chain().is_some();
    path.begins_in_other_blocks() && !is_named
}

/// The same of most of the sampled blocks.
pub(super) fn are_behind_others(holders: &Holders) -> bool {
    let most = alike(&holders.ways).into_iter().next();
    most.is_some_and(|most| is_behind_others(most.way) && 2 * most.blocks >= holders.sampled)
}

/// Whether a path that names something was seen to a quarter of the sampled blocks.
pub(super) fn has_path(holders: &Holders) -> bool {
    let is_path = |way: &&Way| matches!(way.held, WayKind::Path(_)) && !is_behind_others(way);
    let blocks: u32 = holders
        .ways
        .iter()
        .filter(is_path)
        .map(|way| way.blocks)
        .sum();
    blocks > 0 && 4 * u64::from(blocks) >= u64::from(holders.sampled)
}

/// Whether nothing leads to the blocks, or only other such blocks do.
fn is_lost(way: &Way) -> bool {
    let held = &way.held;
    matches!(held, WayKind::Nothing | WayKind::LostWith(_))
}

/// Whether a block is one of those that it seems to contain: they link one another.
fn is_link(step: &Step, site: Option<SiteKey>) -> bool {
    step.kind == StepKind::Block && site.is_some() && step.buffer == site
}

/// Whether two ways are the same for a site: blocks may hang in a container by several paths.
fn are_alike(a: &Way, b: &Way) -> bool {
    match (&a.held, &b.held) {
        (WayKind::Path(a), WayKind::Path(b)) => match (up_to_container(a), up_to_container(b)) {
            (Some(a), Some(b)) => {
                let same = |(a, b): (&Step, &Step)| {
                    a.kind == b.kind && (a.name == b.name || is_thread(a) && is_thread(b))
                };
                a.len() == b.len() && a.iter().zip(b).all(same)
            }
            (None, None) if a != b => match (trunk(a), trunk(b)) {
                (Some(trunk), Some(other)) => {
                    let is_same = |(one, other): (&Step, &Step)| {
                        (one.kind, &one.name, &one.type_name)
                            == (other.kind, &other.name, &other.type_name)
                    };
                    let pairs = trunk.iter().zip(other);
                    trunk.len() == other.len()
                        && pairs.into_iter().all(is_same)
                        && a.is_of_words() == b.is_of_words()
                }
                _ => false,
            },
            (a, b) => a == b,
        },
        (WayKind::Surplus(a), WayKind::Surplus(b)) | (WayKind::Hidden(a), WayKind::Hidden(b)) => {
            first_type(a) == first_type(b)
        }
        (WayKind::Cycle(a, _), WayKind::Cycle(b, _)) => a == b,
        (a, b) => a == b,
    }
}

/// The steps of a path to a tree or the like, up to the first that is only a place inside of an object or a block; `None` if
/// no step but the root tells what that is.
fn trunk(path: &Path) -> Option<&[Step]> {
    let mut steps = path.steps.iter();
    let inside = steps.position(|step| step.name.starts_with("+0x"))?;
    let trunk = &path.steps[..inside];
    let tells = |step: &Step| !step.name.is_empty() || step.type_name.is_some();
    trunk.iter().skip(1).any(tells).then_some(trunk)
}

/// The type of the first step of a path.
fn first_type(path: &Path) -> Option<&str> {
    path.steps.first()?.type_name.as_deref()
}

/// The variables of one thread are at the same place as those of another.
fn is_thread(step: &Step) -> bool {
    step.kind == StepKind::Interpreter && step.name.starts_with("thread ")
}

/// The line that filled a container; `None` where the block that was at the address of its memory is no such
/// container's: it has moved since.
fn line_of<'a>(container: &Step, stacks: &'a Stacks) -> Option<&'a Frame> {
    let buffer = container.buffer?;
    let stack = stacks.get(buffer.stack);
    let is_named = stack
        .frames()
        .any(|frame| !frame.is_python() && frame.function.is_some());
    match containers::filled(stack.of_caller()) {
        _ if containers::moves(stack.of_caller()) => None,
        Some((known, _)) if is_another(known.name, container) => None,
        Some((_, line)) => Some(line),
        None if container.kind == StepKind::Object && is_named => None,
        None => filling_line(buffer, stacks),
    }
}

/// The type of container that a block is the memory of, by the code that allocated it.
fn type_of(container: &Step, stacks: &Stacks) -> Option<&'static str> {
    let stack = stacks.get(container.buffer?.stack);
    let (known, _) = containers::filled(stack.of_caller())?;
    (container.kind == StepKind::Block).then_some(known.name)
}

/// Whether memory for this type of container cannot be that of a Python object: both are built in, and differ.
fn is_another(known: &str, container: &Step) -> bool {
    const BUILT_IN: [&str; 3] = ["list", "dict", "set"];
    let of_type = container.type_name.as_deref().unwrap_or_default();
    container.kind == StepKind::Object
        && BUILT_IN.contains(&of_type)
        && BUILT_IN.contains(&known)
        && of_type != known
}

fn up_to_container(path: &Path) -> Option<&[Step]> {
    path.steps.get(..=path.container?)
}

/// The program's line that made the memory of a container, at this site, grow last.
pub(crate) fn filling_line(buffer: SiteKey, stacks: &Stacks) -> Option<&Frame> {
    let stack = stacks.get(buffer.stack);
    let filled = containers::filled(stack.of_caller()).map(|(_, line)| line);
    filled.or_else(|| own_line(&stack.of_caller().collect::<Vec<_>>()))
}
