//! Holders of the blocks of a site, as seen in the memory of the process: the tables `holders`,
//! `holders_way` and `holders_step`.

use std::time::Duration;

use rusqlite::{Connection, Row, params};

use super::{
    Error, Recording, Unknown, Writer,
    decode::{layer, optional, uint, unexpected},
    encode::int,
};
use crate::{
    event::StackId,
    ledger::{ProcessId, SiteKey},
};

/// The findings on the blocks of one site, or of one process if the site is unknown.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Holders {
    pub(crate) site: SiteKey,
    /// Size of the sample of blocks.
    pub(crate) sampled: u32,
    /// When they were seen, after the start of the recording; `None`: at its end.
    pub(crate) seen: Option<Duration>,
    /// The ways in which they are held, the most frequent first. Their counts may add up to less
    /// than `sampled`: the holders of the others are unknown.
    pub(crate) ways: Vec<Way>,
    /// Why, if that is known.
    pub(crate) unknown: Option<Unknown>,
}

/// The findings, and their cost.
pub(crate) struct Found<T = Vec<Holders>> {
    pub(crate) holders: T,
    pub(crate) as_of: AsOf,
    /// The longest stop of the process.
    pub(crate) longest_stop: Duration,
    pub(crate) took: Duration,
    /// Parts that could not be searched, and the reasons.
    pub(crate) notes: Vec<String>,
}

/// When the memory was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AsOf {
    /// The process ran on, and each reference was read again during a short stop.
    Running,
    /// The process was stopped.
    Stopped,
}

impl AsOf {
    /// As in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            AsOf::Running => "running",
            AsOf::Stopped => "stopped",
        }
    }
}

/// The memory that would be freed with a node, or with several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) bytes: u64,
    /// Blocks, and objects that have no block of their own.
    pub(crate) blocks: u64,
}

/// The nodes that alone keep most of a process's memory.
#[derive(Debug)]
pub(crate) struct Retainers {
    /// All that can be reached.
    pub(crate) reachable: Kept,
    /// Blocks that nothing points to.
    pub(crate) lost: Kept,
    /// The largest first, each followed by those inside of it.
    pub(crate) largest: Vec<Retainer>,
}

/// An object or a block that keeps others.
#[derive(Debug)]
pub(crate) struct Retainer {
    pub(crate) kept: Kept,
    /// How many of those before it in the list it is inside of.
    pub(crate) depth: usize,
    /// Its path; the last step is the node itself.
    pub(crate) held: WayKind,
}

/// The result of a search by `memtrace holders`.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) samples: Vec<Sample>,
    /// If it was requested.
    pub(crate) retainers: Option<Retainers>,
}

/// Holders of objects or blocks of one kind.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// The request.
    pub(crate) what: String,
    /// Their number.
    pub(crate) known: u64,
    /// Size of the sample.
    pub(crate) sampled: u32,
    pub(crate) addresses: Vec<u64>,
    /// The memory that all of them keep together, if requested.
    pub(crate) kept: Option<Kept>,
    /// The most frequent first.
    pub(crate) ways: Vec<Way>,
    /// Why those of some are not known.
    pub(crate) unknown: Option<Unknown>,
}

/// One way in which blocks are held.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Way {
    /// Blocks held so.
    pub(crate) blocks: u32,
    pub(crate) held: WayKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WayKind {
    /// By a path whose every reference was read again while the process was stopped.
    Path(Path),
    /// Only by objects of a cycle that nothing else holds, which CPython's collector would free: one of them, what it refers
    /// to, and so on until that one again. No steps: they are not known.
    Cycle(Collector, Path),
    /// By an object, the first step, that has more references than pointers to it exist: native code took one and did not
    /// give it back.
    Surplus(Path),
    /// By an object or a block, the first step, that CPython's collector cannot see into. It is part of a cycle.
    Hidden(Path),
    /// By nothing that was found.
    Nothing,
    /// By a block, the first step, to which nothing points.
    LostWith(Path),
    /// By blocks that point to each other in a circle, and to which nothing else points.
    LostCycle(Path),
}

