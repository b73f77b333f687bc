//! A whole search: from the memory of a process to the ways in which blocks are held.

use super::{
    graph::{Graph, NodeId},
    keepers,
    memory::{Cached, Live},
    native::{self, Block, Native},
    pools,
    python::Python,
    retained::Retained,
    subject::{Reading, Subject},
    ways::{self, Lengths, Naming},
    witness::{self, Witness, Witnesses},
};
use crate::{
    event::Layer,
    hash::FastMap,
    ledger::{Extent, SiteKey},
    process::{
        self,
        maps::{self, Mapping, MapsError},
    },
    recording::{Answer, AsOf, Found, Held, Holders, Sample, StepKind, Way},
    units,
};
use std::{
    cell::RefCell,
    collections::HashMap,
    thread,
    time::{Duration, Instant},
};

/// Blocks or objects of one kind that are examined.
pub(crate) const SAMPLE: usize = 64;

/// Readings of a path before it is given up.
const TRIES: usize = 3;

/// Searches of a running process before it counts that nothing but a cycle keeps something: torn memory
/// can hide a path.
const SEARCHES: usize = 3;

/// Between two readings of the lengths of containers.
const GROWTH_TIME: Duration = Duration::from_secs(1);

/// The same of a process that may end soon, and grows fast.
const BRIEF: Duration = Duration::from_millis(200);

/// Elements of a container that is examined only for its growth.
const LONG: u64 = 8;

/// Containers that are named because they grow.
const GROWING: usize = 5;

/// Why a process cannot be searched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Maps(#[from] MapsError),
    #[error("process {0} ended during the search")]
    Ended(u32),
    #[error("process {0} executed another program during the search: search again")]
    Replaced(u32),
    #[error("the search was interrupted")]
    Over,
    #[error("the paths cannot be verified: {0}")]
    Stop(String),
    #[error("{0}")]
    Held(String),
    #[error("nothing grows in process {0} while it is stopped: search it while it runs")]
    Still(u32),
    #[error("the process has too many references for retained sizes")]
    TooMany,
    #[error("memtrace knows none of its malloc blocks, so it cannot tell which are lost: {0}")]
    NoBlocks(String),
    #[error(
        "process {pid} runs no CPython that memtrace can read{}; for memory of C, C++ or Rust, use --address or --lost, or `memtrace record`",
        reason(.why)
    )]
    NoPython { pid: u32, why: Option<String> },
}

fn reason(why: &Option<String>) -> String {
    why.as_ref()
        .map_or_else(String::new, |why| format!(": {why}"))
}

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
    /// Whether the user has ended the search. The search checks it now and then.
    pub(crate) is_over: &'a dyn Fn() -> bool,
}

/// A site whose blocks are searched for.
pub(crate) struct Wanted {
    pub(crate) site: SiteKey,
    /// A sample of blocks, the oldest first.
    pub(crate) addresses: Vec<Extent>,
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

/// Searches for the holders of the blocks of sites. Without a stop, only paths are found, and none from a stack or a
/// register.
///
/// # Errors
/// The process is gone, or may not be inspected.
pub(crate) fn of_sites(
    pid: u32,
    sites: &[Wanted],
    known: Known<'_>,
    reading: Reading,
) -> Result<Found, Error> {
    let subject = Subject::new(pid, reading)?;
    let search = |scene: &mut Scene<'_>| {
        let mut growing = None;
        let mut groups: Vec<Vec<u64>> = Vec::new();
        for wanted in sites {
            groups.push(match wanted.site.layer {
                // An arena has objects of all kinds: take the containers that grow.
                Layer::Python => {
                    if growing.is_none() {
                        growing = Some(scene.growing().unwrap_or_default());
                    }
                    growing.iter().flatten().take(1).copied().collect()
                }
                _ => wanted.addresses.iter().map(|&(start, _)| start).collect(),
            });
        }
        let groups: Vec<&[u64]> = groups.iter().map(|group| &group[..]).collect();
        let samples = scene.look(&groups)?;
        let mut holders = Vec::new();
        let is_path = |way: &Way| matches!(way.held, Held::Path(_));
        let had_path = samples.iter().any(|(_, ways)| ways.iter().any(is_path));
        for (wanted, (sampled, mut ways)) in sites.iter().zip(samples) {
            if subject.lacks_registers() {
                ways.retain(|way| needs_no_stop(&way.held));
            }
            holders.push(Holders {
                site: wanted.site,
                sampled,
                seen: None,
                ways,
            });
        }
        scene.lacks_paths |= had_path && holders.iter().all(|of| of.ways.is_empty());
        Ok(holders)
    };
    let is_doubtful = |found: &Vec<Holders>| {
        let mut ways = found.iter().flat_map(|of| &of.ways);
        ways.any(|way| !matches!(way.held, Held::Path(_)))
    };
    let needs_unreached = |graph: &Graph<'_>| {
        let addresses = sites.iter().flat_map(|wanted| &wanted.addresses);
        let mut addresses = addresses.map(|&(start, _)| start);
        let has_python = sites.iter().any(|it| it.site.layer == Layer::Python);
        has_python || addresses.any(|at| graph.reached(at).is_none())
    };
    with_graph(&subject, known, false, needs_unreached, search, is_doubtful)
}

