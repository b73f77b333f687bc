//! A path from a root to a node, reference by reference, with the words that prove it.

use super::{
    doubts::Doubts,
    graph::{Graph, NodeId, RootWord, Unreached, cost_of},
    head::{Head, Steps},
    links::Links,
    memory::{Live, Memory},
    native::{Block, RegisterRoot, RootKind, Stop, StopError, Stopped, Threads, Urgent},
    python::Root,
    reference::{Check, Label, Link, Reference},
    subject::Subject,
};
use crate::{
    arch,
    process::maps::{self, Mapping},
};
use std::{
    cell::{OnceCell, RefCell},
    collections::{HashMap, HashSet},
    thread,
    time::Duration,
};

/// Nodes of a path that are checked at either end: those between are like their neighbours, because only
/// linked lists are this long.
pub(super) const ENDS: usize = 100;

/// Words that are read in one stop: some hundred microseconds.
const WORDS_A_STOP: usize = 1024;

/// Where a path begins.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    Python(Root),
    /// The word at this address.
    Native(u64, RootKind),
    Register(RegisterRoot),
    Unreached(Unreached),
}

/// A path, as memory was when it was put together.
#[derive(Clone, Debug)]
pub(super) struct Witness {
    pub(super) origin: Origin,
    pub(super) steps: Vec<WitnessStep>,
    /// A reference among those of [`Witness::steps`] that is proven by following a list from its head.
    pub(super) head: Option<Head>,
    /// This many nodes are left out after step [`ENDS`].
    pub(super) left_out: usize,
}

/// The place of a path where memory is no longer as the search found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The reference of a root to this node.
    Root(NodeId),
    /// A reference of this node.
    Holder(NodeId),
    /// Unknown.
    Somewhere,
}

impl Broken {
    /// Makes the next search prefer other ways.
    pub(super) fn doubt(self, graph: &Graph<'_>, doubts: &mut Doubts) {
        match self {
            Self::Root(node) => doubts.add_root_of(graph.address(node)),
            Self::Holder(node) => doubts.add_holder(graph.address(node)),
            Self::Somewhere => {}
        }
    }
}

/// A node and the reference to it.
#[derive(Clone, Debug)]
pub(super) struct WitnessStep {
    pub(super) node: NodeId,
    pub(super) link: Link,
}

/// Words of a block, or references of an object, among which the head of a list is sought.
const MOST_WORDS: usize = 64;

/// Attempts to stop the process: up to two seconds. On a busy machine most threads wait for a processor.
const STOPS: u32 = 200;

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// A root of the interpreter, and the reference from it.
struct PythonRoot {
    root: Root,
    link: Link,
    cost: u32,
}

/// Puts paths together.
pub(super) struct Witnesses<'a> {
    graph: &'a Graph<'a>,
    memory: Live,
    /// By their last nodes.
    paths: HashMap<NodeId, Nodes>,
    links: Links,
    /// The interpreter's cheapest root for each object that a path begins with.
    python_roots: HashMap<u64, PythonRoot>,
    /// The variables of frames, and to what they refer: heads of lists may be among them.
    variables: OnceCell<Vec<(Root, Link, u64)>>,
    /// Followed once, because many blocks of a long list are sought. By the word and the first two nodes.
    heads: RefCell<HashMap<(u64, NodeId, NodeId), Option<Head>>>,
}

/// The nodes of a path that are looked at.
struct Nodes {
    root: RootWord,
    nodes: Vec<NodeId>,
    left_out: usize,
}

impl Nodes {
    fn new(graph: &Graph<'_>, node: NodeId) -> Option<Self> {
        let (root, mut nodes) = graph.path(node)?;
        // A block allocated meanwhile is itself reached in an unknown way.
        if root == RootWord::Younger {
            return None;
        }
        if let [.., object, block] = nodes[..]
            && graph.is_own_block(object, block)
        {
            nodes.pop();
        }
        // Objects and the dicts of their attributes take turns.
        let left_out = nodes.len().saturating_sub(2 * ENDS) & !1;
        if left_out > 0 {
            nodes.drain(ENDS..ENDS + left_out);
        }
        Some(Self {
            root,
            nodes,
            left_out,
        })
    }