/// What CPython's collector does about a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collector {
    /// It comes to it.
    On,
    /// The program has turned it off.
    Off,
    /// `gc.freeze` has set the objects aside.
    Frozen,
}

/// A path from a root that is always reachable to the block.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path {
    /// The root first.
    pub(crate) steps: Vec<Step>,
    /// Index of the step that is the container growing with the site.
    pub(crate) container: Option<usize>,
    /// The number of that container in its search: paths with the same one go through the same container.
    pub(crate) container_number: Option<u32>,
    /// A Python expression for the owner of one of the blocks, if the whole path can be written as
    /// one.
    pub(crate) expression: Option<String>,
}

/// The type of a step that is memory of a Python object which no type describes: some words in it may be left over from what
/// the memory was before.
pub(crate) const STRUCTURE: &str = "structure in C";

/// The name of a step that is a value of a running frame, or what is left over of one.
pub(crate) const PERHAPS_IN_USE: &str = ": value perhaps in use";

/// The name of a step to a block to which weak references exist: this may be one, and keeps nothing then.
pub(crate) const PERHAPS_WEAK: &str = "perhaps weak";

/// More blocks of a site are never searched for.
const MOST_SAMPLED: u32 = 4096;

/// Nodes in a row from which on they are called a chain. Structures of a few that are alike are common.
pub(crate) const LEAST_CHAIN: u64 = 8;

/// The same of blocks, whose links have no names: a balanced tree is at most twice as deep as the binary logarithm of its
/// number of nodes.
const LEAST_CHAIN_OF_BLOCKS: u64 = 64;

/// The beginning of the name of a root that is memory without a file.
pub(crate) const ANONYMOUS: &str = "anonymous mapping";

impl Path {
    /// Steps of which none is a container.
    pub(crate) fn of(steps: Vec<Step>) -> Self {
        Self {
            steps,
            container: None,
            container_number: None,
            expression: None,
        }
    }

    /// Whether nothing but their values says that some of its words are pointers: those of memory that may not be in use,
    /// of a stack that leads to a Python object, of the values of a running frame, of structures in C, those that may be
    /// weak references, or all of them, in blocks of no known type.
    pub(crate) fn is_of_words(&self) -> bool {
        let is_block = |step: &Step, of: Option<&str>| {
            step.kind == StepKind::Block && step.type_name.as_deref() == of
        };
        let [root, rest @ ..] = &self.steps[..] else {
            return true;
        };
        let is_on_stack = matches!(root.kind, StepKind::Stack | StepKind::Register);
        self.begins_anywhere()
            || is_on_stack
                && rest
                    .first()
                    .is_some_and(|step| step.kind == StepKind::Object)
            || rest.iter().all(|step| is_block(step, None))
            || rest.iter().any(|step| {
                let is_doubtful = [PERHAPS_IN_USE, PERHAPS_WEAK].contains(&&*step.name);
                is_doubtful || is_block(step, Some(STRUCTURE))
            })
    }

    /// Whether its root is a word of memory that may not be in use.
    pub(crate) fn begins_anywhere(&self) -> bool {
        let root = self.steps.first();
        root.is_some_and(|root| root.kind == StepKind::Mapping)
    }

    /// Whether its root is memory of unknown use: an allocator's own, or its blocks are older than the recording.
    pub(crate) fn begins_in_other_blocks(&self) -> bool {
        let root = self.steps.first();
        self.begins_anywhere() && root.is_some_and(|root| root.name.starts_with(ANONYMOUS))
    }