/// Whether it can be seen without stopping a thread. The contents of its stack and registers are unknown, and so are
/// blocks that only these keep.
fn needs_no_stop(held: &Held) -> bool {
    let Held::Path(path) = held else {
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
            groups.push(all.into_iter().step_by(step).collect());
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
        for (sample, (addresses, (sampled, ways))) in samples.iter_mut().zip(looked) {
            sample.sampled = sampled;
            sample.addresses = addresses.to_vec();
            sample.ways = ways;
        }
        let keepers = sought.is_empty().then(|| scene.keepers()).flatten();
        Ok(Answer { samples, keepers })
    };
    let is_doubtful = |answer: &Answer| {
        let mut ways = answer.samples.iter().flat_map(|sample| &sample.ways);
        ways.any(|way| way.held == Held::Cycle)
    };
    let needs_unreached = |graph: &Graph<'_>| {
        let is_reached = |one: &Sought| match one {
            Sought::Address(address) => graph.reached(*address).is_some(),
            Sought::Type(_) | Sought::Growing | Sought::Lost => false,
        };
        retained || !sought.iter().all(is_reached)
    };
    with_graph(
        subject,
        known,
        retained,
        needs_unreached,
        search,
        is_doubtful,
    )
}

/// The search, once everything that is reachable is known.
pub(super) struct Scene<'a> {
    subject: &'a Subject,
    pub(super) graph: &'a Graph<'a>,
    /// If it is requested.
    pub(super) retained: Option<Retained>,
    native: &'a Native,
    mappings: &'a [Mapping],
    pub(super) cached: &'a Cached<Live>,
    site_of: &'a dyn Fn(u64) -> Option<SiteKey>,
    redact: bool,
    why_no_python: Option<String>,
    longest_stop: Duration,
    /// Blocks are reachable, but no path to any of them could be verified.
    lacks_paths: bool,
}