    /// Each node but the first, and its holder, which is `None` where nodes are left out.
    fn steps(&self) -> impl Iterator<Item = (Option<NodeId>, NodeId)> + '_ {
        let pairs = self.nodes.windows(2).enumerate();
        pairs.map(|(index, pair)| ((!self.is_gap(index)).then_some(pair[0]), pair[1]))
    }

    /// The node that the one at `index` refers to, if it is looked at.
    fn after(&self, index: usize) -> Option<NodeId> {
        let next = self.nodes.get(index + 1)?;
        (!self.is_gap(index)).then_some(*next)
    }

    /// Whether nodes are left out after the one at `index`.
    fn is_gap(&self, index: usize) -> bool {
        self.left_out > 0 && index + 1 == ENDS
    }
}

impl<'a> Witnesses<'a> {
    /// For paths to `nodes`.
    pub(super) fn new(graph: &'a Graph<'a>, nodes: &[NodeId], memory: Live) -> Self {
        let paths = nodes.iter();
        let paths: HashMap<NodeId, Nodes> = paths
            .filter_map(|&node| Some((node, Nodes::new(graph, node)?)))
            .collect();
        let wanted: HashSet<u64> = paths
            .values()
            .filter(|path| path.root == RootWord::Python)
            .filter_map(|path| Some(graph.address(*path.nodes.first()?)))
            .collect();
        let mut python_roots: HashMap<u64, PythonRoot> = HashMap::new();
        if let Some(python) = graph.python.filter(|_| !wanted.is_empty()) {
            python.roots(&memory, &mut |root, reference| {
                let cost = reference.cost + cost_of(root);
                let is_cheaper = |known: &PythonRoot| cost < known.cost;
                if wanted.contains(&reference.target)
                    && python_roots.get(&reference.target).is_none_or(is_cheaper)
                {
                    let link = Link::of(reference);
                    python_roots.insert(reference.target, PythonRoot { root, link, cost });
                }
            });
        }
        let steps = paths.values().flat_map(Nodes::steps);
        let pairs = steps.filter_map(|(holder, node)| Some((holder?, node)));
        Self {
            links: Links::new(graph, pairs, &memory),
            graph,
            memory,
            paths,
            python_roots,
            variables: OnceCell::new(),
            heads: RefCell::default(),
        }
    }

    /// The path to one of the nodes, with each reference looked up again.
    ///
    /// # Errors
    /// One is gone.
    pub(super) fn witness(&self, node: NodeId) -> Result<Witness, Broken> {
        let path = self.paths.get(&node).ok_or(Broken::Somewhere)?;
        let first = *path.nodes.first().ok_or(Broken::Somewhere)?;
        let of_root = Broken::Root(first);
        let mut head = None;
        let (origin, link) = match path.root {
            RootWord::Python => {
                let (root, link) = match self.python_roots.get(&self.graph.address(first)) {
                    Some(known) => (known.root, known.link.clone()),
                    None => {
                        let (root, link, found) = self.head_in_frame(path).ok_or(of_root)?;
                        head = Some(found);
                        (root, link)
                    }
                };
                (Origin::Python(root), link)
            }
            RootWord::Native(address, kind) => {
                let value = self.memory.word(address).ok_or(of_root)?;
                let link = self.graph.native_link(address, value, first);
                let link = match link {
                    Some(link) => link,
                    None => {
                        head = Some(self.head(address, path, 0).ok_or(of_root)?);
                        Link::default()
                    }
                };
                (Origin::Native(address, kind), link)
            }
            RootWord::Register(register) => (Origin::Register(register), Link::default()),
            RootWord::Younger | RootWord::Unreached(Unreached::Unclear) => {
                return Err(Broken::Somewhere);
            }
            RootWord::Unreached(why) => (Origin::Unreached(why), self.counted(first, why)),
        };
        let mut steps = vec![self.step(first, link)];
        for (index, (holder, node)) in path.steps().enumerate() {
            let link = match holder.map(|holder| (holder, self.links.get(holder, node))) {
                Some((_, Some(link))) => link.clone(),
                Some((holder, None)) if head.is_none() => {
                    let found = self.head_in(holder, path, index + 1);
                    let (found, link) = found.ok_or(Broken::Holder(holder))?;
                    head = Some(found);
                    link
                }
                Some((holder, None)) => return Err(Broken::Holder(holder)),
                // As the nodes before, which are objects and dicts by turns, or all alike.
                None => Link {
                    label: steps[steps.len() - 2].link.label,
                    checks: Vec::new(),
                },
            };
            steps.push(self.step(node, link));
        }
        Ok(Witness {
            origin,
            steps,
            head,
            left_out: path.left_out,
        })
    }