    /// The nodes of a linked list: the place of the first one, and their number. With a container, of the list of which
    /// it is the first node.
    pub(crate) fn chain(&self) -> Option<(usize, u64)> {
        let places = match self.container {
            Some(container) => container..container + 1,
            None => 1..self.steps.len(),
        };
        places.into_iter().find_map(|place| {
            let (first, others) = self.steps.get(place..)?.split_first()?;
            let is_alike = |of: &&Step| of.kind == first.kind && of.type_name == first.type_name;
            // Blocks without a type may be anything, but the first two of a chain.
            let most = match first.type_name {
                Some(_) => others.len(),
                None => 1,
            };
            let alike = others.iter().take(most).take_while(is_alike);
            let of_others = alike.fold(0_u64, |sum, of| sum.saturating_add(of.repeated));
            let nodes = first.repeated.saturating_add(of_others);
            let is_chain = of_others > 0 && nodes >= first.least_chain() && first.length.is_none();
            is_chain.then_some((place, nodes))
        })
    }
}

/// An object or a block on the way. Names are those of modules, attributes, variables and types,
/// and the keys of dicts, truncated; no other contents of the program's memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) kind: StepKind,
    /// How its holder refers to it: `.history`, `[i]`, `['key']`; for a root, its name: `__main__`,
    /// `libfoo.so: g_cache + 0x10`, `thread worker-3: stack of serve()`.
    pub(crate) name: String,
    /// `list`, `torch.Tensor`, `c10::StorageImpl`.
    pub(crate) type_name: Option<String>,
    /// Elements of a container.
    pub(crate) length: Option<u64>,
    /// Elements that it holds at most, if it drops others beyond that.
    pub(crate) limit: Option<u64>,
    /// Elements a second, from two readings.
    pub(crate) growth_per_s: Option<f64>,
    /// Blocks or objects in a row that are alike, and stand for one step: nodes of a linked list.
    pub(crate) repeated: u64,
    /// The site of its own memory (the array of a list), whose stack is the line that made it grow last.
    pub(crate) buffer: Option<SiteKey>,
}

impl Step {
    /// How many such steps in a row are a linked list: what leads into a tree is not.
    fn least_chain(&self) -> u64 {
        match self.kind {
            StepKind::Block => LEAST_CHAIN_OF_BLOCKS,
            _ => LEAST_CHAIN,
        }
    }

    /// A step about which nothing more is known.
    pub(crate) fn new(kind: StepKind, name: String) -> Self {
        Self {
            kind,
            name,
            type_name: None,
            length: None,
            limit: None,
            growth_per_s: None,
            repeated: 1,
            buffer: None,
        }
    }
}

/// The kind of a [`Step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepKind {
    Module,
    Frame,
    /// Another root of the interpreter.
    Interpreter,
    /// A Python object.
    Object,
    /// A variable of a program or a library.
    Global,
    Stack,
    Register,
    ThreadLocal,
    /// Memory that no allocator gave: a mapping.
    Mapping,
    /// A block of malloc.
    Block,
}

impl StepKind {
    pub(super) const ALL: [StepKind; 10] = [
        StepKind::Module,
        StepKind::Frame,
        StepKind::Interpreter,
        StepKind::Object,
        StepKind::Global,
        StepKind::Stack,
        StepKind::Register,
        StepKind::ThreadLocal,
        StepKind::Mapping,
        StepKind::Block,
    ];

    /// As in recordings and in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            StepKind::Module => "module",
            StepKind::Frame => "frame",
            StepKind::Interpreter => "interpreter",
            StepKind::Object => "object",
            StepKind::Global => "global",
            StepKind::Stack => "stack",
            StepKind::Register => "register",
            StepKind::ThreadLocal => "thread-local",
            StepKind::Mapping => "mapping",
            StepKind::Block => "block",
        }
    }
}

