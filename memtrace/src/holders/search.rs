//! A whole search: from the memory of a process to the ways in which blocks are held.

use super::{
    census::OfType,
    doubts::Doubts,
    error::Error,
    graph::{Again, Graph, Since},
    memory::{Cached, Live},
    native::{Block, Native},
    pools::{self, Sizes},
    python::Python,
    retainers, room,
    scene::{Looked, Scene},
    subject::{Reading, Subject},
};
use crate::{
    event::Layer,
    hash::mix,
    ledger::{Extent, SiteKey},
    process::{
        self,
        maps::{self, Mapping},
    },
    recording::{Answer, AsOf, Found, Holders, Sample, StepKind, Way, WayKind},
    units,
};
use std::{
    ops::Range,
    time::{Duration, Instant},
};

/// Blocks or objects of one kind that are examined.
pub(crate) const SAMPLE: usize = 64;

/// Objects in arenas whose holders say what fills the arenas.
const LEAST_OBJECTS: usize = 8;

/// Searches of a running process before it counts that nothing but a cycle keeps something: torn memory
/// can hide a path.
const SEARCHES: usize = 3;

/// Searches of a running process before it counts that no path to some of the blocks holds: each prefers other ways than
/// the ones before...
const SEARCHES_FOR_PATHS: usize = 6;

/// ...if they take no longer than this altogether.
const LONG: Duration = Duration::from_secs(10);

/// Readings of all blocks for references that have changed.
const ROUNDS: usize = 3;

/// Facts about a process that are known before its memory is read.
pub(crate) struct Known<'a> {
    /// All live blocks of malloc as the ledger has them, in no order.
    pub(crate) blocks: &'a dyn Fn() -> Box<dyn Iterator<Item = Extent> + 'a>,
    /// Live blocks of devices and of page-locked memory. Their contents are not searched.
    pub(crate) of_devices: Vec<Extent>,
    /// The site of the live block of malloc at an address.
    pub(crate) site_of: &'a dyn Fn(u64) -> Option<SiteKey>,
    /// Names and keys are left out, types stay.
    pub(crate) redact: bool,
    /// Bytes that the search may take at most; `None`: by what the host has left.
    pub(crate) most_memory: Option<u64>,
    /// Whether the user has ended the search. The search checks it now and then.
    pub(crate) is_over: &'a dyn Fn() -> bool,
}

/// A site whose blocks are searched for.
pub(crate) struct Wanted {
    pub(crate) site: SiteKey,
    /// A sample of blocks, the oldest first.
    pub(crate) addresses: Vec<Extent>,
}

/// The findings on sites, and on types.
#[derive(Debug, Default)]
pub(crate) struct OfSites {
    pub(crate) sites: Vec<Holders>,
    /// By type, as they were given; empty if nothing is known.
    pub(crate) types: Vec<Examined>,
}

/// The findings on the objects of a type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Examined {
    pub(crate) objects: u32,
    /// Those of them that no root reaches.
    pub(crate) unreached: u32,
    /// The most frequent first.
    pub(crate) ways: Vec<Way>,
}

/// The subject of a search.
#[derive(Clone, Debug)]
pub(crate) enum Sought {
    /// The object or the block there.
    Address(u64),
    /// Objects of a type, by its name in Python.
    Type(String),
    /// The containers that get the most elements.
    Growing,
    /// Blocks of malloc that nothing points to.
    Lost,
}