    /// Proves that an unreached object has as many references as when they were counted: the search may have met it
    /// between two holders.
    fn counted(&self, node: NodeId, why: Unreached) -> Link {
        let object = self.graph.object(node);
        let object = object.filter(|_| why != Unreached::Hidden);
        let count = |object| match why {
            Unreached::Surplus => self.graph.counted.get(&object).copied(),
            _ => self.memory.word(object),
        };
        let count = object.and_then(|object| Some((object, count(object)?)));
        let checks = count.map(|(object, count)| Check {
            mask: u32::MAX.into(),
            ..Check::equal(object, count & u64::from(u32::MAX))
        });
        Link {
            checks: checks.into_iter().collect(),
            ..Link::default()
        }
    }

    /// The word at `address` as the head of a list that leads to the path's node at `index`, and on.
    fn head(&self, address: u64, path: &Nodes, index: usize) -> Option<Head> {
        let (node, next) = (*path.nodes.get(index)?, path.after(index)?);
        let mut heads = self.heads.borrow_mut();
        *heads.entry((address, node, next)).or_insert_with(|| {
            let link = self.links.get(node, next)?;
            let steps = self.list_steps(node, next, link)?;
            let steps = match link.label {
                // The next node is an attribute.
                Label::Namespace => {
                    let after = path.after(index + 1)?;
                    let link = self.links.get(next, after)?;
                    steps.then(&self.list_steps(next, after, link)?)?
                }
                _ => steps,
            };
            Head::new(address, self.graph.address(node), steps).advanced(&self.memory)
        })
    }

    fn list_steps(&self, node: NodeId, next: NodeId, link: &Link) -> Option<Steps> {
        Steps::of(self.graph.address(node), self.graph.address(next), link)
    }

    /// The same of a word of `holder`, and the reference to the list without that word.
    fn head_in(&self, holder: NodeId, path: &Nodes, index: usize) -> Option<(Head, Link)> {
        if self.graph.object(holder).is_none() {
            let Block { start, size } = self.graph.blocks.block(holder as usize);
            let offsets = (0..size).step_by(8).take(MOST_WORDS);
            let mut heads = offsets.map(|offset| (start + offset, Link::at(offset)));
            return heads.find_map(|(at, link)| Some((self.head(at, path, index)?, link)));
        }
        let mut links = Vec::new();
        let of_type = self.type_at(self.graph.address(*path.nodes.get(index)?));
        self.graph
            .references(holder, &self.memory, &mut |reference| {
                if links.len() < MOST_WORDS && self.type_at(reference.target) == of_type {
                    links.push(Link::of(reference));
                }
            });
        links.into_iter().find_map(|link| {
            let (at, link) = without_pointer(link)?;
            Some((self.head(at, path, index)?, link))
        })
    }

    /// The same of a variable of a frame.
    fn head_in_frame(&self, path: &Nodes) -> Option<(Root, Link, Head)> {
        let of_type = self.type_at(self.graph.address(*path.nodes.first()?));
        let all = self.variables.get_or_init(|| self.frame_variables());
        let alike = all.iter().filter(|(_, _, at)| self.type_at(*at) == of_type);
        alike.take(MOST_WORDS).find_map(|(root, link, _)| {
            let (at, link) = without_pointer(link.clone())?;
            Some((*root, link, self.head(at, path, 0)?))
        })
    }