impl WayKind {
    /// As in recordings and in JSON.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            WayKind::Path(_) => "path",
            WayKind::Cycle(Collector::On, _) => "cycle",
            WayKind::Cycle(Collector::Off, _) => "cycle-collector-off",
            WayKind::Cycle(Collector::Frozen, _) => "cycle-frozen",
            WayKind::Surplus(_) => "surplus-reference",
            WayKind::Hidden(_) => "hidden-reference",
            WayKind::Nothing => "nothing",
            WayKind::LostWith(_) => "lost-with",
            WayKind::LostCycle(_) => "lost-cycle",
        }
    }

    /// Whether no root leads to them, nor does anything that CPython's collector knows.
    pub(crate) const fn is_lost(&self) -> bool {
        matches!(
            self,
            WayKind::Nothing | WayKind::LostWith(_) | WayKind::LostCycle(_)
        )
    }

    /// The steps to the blocks, if they are known; of a cycle its own.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            WayKind::Path(path)
            | WayKind::Surplus(path)
            | WayKind::Hidden(path)
            | WayKind::LostWith(path)
            | WayKind::LostCycle(path) => Some(path),
            WayKind::Cycle(_, path) => Some(path).filter(|path| !path.steps.is_empty()),
            WayKind::Nothing => None,
        }
    }
}

impl Writer {
    /// Writes the holders of a site's blocks, in place of earlier ones; a site that the recording does not have is skipped.
    pub(crate) fn holders(&mut self, of: &Holders) -> Result<(), Error> {
        self.write(|writer| {
            let Some(site) = writer.written.number(of.site) else {
                return Ok(());
            };
            // Those of an earlier search.
            writer.run("DELETE FROM holders_way WHERE site = ?1", params![site])?;
            writer.run("DELETE FROM holders_step WHERE site = ?1", params![site])?;
            writer.put(
                "holders",
                &[params![
                    site,
                    of.sampled,
                    of.seen.map(|seen| int(seen.as_nanos() as u64)),
                    of.unknown.map(Unknown::name)
                ]],
            )?;
            for (number, way) in (0_i64..).zip(&of.ways) {
                writer.way(site, number, way)?;
            }
            Ok(())
        })
    }

    /// Writes a way in which the blocks of a site are held, or objects of the type with this number below zero.
    pub(super) fn way(&mut self, site: i64, number: i64, way: &Way) -> rusqlite::Result<()> {
        let path = way.held.path();
        let container = path.and_then(|path| path.container);
        let expression = path.and_then(|path| path.expression.as_deref());
        let expression = self.string(expression)?;
        self.put(
            "holders_way",
            &[params![
                site,
                number,
                way.blocks,
                way.held.name(),
                container.map(|index| index as i64),
                expression,
                path.and_then(|path| path.container_number)
            ]],
        )?;
        let steps = path.into_iter().flat_map(|path| &path.steps);
        for (place, step) in (0_i64..).zip(steps) {
            let name = self.string(Some(&step.name))?;
            let type_name = self.string(step.type_name.as_deref())?;
            let buffer = step.buffer.and_then(|key| self.written.number(key));
            self.put(
                "holders_step",
                &[params![
                    site,
                    number,
                    place,
                    step.kind.name(),
                    name,
                    type_name,
                    step.length.map(int),
                    step.growth_per_s,
                    int(step.repeated),
                    buffer,
                    step.limit.map(int)
                ]],
            )?;
        }
        Ok(())
    }
}

impl Recording {
    /// Holders of the blocks of the sites that were searched.
    pub(crate) fn holders(&self) -> Result<Vec<Holders>, Error> {
        self.connection()
            .unchecked_transaction()
            .and_then(|transaction| read(&transaction))
            .map_err(|error| self.reading(&error))
    }
}

/// All of them, in order of their sites' numbers.
pub(super) fn read(connection: &Connection) -> rusqlite::Result<Vec<Holders>> {
    let mut sites = connection.prepare(
        "SELECT holders.site, sampled, after_ns, process, layer, stack, by_allocator, device, \
         unknown FROM holders JOIN site ON site.id = holders.site ORDER BY holders.site",
    )?;
    let sites = sites.query_map([], |row| {
        let holders = Holders {
            site: site_key(row, 3)?,
            sampled: row.get(1)?,
            seen: optional(row, 2)?.map(Duration::from_nanos),
            ways: Vec::new(),
            unknown: unknown(row, 8)?,
        };
        Ok((row.get(0)?, holders))
    })?;
    sites
        .map(|site| {
            let (number, mut holders): (i64, Holders) = site?;
            holders.ways = ways(connection, number)?;
            Ok(holders)
        })
        .collect()
}