/// Searches, and again while the answer is doubtful or lacks paths and the process runs. `needs_unreached`: whether the
/// answer depends on unreachable blocks.
fn with_graph<T>(
    subject: &Subject,
    known: Known<'_>,
    retained: bool,
    needs_unreached: impl Fn(&Graph<'_>) -> bool,
    look: impl Fn(&mut Scene<'_>) -> Result<T, Error>,
    is_doubtful: impl Fn(&T) -> bool,
) -> Result<Found<T>, Error> {
    let begin = Instant::now();
    let mut longest_stop = Duration::ZERO;
    let mut searches = 0;
    loop {
        searches += 1;
        let found = search_once(subject, &known, retained, &needs_unreached, &look);
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
        let (mut found, lacks_paths) = found?;
        longest_stop = longest_stop.max(found.longest_stop);
        let is_doubtful = lacks_paths || is_doubtful(&found.holders);
        let is_torn = found.as_of == AsOf::Running && is_doubtful;
        if !is_torn || searches >= SEARCHES {
            found.longest_stop = longest_stop;
            found.took = begin.elapsed();
            return Ok(found);
        }
    }
}

/// Also returns [`Scene::lacks_paths`].
fn search_once<T>(
    subject: &Subject,
    known: &Known<'_>,
    retained: bool,
    needs_unreached: impl Fn(&Graph<'_>) -> bool,
    look: impl Fn(&mut Scene<'_>) -> Result<T, Error>,
) -> Result<(Found<T>, bool), Error> {
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
    let pools = python.as_ref().map_or_else(Vec::new, |python| {
        pools::find(python.minor(), &mappings, cached.now())
    });
    let of_devices = || known.of_devices.iter().copied();
    let recorded = (known.blocks)().chain(of_devices());
    let recorded = recorded.map(|(start, size)| Block { start, size });
    let native = Native::read(pid, &subject.threads(), &cached, recorded, &pools)?;
    // A block is read after it was found: an earlier reading may be older than the block.
    cached.forget();
    notes.extend(native.note.clone());
    let mut graph = Graph::new(python.as_ref(), &native, &pools);
    graph.leave(of_devices().map(|(start, _)| start));
    if retained {
        graph.keep_references();
    }
    graph.search(&cached, known.is_over);
    if needs_unreached(&graph) {
        if subject.running().is_some() {
            let now = maps::read(pid)?;
            let list = || native.younger(pid, cached.now(), &pools);
            graph.search_younger(&now, list, &cached, known.is_over)?;
        }
        graph.search_garbage(&cached, known.is_over);
    }
    if (known.is_over)() {
        return Err(Error::Over);
    }
    let retained = match retained {
        true => Some(keepers::retained(&mut graph, &cached)?),
        false => None,
    };
    let mut scene = Scene {
        subject,
        graph: &graph,
        retained,
        native: &native,
        mappings: &mappings,
        cached: &cached,
        site_of: known.site_of,
        redact: known.redact,
        why_no_python: notes.first().cloned().filter(|_| python.is_none()),
        longest_stop: Duration::ZERO,
        lacks_paths: false,
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
    Ok((found, scene.lacks_paths))
}

impl Scene<'_> {
    /// All objects of a type that something holds.
    fn of_type(&self, name: &str) -> Result<Vec<u64>, Error> {
        let python = self.python()?;
        let objects = self.graph.objects();
        let of_type = objects.filter(|&object| python.is_of_type(self.cached, object, name));
        Ok(of_type.collect())
    }

    /// Between two readings of lengths.
    fn growth_time(&self) -> Duration {
        match self.subject.is_untouched() {
            true => BRIEF,
            false => GROWTH_TIME,
        }
    }

    /// The containers that got the most elements within [`Scene::growth_time`], twice in a row.
    fn growing(&self) -> Result<Vec<u64>, Error> {
        let python = self.python()?;
        let running = self.subject.running();
        let running = running.ok_or_else(|| Error::Still(self.subject.pid()))?;
        let lengths = || -> FastMap<u64, u64> {
            let memory = Cached::new(running.clone());
            let objects = self.graph.objects_with_references();
            let long = objects.filter_map(|object| {
                let length = python.length(&memory, object)?.value;
                (length >= LONG).then_some((object, length))
            });
            long.collect()
        };
        let first = lengths();
        thread::sleep(self.growth_time());
        let second = lengths();
        thread::sleep(self.growth_time());
        let third = lengths();
        let mut grown: Vec<(u64, u64)> = third
            .iter()
            .filter_map(|(object, last)| {
                let (first, second) = (first.get(object)?, second.get(object)?);
                (first < second && second < last).then(|| (last - first, *object))
            })
            .collect();
        grown.sort_unstable_by(|a, b| b.cmp(a));
        Ok(grown
            .into_iter()
            .take(GROWING)
            .map(|(_, object)| object)
            .collect())
    }

    /// # Errors
    /// No block of malloc is known: its allocator is not glibc's, and nothing was recorded.
    fn knows_blocks(&self) -> Result<(), Error> {
        match &self.native.note {
            Some(why) if self.graph.blocks.len() == 0 => Err(Error::NoBlocks(why.clone())),
            _ => Ok(()),
        }
    }

    /// Blocks that nothing points to. Those that only garbage holds are not among them.
    pub(super) fn lost(&self) -> Vec<Block> {
        let blocks = self.graph.blocks;
        let numbers = 0..blocks.len();
        let lost = numbers.filter(|&number| self.graph.holder(number as NodeId).is_none());
        let memory = self.cached.now();
        let blocks = lost.map(|number| blocks.block(number));
        blocks
            .filter(|block| native::is_allocated(memory, *block))
            .collect()
    }

    fn python(&self) -> Result<&Python, Error> {
        self.graph.python.ok_or_else(|| Error::NoPython {
            pid: self.subject.pid(),
            why: self.why_no_python.clone(),
        })
    }

    /// The holders of each group of addresses.
    fn look(&mut self, groups: &[&[u64]]) -> Result<Vec<(u32, Vec<Way>)>, Error> {
        let memory = self.cached.now();
        let targets: Vec<(usize, NodeId)> = groups
            .iter()
            .enumerate()
            .flat_map(|(group, addresses)| {
                let reached = addresses.iter().filter_map(|&at| self.graph.reached(at));
                reached.map(move |node| (group, node))
            })
            .collect();
        let mut found: Vec<(usize, Witness)> = Vec::new();
        let mut rest = targets;
        for _ in 0..TRIES {
            let nodes: Vec<NodeId> = rest.iter().map(|(_, node)| *node).collect();
            let witnesses = Witnesses::new(self.graph, &nodes, memory.clone());
            let (mut owners, mut tried) = (Vec::new(), Vec::new());
            let mut failed = Vec::new();
            for (group, node) in rest {
                match witnesses.witness(node) {
                    Some(witness) => {
                        owners.push((group, node));
                        tried.push(witness);
                    }
                    None => failed.push((group, node)),
                }
            }
            let verified = witness::verify(self.subject, &tried, self.mappings)
                .map_err(|error| Error::Stop(error.to_string()))?;
            self.longest_stop = self.longest_stop.max(verified.longest_stop);
            let outcome = owners.into_iter().zip(tried).zip(verified.holds);
            for (((group, node), witness), holds) in outcome {
                match holds {
                    true => found.push((group, witness)),
                    false => failed.push((group, node)),
                }
            }
            rest = failed;
            if rest.is_empty() {
                break;
            }
        }
        self.lacks_paths = found.is_empty() && !rest.is_empty();
        let (lengths, growth) = self.lengths(&found);
        let naming = self.naming();
        let samples = groups.iter().enumerate().map(|(group, addresses)| {
            let own = found.iter().filter(|(of, _)| *of == group);
            let own: Vec<&Witness> = own.map(|(_, witness)| witness).collect();
            let mut ways = ways::ways(&naming, &own, &lengths, &growth);
            // A few may be objects that the program was about to drop.
            ways.retain(|way| way.held != Held::Cycle || 2 * way.blocks as usize >= own.len());
            let lost = addresses.iter().filter(|&&at| self.is_lost(at)).count();
            if lost > 0 {
                ways.push(Way {
                    blocks: lost as u32,
                    held: Held::Nothing,
                });
                ways.sort_by_key(|way| std::cmp::Reverse(way.blocks));
            }
            (addresses.len() as u32, ways)
        });
        Ok(samples.collect())
    }

    /// Sources of the names of steps.
    pub(super) fn naming(&self) -> Naming<'_> {
        Naming {
            graph: self.graph,
            native: self.native,
            memory: self.cached.now(),
            site_of: self.site_of,
            redact: self.redact,
            buffers: RefCell::default(),
        }
    }

    /// Lengths of the containers on paths, and how many elements a second each gets. Nothing is known of that while the
    /// process is stopped.
    pub(super) fn lengths(&self, found: &[(usize, Witness)]) -> (Lengths, HashMap<NodeId, f64>) {
        let read = |memory: &Live| {
            let witnesses = found.iter().map(|(_, witness)| witness);
            ways::lengths(self.graph, witnesses, memory)
        };
        let Some(running) = self.subject.running() else {
            return (read(self.cached.now()), HashMap::new());
        };
        let before = read(&running);
        if before.is_empty() {
            return (before, HashMap::new());
        }
        let began = Instant::now();
        thread::sleep(self.growth_time());
        let after = read(&running);
        let growth = ways::growth(&before, &after, began.elapsed().as_secs_f64());
        (after, growth)
    }

    /// Whether there is a live block or object, and nothing that leads to it.
    fn is_lost(&self, address: u64) -> bool {
        let blocks = self.graph.blocks;
        let memory = self.cached.now();
        // Another allocator may have freed it since, unseen.
        let is_known = self.native.note.is_none();
        is_known
            && self.graph.reached(address).is_none()
            && blocks
                .containing(address)
                .is_some_and(|number| native::is_allocated(memory, blocks.block(number)))
    }
}