/// Searches for the holders of the blocks of sites, and for what reaches the objects of `growing` types. Without a stop,
/// only paths are found, and none from a stack or a register.
///
/// # Errors
/// The process is gone, or may not be inspected.
pub(crate) fn of_sites(
    pid: u32,
    sites: &[Wanted],
    growing: &[OfType],
    known: Known<'_>,
    reading: Reading,
) -> Result<Found<OfSites>, Error> {
    let subject = Subject::new(pid, reading)?;
    let search = |scene: &mut Scene<'_>| {
        let mut containers = None;
        let of_types = scene.of_types(growing);
        let mut groups: Vec<Vec<u64>> = Vec::new();
        for wanted in sites {
            groups.push(match wanted.site.layer {
                // An arena has objects of all kinds. If too few in these are reached, take the container that grows most.
                Layer::Python => match scene.objects_in(&wanted.addresses, SAMPLE) {
                    objects if objects.len() >= LEAST_OBJECTS => objects,
                    _ => {
                        if containers.is_none() {
                            containers = Some(scene.growing().unwrap_or_default());
                        }
                        containers.iter().flatten().take(1).copied().collect()
                    }
                },
                Layer::Vm => scene.of_no_stack(&wanted.addresses),
                _ => wanted.addresses.iter().map(|&(start, _)| start).collect(),
            });
        }
        groups.extend(of_types);
        let groups: Vec<&[u64]> = groups.iter().map(|group| &group[..]).collect();
        let mut samples = scene.look(&groups)?;
        let types = samples.split_off(sites.len());
        let mut holders = Vec::new();
        let is_path = |way: &Way| matches!(way.held, WayKind::Path(_));
        let had_path = samples.iter().any(|of| of.ways.iter().any(is_path));
        for (wanted, looked) in sites.iter().zip(samples) {
            let Looked {
                sampled,
                mut ways,
                unknown,
            } = looked;
            if subject.lacks_registers() {
                ways.retain(|way| needs_no_stop(&way.held));
            }
            holders.push(Holders {
                site: wanted.site,
                sampled,
                seen: None,
                ways,
                unknown,
            });
        }
        scene.lacks_paths |=
            had_path && !holders.is_empty() && holders.iter().all(|of| of.ways.is_empty());
        let types = types.into_iter().map(examined);
        let types = types.filter(|_| !subject.lacks_registers());
        Ok(OfSites {
            sites: holders,
            types: types.collect(),
        })
    };
    let is_doubtful = |found: &OfSites| {
        let mut ways = found.sites.iter().flat_map(|of| &of.ways);
        ways.any(|way| match &way.held {
            // Everything of Python's has a root with a name: that was missed.
            WayKind::Path(path) => {
                let first = path.steps.get(1).map(|step| step.kind);
                path.begins_anywhere() && first == Some(StepKind::Object)
            }
            _ => true,
        })
    };
    let needs_unreached = |graph: &Graph<'_>| {
        let addresses = sites.iter().flat_map(|wanted| &wanted.addresses);
        let mut addresses = addresses.map(|&(start, _)| start);
        let has_python = sites.iter().any(|it| it.site.layer == Layer::Python);
        has_python || !growing.is_empty() || addresses.any(|at| graph.reached(at).is_none())
    };
    let blocks = sites.iter().filter(|it| it.site.layer != Layer::Python);
    let blocks = blocks.flat_map(|it| it.addresses.iter().map(|&(start, _)| start));
    let objects = growing.iter().flat_map(|of| &of.addresses).copied();
    let addresses: Vec<u64> = blocks.chain(objects).collect();
    let mapped = sites.iter().filter(|it| it.site.layer == Layer::Vm);
    let mapped: Vec<Extent> = mapped.flat_map(|it| it.addresses.iter().copied()).collect();
    let asked = Asked {
        retained: false,
        each: false,
        addresses: &addresses,
        mapped: &mapped,
    };
    with_graph(&subject, known, asked, needs_unreached, search, is_doubtful)
}

/// The share of the objects of a type that certainly no root reaches. Others may be held by what memtrace cannot see into.
fn examined(of_type: Looked) -> Examined {
    let is_certain = |way: &&Way| matches!(way.held, WayKind::Cycle(..) | WayKind::Surplus(_));
    let unreached = of_type.ways.iter().filter(is_certain);
    Examined {
        objects: of_type.sampled,
        unreached: unreached.map(|way| way.blocks).sum(),
        ways: of_type.ways,
    }
}