fn unknown(row: &Row, column: usize) -> rusqlite::Result<Option<Unknown>> {
    let name: Option<String> = row.get(column)?;
    let why = name.map(|name| Unknown::named(&name).ok_or_else(|| unexpected(column, "unknown")));
    why.transpose()
}

/// See [`Writer::way`].
pub(super) fn ways(connection: &Connection, site: i64) -> rusqlite::Result<Vec<Way>> {
    let mut ways = connection.prepare_cached(
        "SELECT way, blocks, held, container, text, container_number FROM holders_way \
         LEFT JOIN string ON string.id = expression WHERE site = ?1 ORDER BY way",
    )?;
    let ways = ways.query_map([site], |row| {
        let path = || -> rusqlite::Result<Path> {
            let steps = steps(connection, site, row.get(0)?)?;
            let container = optional(row, 3)?.map(|index| index as usize);
            if container.is_some_and(|index| index >= steps.len()) {
                return Err(unexpected(3, "container"));
            }
            Ok(Path {
                steps,
                container,
                container_number: row.get(5)?,
                expression: row.get(4)?,
            })
        };
        let held = match row.get_ref(2)?.as_str()? {
            "path" => WayKind::Path(path()?),
            "cycle" => WayKind::Cycle(Collector::On, path()?),
            "cycle-collector-off" => WayKind::Cycle(Collector::Off, path()?),
            "cycle-frozen" => WayKind::Cycle(Collector::Frozen, path()?),
            "surplus-reference" => WayKind::Surplus(path()?),
            "hidden-reference" => WayKind::Hidden(path()?),
            "nothing" => WayKind::Nothing,
            "lost-with" => WayKind::LostWith(path()?),
            "lost-cycle" => WayKind::LostCycle(path()?),
            _ => return Err(unexpected(2, "held")),
        };
        let blocks = row.get(1)?;
        if blocks > MOST_SAMPLED {
            return Err(unexpected(1, "blocks"));
        }
        Ok(Way { blocks, held })
    })?;
    ways.collect()
}

fn steps(connection: &Connection, site: i64, way: i64) -> rusqlite::Result<Vec<Step>> {
    let mut steps = connection.prepare_cached(
        "SELECT kind, of_name.text, of_type.text, length, growth_per_s, repeated, \
         buffers.id, process, layer, stack, by_allocator, device, length_limit FROM holders_step AS step \
         JOIN string AS of_name ON of_name.id = step.name \
         LEFT JOIN string AS of_type ON of_type.id = step.type \
         LEFT JOIN site AS buffers ON buffers.id = step.buffer \
         WHERE step.site = ?1 AND way = ?2 ORDER BY step.step",
    )?;
    let steps = steps.query_map([site, way], |row| {
        let kind = row.get_ref(0)?.as_str()?;
        let has_buffer = optional(row, 6)?.is_some();
        Ok(Step {
            kind: StepKind::ALL
                .into_iter()
                .find(|known| known.name() == kind)
                .ok_or_else(|| unexpected(0, "kind"))?,
            name: row.get(1)?,
            type_name: row.get(2)?,
            length: optional(row, 3)?,
            limit: optional(row, 12)?,
            growth_per_s: row.get(4)?,
            repeated: uint(row, 5)?,
            buffer: has_buffer.then(|| site_key(row, 7)).transpose()?,
        })
    })?;
    steps.collect()
}

/// The five columns of a key from column `first` on.
fn site_key(row: &Row, first: usize) -> rusqlite::Result<SiteKey> {
    Ok(SiteKey {
        process: ProcessId(row.get(first)?),
        layer: layer(row, first + 1)?,
        stack: StackId(row.get(first + 2)?),
        by_allocator: row.get(first + 3)?,
        device: row.get(first + 4)?,
    })
}