    fn frame_variables(&self) -> Vec<(Root, Link, u64)> {
        let mut all = Vec::new();
        let mut add = |root, reference: &Reference<'_>| {
            if matches!(root, Root::Frame { .. }) {
                all.push((root, Link::of(reference), reference.target));
            }
        };
        if let Some(python) = self.graph.python {
            python.roots(&self.memory, &mut add);
        }
        all
    }

    /// The address of the type of an object.
    fn type_at(&self, object: u64) -> Option<u64> {
        self.memory.word(object.checked_add(8)?)
    }

    /// Also proves that the object is still of its type.
    fn step(&self, node: NodeId, mut link: Link) -> WitnessStep {
        if let Some(object) = self.graph.object(node)
            && let Some(of_type) = self.memory.word(object + 8)
        {
            link.checks.push(Check::equal(object + 8, of_type));
        }
        WitnessStep { node, link }
    }
}

/// Where the word of a reference is that has its target, and the reference without it.
fn without_pointer(mut link: Link) -> Option<(u64, Link)> {
    let check = link.checks.pop()?;
    Some((check.address, link))
}

/// The result of reading witnesses again.
#[derive(Debug, Default)]
pub(super) struct Verified {
    /// For each, where it no longer holds, if anywhere.
    pub(super) broken: Vec<Option<Broken>>,
    /// The longest stop of the process.
    pub(super) longest_stop: Duration,
}

/// Reads each witness again at one moment at which no thread of the process runs. If the whole search is of one
/// moment, no stop is needed.
///
/// # Errors
/// The process cannot be stopped.
pub(super) fn verify(
    subject: &Subject,
    witnesses: &[Witness],
    mappings: &[Mapping],
) -> Result<Verified, StopError> {
    let mut verified = Verified::default();
    let mut rest = witnesses;
    while !rest.is_empty() {
        let mut words = 0;
        let fits = rest.iter().take_while(|witness| {
            words += witness.checks().count();
            words <= WORDS_A_STOP
        });
        let (now, later) = rest.split_at(fits.count().max(1));
        verify_at_once(subject, now, mappings, &mut verified)?;
        rest = later;
    }
    Ok(verified)
}

/// Values read in a stop.
struct Seen {
    values: Vec<Option<u64>>,
    threads: Vec<Stopped>,
    /// For each head, whether it leads to the known block.
    heads: Vec<bool>,
}

/// Reads words while the process is stopped. On a busy machine its threads may not get to stop in the time that they
/// are given, or memtrace not to read: that is tried again.
fn read_stopped(
    pid: u32,
    memory: &Live,
    addresses: &[u64],
    heads: &[Option<Head>],
    longest_stop: &mut Duration,
) -> Result<Option<Seen>, StopError> {
    let mut seen = Seen {
        values: vec![None; addresses.len()],
        threads: Vec::new(),
        heads: Vec::new(),
    };
    for left in (0..STOPS).rev() {
        // Everything that takes time is done before or after.
        let urgent = Urgent::new();
        let (lasted, is_whole) = match Stop::new(pid) {
            Ok(stop) => {
                seen.values.fill(None);
                memory.words(addresses, &mut seen.values);
                seen.heads = follow(heads, memory);
                seen.threads = stop.threads().to_vec();
                let Some(ended) = stop.end() else { break };
                (ended.lasted, !ended.was_cut)
            }
            Err(error) if left > 0 && error.may_pass() => (error.lasted(), false),
            Err(error) => return Err(error),
        };
        drop(urgent);
        *longest_stop = lasted.max(*longest_stop);
        if is_whole {
            return Ok(Some(seen));
        }
        thread::sleep(PAUSE);
    }
    Ok(None)
}

fn follow(heads: &[Option<Head>], memory: &Live) -> Vec<bool> {
    let holds = |head: &Option<Head>| head.is_some_and(|head| head.holds(memory));
    heads.iter().map(holds).collect()
}