/// Whether it can be seen without stopping a thread. The contents of its stack and registers are unknown, and so are
/// blocks that only these keep.
fn needs_no_stop(held: &WayKind) -> bool {
    let WayKind::Path(path) = held else {
        return false;
    };
    let root = path.steps.first().map(|step| step.kind);
    !matches!(
        root,
        None | Some(StepKind::Stack | StepKind::Register | StepKind::Mapping)
    )
}

/// Searches for the holders of addresses, of objects of types, or of growing containers. `retained`: also for the bytes
/// that these alone keep; if nothing is sought, for the objects that keep most.
///
/// # Errors
/// As [`of_sites`]; or types are sought in a process without a known Python.
pub(crate) fn of_sought(
    subject: &Subject,
    sought: &[Sought],
    retained: bool,
    known: Known<'_>,
) -> Result<Found<Answer>, Error> {
    let search = |scene: &mut Scene<'_>| {
        let mut samples = Vec::new();
        let mut groups: Vec<Vec<u64>> = Vec::new();
        let mut ask = |what: String, all: Vec<u64>| {
            let step = all.len().div_ceil(SAMPLE).max(1);
            samples.push(Sample {
                what,
                known: all.len() as u64,
                kept: scene.kept(&all),
                ..Sample::default()
            });
            // One at random of each part: addresses may alternate.
            let of_part = |part: &[u64]| part[mix(part[0]) as usize % part.len()];
            groups.push(all.chunks(step).map(of_part).collect());
        };
        for one in sought {
            match one {
                Sought::Address(address) => ask(format!("{address:#x}"), vec![*address]),
                Sought::Type(name) => ask(name.clone(), scene.of_type(name)?),
                Sought::Lost => {
                    scene.knows_blocks()?;
                    let lost = scene.lost();
                    let bytes: u64 = lost.iter().map(|block| block.size).sum();
                    let what = format!("lost blocks ({})", units::size(bytes));
                    ask(what, lost.iter().map(|block| block.start).collect());
                }
                Sought::Growing => {
                    for object in scene.growing()? {
                        ask("a container that grows".to_owned(), vec![object]);
                    }
                }
            }
        }
        let groups: Vec<&[u64]> = groups.iter().map(|group| &group[..]).collect();
        let looked = groups.iter().zip(scene.look(&groups)?);
        for (sample, (addresses, looked)) in samples.iter_mut().zip(looked) {
            sample.sampled = looked.sampled;
            sample.addresses = addresses.to_vec();
            sample.ways = looked.ways;
            sample.unknown = looked.unknown;
        }
        let retainers = sought.is_empty().then(|| scene.retainers()).flatten();
        Ok(Answer { samples, retainers })
    };
    let is_doubtful = |answer: &Answer| {
        let mut ways = answer.samples.iter().flat_map(|sample| &sample.ways);
        ways.any(|way| !matches!(way.held, WayKind::Path(_) | WayKind::Nothing))
    };
    let needs_unreached = |graph: &Graph<'_>| {
        let is_reached = |one: &Sought| match one {
            Sought::Address(address) => graph.reached(*address).is_some(),
            Sought::Type(_) | Sought::Growing | Sought::Lost => false,
        };
        retained || !sought.iter().all(is_reached)
    };
    let addresses = sought.iter().filter_map(|one| match one {
        Sought::Address(address) => Some(*address),
        _ => None,
    });
    let addresses: Vec<u64> = addresses.collect();
    let asked = Asked {
        retained,
        each: true,
        addresses: &addresses,
        mapped: &[],
    };
    with_graph(subject, known, asked, needs_unreached, search, is_doubtful)
}

/// The question.
#[derive(Clone, Copy)]
struct Asked<'a> {
    /// Also for the bytes that each node alone keeps.
    retained: bool,
    /// Whether each group of addresses is a question of its own.
    each: bool,
    /// Those of them that are known before the search.
    addresses: &'a [u64],
    /// Mappings that are sought.
    mapped: &'a [Extent],
}

/// Searches, and again while the answer is doubtful or lacks paths and the process runs. `needs_unreached`: whether the
/// answer depends on unreachable blocks.
fn with_graph<T>(
    subject: &Subject,
    known: Known<'_>,
    asked: Asked<'_>,
    needs_unreached: impl Fn(&Graph<'_>) -> bool,
    look: impl Fn(&mut Scene<'_>) -> Result<T, Error>,
    is_doubtful: impl Fn(&T) -> bool,
) -> Result<Found<T>, Error> {
    let begin = Instant::now();
    let mut longest_stop = Duration::ZERO;
    let mut searches = 0;
    let mut doubts = Doubts::default();
    loop {
        searches += 1;
        let is_running = subject.running().is_some();
        let is_last = searches >= SEARCHES_FOR_PATHS || begin.elapsed() > LONG || !is_running;
        let how = How {
            asked,
            doubts: &doubts,
            is_last,
        };
        let found = search_once(subject, &known, &how, &needs_unreached, &look);
        // Also an error may come from the change.
        if subject.is_replaced() {
            return Err(Error::Replaced(subject.pid()));
        }
        let has_failed = found
            .as_ref()
            .is_err_and(|error| !matches!(error, Error::Over));
        if has_failed && process::has_ended(subject.pid()) {
            return Err(Error::Ended(subject.pid()));
        }
        let (mut found, again) = found?;
        longest_stop = longest_stop.max(found.longest_stop);
        let is_doubtful = is_doubtful(&found.holders);
        let is_torn = is_doubtful && found.as_of == AsOf::Running && searches < SEARCHES;
        if let Some(others) = again.filter(|_| is_running && (!is_last || searches < SEARCHES)) {
            doubts.add(others);
        } else if !is_torn {
            found.longest_stop = longest_stop;
            found.took = begin.elapsed();
            return Ok(found);
        }
    }
}

/// Bytes of the largest mapping that is searched for references once something refers to it: programs reserve address
/// space by the terabyte.
const LARGEST: u64 = 64 << 20;

/// Whether a mapping may have references, and can be read without a cost to anybody else.
fn is_searched(mappings: &[Mapping], start: u64, size: u64) -> bool {
    let is_own = |mapping: &Mapping| {
        let permissions = mapping.permissions;
        mapping.ino == 0 && permissions.read && permissions.write && !permissions.shared
    };
    size <= LARGEST && maps::find(mappings, start).is_some_and(is_own)
}

/// How to search.
struct How<'a> {
    asked: Asked<'a>,
    /// Of the searches before.
    doubts: &'a Doubts,
    is_last: bool,
}

/// Also returns what another search should know, if it may find more paths.
fn search_once<T>(
    subject: &Subject,
    known: &Known<'_>,
    how: &How<'_>,
    needs_unreached: impl Fn(&Graph<'_>) -> bool,
    look: impl Fn(&mut Scene<'_>) -> Result<T, Error>,
) -> Result<(Found<T>, Option<Doubts>), Error> {
    let begin = Instant::now();
    let pid = subject.pid();
    let mappings = maps::read(pid)?;
    let cached = Cached::new(Live::guarded(pid, &mappings));
    let mut notes = Vec::new();
    let python = match Python::open(pid, &mappings, &cached) {
        Ok(python) => python,
        Err(error) => {
            notes.push(error.to_string());
            None
        }
    };
    let find_pools = |mappings: &[Mapping]| {
        let minor = python.as_ref().map(Python::minor);
        minor.map_or_else(Vec::new, |minor| {
            pools::find(minor, mappings, cached.now(), known.is_over)
        })
    };
    let pools = find_pools(&mappings);
    let sizes = python
        .as_ref()
        .map(|python| Sizes::of(python.minor(), &pools, cached.now()));
    // Like the memory of devices, files and memory of other processes are not searched for references.
    let (own, others): (Vec<Extent>, Vec<Extent>) = (how.asked.mapped.iter())
        .copied()
        .filter(|&(start, _)| maps::find(&mappings, start).is_some())
        .partition(|&(start, size)| is_searched(&mappings, start, size));
    let of_devices = || known.of_devices.iter().chain(&others).copied();
    let recorded = (known.blocks)().chain(own).chain(of_devices());
    let recorded = recorded.map(|(start, size)| Block { start, size });
    let stacks = python.as_ref().map(|python| python.stacks(cached.now()));
    let stacks = stacks.into_iter().flatten().map(|(range, _)| range);
    let of_python: Vec<Range<u64>> = stacks.chain(pools.iter().cloned()).collect();
    let native = Native::read(pid, &subject.threads(), &cached, recorded, &of_python)?;
    room::check(&native.blocks, sizes.as_ref(), known.most_memory)?;
    // A block is read after it was found: an earlier reading may be older than the block.
    cached.forget();
    notes.extend(native.note.clone());
    let mut graph = Graph::new(
        python.as_ref(),
        &native,
        &pools,
        sizes.unwrap_or_default(),
        how.doubts,
    );
    graph.set_devices(of_devices().map(|(start, _)| start));
    if how.asked.retained {
        graph.keep_references();
    }
    graph.search(&cached, known.is_over);
    if needs_unreached(&graph) {
        let is_running = subject.running().is_some();
        let list = || native.younger(pid, cached.now(), &pools);
        let since = match is_running {
            true => {
                let now = maps::read(pid)?;
                Since {
                    younger: graph.search_younger(&now, list, &cached, known.is_over)?,
                    pools: find_pools(&now),
                }
            }
            false => Since {
                younger: Vec::new(),
                pools: pools.clone(),
            },
        };
        let again = || {
            Some(Since {
                younger: list().ok()?,
                pools: find_pools(&maps::read(pid).ok()?),
            })
        };
        let again: Option<Again<'_>> = is_running.then_some(&again);
        graph.search_unreached(&since, again, &cached, known.is_over);
        let addresses = how.asked.addresses;
        graph.search_untracked(addresses, &since, again, &cached, known.is_over);
        graph.search_behind(&since.younger, &cached, known.is_over);
        if is_running {
            for _ in 0..ROUNDS {
                if !graph.search_changed(&cached, known.is_over) {
                    break;
                }
            }
        }
    } else {
        graph.follow_leftovers(&cached, known.is_over);
    }
    graph.reach_recorded();
    if (known.is_over)() {
        return Err(Error::Over);
    }
    let retained = match how.asked.retained {
        true => Some(retainers::retained(&mut graph, &cached)?),
        false => None,
    };
    let mut scene = Scene {
        subject,
        graph: &graph,
        retained,
        native: &native,
        mappings: &mappings,
        cached: &cached,
        mapped: how.asked.mapped,
        site_of: known.site_of,
        redact: known.redact,
        is_over: known.is_over,
        why_no_python: notes.first().cloned().filter(|_| python.is_none()),
        longest_stop: Duration::ZERO,
        is_last: how.is_last,
        each: how.asked.each,
        lacks_paths: false,
        doubts: Doubts::default(),
    };
    let holders = look(&mut scene)?;
    // Names and lengths are read last. A process that has ended has none.
    if process::has_ended(pid) {
        return Err(Error::Ended(subject.pid()));
    }
    // It continued then, so later readings may be torn.
    if subject.running().is_none() && (known.is_over)() {
        return Err(Error::Over);
    }
    let found = Found {
        holders,
        as_of: subject.as_of(),
        longest_stop: scene.longest_stop,
        took: begin.elapsed(),
        notes,
    };
    let mut again = scene.lacks_paths.then_some(scene.doubts);
    if let Some(doubts) = &mut again {
        doubts.buffers = std::mem::take(&mut graph.buffers);
    }
    Ok((found, again))
}