/// Reads all words, and then all of them again. Those that are the same in both were so at once, between the two.
fn read_twice(memory: &Live, addresses: &[u64], heads: &[Option<Head>]) -> Seen {
    let read = || {
        let mut values = vec![None; addresses.len()];
        memory.words(addresses, &mut values);
        values
    };
    let (mut values, again) = (read(), read());
    for (value, again) in values.iter_mut().zip(again) {
        *value = value.filter(|_| *value == again);
    }
    Seen {
        values,
        threads: Vec::new(),
        heads: follow(heads, memory),
    }
}

fn verify_at_once(
    subject: &Subject,
    witnesses: &[Witness],
    mappings: &[Mapping],
    verified: &mut Verified,
) -> Result<(), StopError> {
    let checks = witnesses.iter().flat_map(Witness::checks);
    let addresses: Vec<u64> = checks.map(|check| check.address).collect();
    // Mostly the same one.
    let mut known: Vec<Head> = witnesses.iter().filter_map(|of| of.head).collect();
    known.dedup();
    let memory = Live::new(subject.pid());
    let heads: Vec<Option<Head>> = known.iter().map(|head| head.advanced(&memory)).collect();
    let seen = match subject.threads() {
        _ if subject.is_untouched() => Some(read_twice(&memory, &addresses, &heads)),
        Threads::Stopped(threads) => {
            let mut values = vec![None; addresses.len()];
            memory.words(&addresses, &mut values);
            Some(Seen {
                values,
                threads: threads.to_vec(),
                heads: follow(&heads, &memory),
            })
        }
        Threads::Running(pid) => {
            read_stopped(pid, &memory, &addresses, &heads, &mut verified.longest_stop)?
        }
    };
    let Some(Seen {
        values,
        threads,
        heads,
    }) = seen
    else {
        let none_holds = witnesses.iter().map(|_| Some(Broken::Somewhere));
        verified.broken.extend(none_holds);
        return Ok(());
    };
    let mut values = values.into_iter();
    for witness in witnesses {
        let mut broken = None;
        if !witness.origin.is_alive(&threads, mappings) {
            broken = Some(witness.broken_at(0));
        }
        for (index, step) in witness.steps.iter().enumerate() {
            for check in &step.link.checks {
                let value = values.next().flatten();
                if !value.is_some_and(|value| check.holds(value)) {
                    broken.get_or_insert_with(|| witness.broken_at(index));
                }
            }
        }
        if let Some(head) = witness.head {
            let number = known.iter().position(|known| *known == head);
            if number.and_then(|number| heads.get(number)) != Some(&true) {
                broken.get_or_insert(Broken::Somewhere);
            }
        }
        verified.broken.push(broken);
    }
    Ok(())
}

impl Origin {
    /// Whether a register still has its value, or a word of a stack is still in the part in use.
    fn is_alive(&self, threads: &[Stopped], mappings: &[Mapping]) -> bool {
        let mut running = threads
            .iter()
            .filter_map(|thread| Some((thread.tid, thread.registers.as_ref()?)));
        match *self {
            Self::Register(register) => running.any(|(tid, registers)| {
                tid == register.tid
                    && arch::general(registers).contains(&(register.name, register.value))
            }),
            Self::Native(address, RootKind::Stack) => {
                let stack = maps::find(mappings, address);
                !running.any(|(_, registers)| {
                    let top = arch::unwinding_from(registers).sp;
                    address < top && stack.is_some_and(|stack| stack.contains(top))
                })
            }
            _ => true,
        }
    }
}

impl Witness {
    /// The holder that step `index` no longer has.
    fn broken_at(&self, index: usize) -> Broken {
        match (
            index.checked_sub(1).map(|before| &self.steps[before]),
            self.steps.first(),
        ) {
            (Some(holder), _) => Broken::Holder(holder.node),
            (None, Some(first)) => Broken::Root(first.node),
            (None, None) => Broken::Somewhere,
        }
    }

    /// All words that must still be as they were.
    fn checks(&self) -> impl Iterator<Item = &Check> {
        self.steps.iter().flat_map(|step| &step.link.checks)
    }
}
