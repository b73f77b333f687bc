//! Finds everything reachable, and the path to it: a forward search over references from all roots at
//! once, the cheapest first (Dijkstra). For each object and block only its holder on the cheapest path
//! is kept; the reference itself is looked up again when a path is shown.

mod counted;
mod follow;
mod leftovers;
mod marked;
mod structures;
mod unreached;
mod untracked;
mod younger;

pub(super) use unreached::{Again, Since, Unreached};

use super::{
    doubts::{Buffers, Doubts},
    memory::{Cached, Live, Memory},
    native::{Block, Blocks, Native, RegisterRoot, RootKind, RootRange, Scanner},
    numbers::{self, Numbers, Pieces},
    pools::{Piece, Sizes},
    python::{Python, Root},
    reference::{Check, Label, Link, Reference, Visit, Word, cost},
    references::Met,
};
use crate::{frames::caching, hash::FastMap};
use std::{
    collections::{BTreeMap, HashSet},
    ops::Range,
};

/// An object or a block. Blocks come first, by number; objects follow in the order in which they are found.
pub(super) type NodeId = u32;

/// Not reached.
const NOBODY: u32 = u32::MAX;

/// Set in a holder that is a root: the rest is an index into [`Graph::roots`].
const ROOT: u32 = 1 << 31;

/// Nodes that are followed between two checks of whether the search is over.
const ASKING: usize = 1 << 14;

/// Bytes before an object in its block: none, the collector's words, and also those of the attributes, since 3.11.
pub(super) const BEFORE_OBJECT: [u64; 3] = [0, 16, 32];

/// Set in the address of an object that has no references. Objects begin at multiples of 8.
const LEAF: u64 = 1;

/// The holder from which a node was first reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RootWord {
    /// One of the interpreter's roots, see [`Python::roots`].
    Python,
    /// The word at this address, in a stack or not.
    Native(u64, RootKind),
    Register(RegisterRoot),
    /// A word of a block that the process allocated during the search.
    Younger,
    /// What is alive although no root reaches it.
    Unreached(Unreached),
}

/// Who holds a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Root(RootWord),
    Node(NodeId),
}

/// See the module.
pub(super) struct Graph<'a> {
    pub(super) python: Option<&'a Python>,
    native: &'a Native,
    pub(super) blocks: &'a Blocks,
    /// Ranges with objects of the interpreter's allocator, by address.
    pools: &'a [Range<u64>],
    /// Reads the memory that is searched; `None` while it is lent out.
    scanner: Option<Scanner>,
    /// Addresses of objects, see [`LEAF`], and their numbers.
    objects: Vec<u64>,
    numbers: Numbers<'a>,
    /// By node: its holder and the cost of its path.
    holders: Vec<u32>,
    costs: Vec<u32>,
    roots: Vec<RootWord>,
    /// Blocks of the interpreter's own state, and of malloc's: they lead to freed memory.
    states: Vec<NodeId>,
    /// Blocks of devices.
    of_devices: FastMap<NodeId, ()>,
    /// Those that may only be in the records of a caching allocator: holder and cost.
    recorded: FastMap<NodeId, (u32, u32)>,
    /// Whether there is such an allocator.
    has_records: bool,
    queue: BTreeMap<u32, Vec<NodeId>>,
    /// Objects that came after the memory around them was read: they are read as they are now.
    young: FastMap<NodeId, ()>,
    /// Words that may be left over, and are put off until the others are followed: roots that lead to objects, and words
    /// of nodes that lead to structures of C.
    left_over: Vec<(RootWord, Word)>,
    structures: Vec<(NodeId, Word)>,
    /// Whether they are followed now.
    follows_leftovers: bool,
    /// Pieces of the interpreter's pools that belong to structures of C, and were followed.
    followed: Pieces,
    /// How many references objects without a root had when it was decided why they are alive, by address.
    pub(super) counted: FastMap<u64, u64>,
    /// Objects without a root whose references are all known, by address: other words that point to them are none.
    explained: FastMap<u64, u64>,
    /// Of earlier searches.
    doubts: &'a Doubts,
    /// Also of earlier searches.
    pub(super) buffers: Buffers,
    /// If it is wanted.
    met: Option<Met>,
}

impl<'a> Graph<'a> {
    pub(super) fn new(
        python: Option<&'a Python>,
        native: &'a Native,
        pools: &'a [Range<u64>],
        sizes: Sizes,
        doubts: &'a Doubts,
    ) -> Self {
        let blocks = &native.blocks;
        let len = blocks.len();
        Self {
            python,
            native,
            blocks,
            pools,
            scanner: Some(Scanner::new(bounds(blocks, pools))),
            objects: Vec::new(),
            numbers: Numbers::new(pools, sizes),
            holders: vec![NOBODY; len],
            costs: vec![u32::MAX; len],
            roots: Vec::new(),
            states: Vec::new(),
            of_devices: FastMap::default(),
            recorded: FastMap::default(),
            has_records: false,
            queue: BTreeMap::new(),
            young: FastMap::default(),
            left_over: Vec::new(),
            structures: Vec::new(),
            follows_leftovers: false,
            followed: Pieces::default(),
            counted: FastMap::default(),
            explained: FastMap::default(),
            doubts,
            buffers: doubts.buffers.clone(),
            met: None,
        }
    }

    /// Keeps all references that are met, see [`Graph::take_met`].
    pub(super) fn keep_references(&mut self) {
        self.met = Some(Met::default());
    }

    /// All references that the search has met, if they were kept. It is over then.
    pub(super) fn take_met(&mut self) -> Option<Met> {
        self.costs = Vec::new();
        self.met.take()
    }

    /// Number of nodes, reached or not.
    pub(super) fn len(&self) -> usize {
        self.holders.len()
    }

    /// The number of an object among objects.
    pub(super) fn number(&self, node: NodeId) -> Option<usize> {
        (node as usize).checked_sub(self.blocks.len())
    }

    /// Blocks of devices, at these addresses: their contents cannot be read.
    pub(super) fn set_devices(&mut self, of_devices: impl Iterator<Item = u64>) {
        let blocks = of_devices.filter_map(|start| self.blocks.containing(start));
        self.of_devices = blocks.map(|block| (block as NodeId, ())).collect();
        let mut modules = self.native.modules.file_names();
        self.has_records = modules.any(|name| caching::layer_of_caller(name).is_some());
    }

    /// Reaches the blocks of devices that nothing but a caching allocator's records may hold. To be called last.
    pub(super) fn reach_recorded(&mut self) {
        for (node, (holder, cost)) in std::mem::take(&mut self.recorded) {
            if self.holders[node as usize] == NOBODY {
                self.reach(node, holder, cost);
            }
        }
    }

    /// Reaches whatever can be reached from the roots, until `is_over`.
    pub(super) fn search(&mut self, memory: &Cached<Live>, is_over: &dyn Fn() -> bool) {
        let caches = self.native.caches(memory).into_iter();
        self.states = caches.map(|block| block as NodeId).collect();
        if let Some(python) = self.python {
            let states = python.states(memory).into_iter();
            let blocks = states.filter_map(|state| self.blocks.containing(state));
            self.states.extend(blocks.map(|block| block as NodeId));
            self.reach_from_python(python, memory);
        }
        self.reach_from_native(memory);
        self.settle(memory, is_over);
        // Frames come and go while they are read. One that was missed is a root of all that follows.
        if let Some(python) = self.python {
            self.reach_from_python(python, memory);
            self.settle(memory, is_over);
        }
    }

    fn reach_from_native(&mut self, memory: &Cached<Live>) {
        for range in self.native_roots() {
            self.scan(
                range.start..range.end,
                memory.now(),
                &mut |graph, address, value| {
                    let reference = word(&[], 0, value, range.kind.cost());
                    graph.reach_from(RootWord::Native(address, range.kind), &reference, memory);
                },
            );
        }
        for register in self.native.roots.registers() {
            let reference = word(&[], 0, register.value, cost::STACK);
            self.reach_from(RootWord::Register(register), &reference, memory);
        }
    }

    /// Ranges of memory whose words are roots.
    fn native_roots(&self) -> impl Iterator<Item = RootRange> + use<'a> {
        let (native, interpreter) = (self.native, self.interpreter());
        native.roots.ranges(self.blocks).filter(move |range| {
            range.kind != RootKind::Global
                || interpreter.is_none()
                || native.modules.name_at(range.start) != interpreter
        })
    }

    fn reach_from_python(&mut self, python: &Python, memory: &Cached<Live>) {
        python.roots(memory.now(), &mut |root, reference| {
            let is_doubted = !matches!(root, Root::Module(_));
            let is_doubted = is_doubted && self.doubts.has_root_of(reference.target);
            let doubt = if is_doubted { cost::DOUBTED } else { 0 };
            let reference = Reference {
                cost: reference.cost + cost_of(root) + doubt,
                ..*reference
            };
            self.reach_from(RootWord::Python, &reference, memory);
        });
    }

    /// The interpreter's file. Its variables have pointers to freed memory; live references are among its roots
    /// anyway. A program with the interpreter linked in has variables of its own as well.
    fn interpreter(&self) -> Option<&'a str> {
        let name = self.native.modules.name_at(self.python?.state())?;
        (name.starts_with("python") || name.starts_with("libpython")).then_some(name)
    }

    /// Follows the nodes reached so far, the cheapest first.
    fn settle(&mut self, memory: &Cached<Live>, is_over: &dyn Fn() -> bool) {
        while let Some((cost, mut nodes)) = self.queue.pop_first() {
            // Memory is read in the order of addresses.
            nodes.sort_unstable_by_key(|&node| self.address(node));
            for (count, node) in nodes.into_iter().enumerate() {
                if count % ASKING == 0 && is_over() {
                    self.queue.clear();
                    return;
                }
                if self.costs[node as usize] == cost {
                    self.follow(node, cost, memory);
                }
            }
        }
    }

    /// Gives each word in a range that may refer to a block or an object: its address, and itself.
    fn scan(
        &mut self,
        range: Range<u64>,
        memory: &dyn Memory,
        visit: &mut dyn FnMut(&mut Self, u64, u64),
    ) {
        // Taken out so that the graph can be changed meanwhile.
        let Some(mut scanner) = self.scanner.take() else {
            return;
        };
        scanner.scan(memory, range, |address, value| visit(self, address, value));
        self.scanner = Some(scanner);
    }

    /// Whether `cost` is less than the known cost of `node`; if so, `holder` becomes its holder.
    fn reach(&mut self, node: NodeId, holder: u32, cost: u32) -> bool {
        self.meet(node, holder);
        let known = &mut self.costs[node as usize];
        let is_better = cost < *known;
        if is_better {
            *known = cost;
            self.holders[node as usize] = holder;
        }
        is_better
    }

    /// Keeps a reference, if references are wanted.
    fn meet(&mut self, node: NodeId, holder: u32) {
        if let Some(met) = self.met.as_mut().filter(|_| holder & ROOT == 0) {
            met.add(node);
        }
    }

    /// As [`Graph::reach`], and follows it later. A reference to device memory may be the allocator's own record of it:
    /// the holder to show is the one of the data's owner, which need not be reached from a root.
    fn offer(&mut self, node: NodeId, holder: u32, cost: u32) {
        if self.of_devices.contains_key(&node) {
            let cost = cost.saturating_add(cost::OF_DEVICE);
            if !self.has_records {
                self.reach(node, holder, cost);
                return;
            }
            self.meet(node, holder);
            let known = self.recorded.entry(node).or_insert((holder, cost));
            if cost < known.1 {
                *known = (holder, cost);
            }
        } else if self.reach(node, holder, cost) {
            match self.leaf(node) {
                Some(object) => drop(self.reach_own_block(node, object, cost)),
                None => self.queue.entry(cost).or_default().push(node),
            }
        }
    }

    /// The object of a node that need not be followed: it has no references, and its size is not needed.
    fn leaf(&self, node: NodeId) -> Option<u64> {
        let object = self.objects.get(self.number(node)?)?;
        (object & LEAF != 0 && self.met.is_none()).then_some(object & !LEAF)
    }

    fn reach_from(&mut self, root: RootWord, reference: &Reference<'_>, memory: &Cached<Live>) {
        let Some(target) = self.target(reference, memory) else {
            return;
        };
        if self.puts_off(root, reference, target) {
            return;
        }
        if let Some(met) = &mut self.met {
            met.add_root(target, matches!(root, RootWord::Unreached(_)));
        }
        let interior = self.interior_from(root, target, reference.target);
        let cost = cost::with(reference.cost, interior);
        if cost < self.costs[target as usize] {
            let holder = ROOT | self.roots.len() as u32;
            self.roots.push(root);
            self.offer(target, holder, cost);
        }
    }

    /// The object or the block that a reference is to, known from now on.
    fn target(&mut self, reference: &Reference<'_>, memory: &Cached<Live>) -> Option<NodeId> {
        if let Some(known) = self.known(reference) {
            return Some(known);
        }
        let address = reference.target;
        let may_be_object = match reference.label {
            Label::Buffer => false,
            label if label.is_word() => self.may_have_object(address),
            _ => true,
        };
        if may_be_object && let Some(python) = self.python {
            let mut object = python.object(memory, address);
            let is_typed = !reference.label.is_word();
            let is_young = object.is_none() && is_typed;
            if is_young {
                memory.forget_at(address);
                object = python.object(memory, address);
            }
            if let Some(object) = object {
                let node = self.add_object(address, object.is_leaf())?;
                if is_young {
                    self.young.insert(node, ());
                }
                return Some(node);
            }
        }
        let block = self.blocks.containing(address)?;
        // The collector links the words before its objects with each other: nothing is kept by that.
        let is_before_object = reference.label.is_word()
            && self
                .object_in(block, memory)
                .is_some_and(|object| address < object);
        (!is_before_object).then_some(block as NodeId)
    }

    /// The object that a block is the memory of.
    fn object_in(&self, block: usize, memory: &dyn Memory) -> Option<u64> {
        let Block { start, size } = self.blocks.block(block);
        self.object_from(start, size, memory)
    }

    /// The object in the block or the piece of a pool that begins at an address, or the object there.
    pub(super) fn object_at(&self, address: u64, memory: &dyn Memory) -> Option<u64> {
        let size = match self.blocks.containing(address) {
            Some(number) => self.blocks.block(number).size,
            None => Piece::at(self.python?.minor(), memory, address)?.size,
        };
        self.object_from(address, size, memory)
    }

    /// Before an object may be the collector's words and those of the attributes.
    fn object_from(&self, start: u64, size: u64, memory: &dyn Memory) -> Option<u64> {
        let python = self.python?;
        let fitting = BEFORE_OBJECT
            .into_iter()
            .filter(|before| before + 16 <= size);
        let mut objects = fitting.map(|before| start + before);
        objects.find(|&object| python.is_object(memory, object))
    }

    /// An object that was reached before.
    fn known(&self, reference: &Reference<'_>) -> Option<NodeId> {
        match reference.label {
            Label::Buffer => None,
            _ => self.numbers.get(reference.target),
        }
    }

    /// Whether an object may begin at an address: in a pool, or near the beginning of a block, after the
    /// header of the collector and, since 3.11, the words of the attributes.
    fn may_have_object(&self, address: u64) -> bool {
        if self.python.is_none() || !address.is_multiple_of(8) {
            return false;
        }
        self.numbers.is_in_pool(address)
            || self.blocks.containing(address).is_some_and(|block| {
                let offset = address - self.blocks.block(block).start;
                BEFORE_OBJECT.contains(&offset)
            })
    }

    fn add_object(&mut self, address: u64, is_leaf: bool) -> Option<NodeId> {
        let number = u32::try_from(self.holders.len())
            .ok()
            .filter(|&number| number < numbers::MOST)?;
        self.numbers.insert(address, number);
        self.objects
            .push(if is_leaf { address | LEAF } else { address });
        self.holders.push(NOBODY);
        self.costs.push(u32::MAX);
        Some(number)
    }

    /// The object of a node, `None` of a block.
    pub(super) fn object(&self, node: NodeId) -> Option<u64> {
        let object = self.objects.get(self.number(node)?)?;
        Some(object & !LEAF)
    }

    /// Where an object or a block begins.
    pub(super) fn address(&self, node: NodeId) -> u64 {
        match self.object(node) {
            Some(object) => object,
            None => self.blocks.block(node as usize).start,
        }
    }

    /// The node at an address, if it was reached: the object there, or the block around it.
    pub(super) fn reached(&self, address: u64) -> Option<NodeId> {
        let object = self.numbers.get(address);
        let node = object.or_else(|| Some(self.blocks.containing(address)? as NodeId))?;
        (self.holders[node as usize] != NOBODY).then_some(node)
    }

    /// Whether an address lies in memory of the interpreter's own allocator.
    pub(super) fn is_in_pool(&self, address: u64) -> bool {
        self.numbers.is_in_pool(address)
    }

    /// Who holds a node that was reached.
    pub(super) fn holder(&self, node: NodeId) -> Option<Holder> {
        match self.holders[node as usize] {
            NOBODY => None,
            root if root & ROOT != 0 => {
                let root = self.roots.get((root & !ROOT) as usize)?;
                Some(Holder::Root(*root))
            }
            holder => Some(Holder::Node(holder)),
        }
    }

    /// The nodes from the one that a root refers to down to `node`, and the root.
    pub(super) fn path(&self, node: NodeId) -> Option<(RootWord, Vec<NodeId>)> {
        let mut nodes = vec![node];
        let mut at = node;
        loop {
            match self.holder(at)? {
                Holder::Root(root) => {
                    nodes.reverse();
                    return Some((root, nodes));
                }
                Holder::Node(holder) => {
                    nodes.push(holder);
                    at = holder;
                }
            }
        }
    }

    /// All references of a node that was reached, as memory is now.
    pub(super) fn references(&self, node: NodeId, memory: &dyn Memory, visit: &mut Visit<'_>) {
        let mut known = HashSet::new();
        let mut through = |reference: &Reference<'_>, is_untyped: bool| {
            visit(reference);
            if is_untyped {
                let mut is_new = |piece| known.insert(piece);
                self.structure(reference, memory, &mut is_new, visit);
            }
        };
        if let Some(object) = self.object(node) {
            if let Some(python) = self.python {
                python.references(memory, object, &mut |reference| {
                    through(reference, reference.cost >= cost::UNTYPED);
                });
            }
            return;
        }
        let block = self.blocks.block(node as usize);
        let range = block.start..block.start + block.size;
        let mut scanner = Scanner::new(bounds(self.blocks, self.pools));
        scanner.scan(memory, range, |address, value| {
            let checks = [Check::equal(address, value)];
            let word = word(&checks, address - block.start, value, cost::BLOCK);
            through(&word, true);
        });
    }

    /// The node that a reference leads to, if the search has come to one there.
    pub(super) fn referred(&self, reference: &Reference<'_>) -> Option<NodeId> {
        let found = self.known(reference);
        found.or_else(|| Some(self.blocks.containing(reference.target)? as NodeId))
    }

    /// The word `value` at `address` as a reference to `node`, if it is one.
    pub(super) fn native_link(&self, address: u64, value: u64, node: NodeId) -> Option<Link> {
        let checks = [Check::equal(address, value)];
        let reference = word(&checks, 0, value, 0);
        (self.referred(&reference) == Some(node)).then(|| Link::of(&reference))
    }

    /// Whether `block` is the memory that `object` lies in.
    pub(super) fn is_own_block(&self, object: NodeId, block: NodeId) -> bool {
        let address = self.object(object);
        address.is_some()
            && self.object(block).is_none()
            && address.and_then(|address| self.blocks.containing(address)) == Some(block as usize)
    }

    /// Objects that were reached.
    pub(super) fn objects(&self) -> impl Iterator<Item = u64> {
        self.objects.iter().map(|object| object & !LEAF)
    }

    /// Those of them that may have references.
    pub(super) fn objects_with_references(&self) -> impl Iterator<Item = u64> {
        let objects = self.objects.iter().copied();
        objects.filter(|object| object & LEAF == 0)
    }
}

/// The cost of a root of the interpreter. Programmers name things by their module, although the frames of its
/// functions refer to the same objects.
pub(super) fn cost_of(root: Root) -> u32 {
    match root {
        Root::Module(_) => 0,
        Root::Frame { .. } => 20,
        Root::Thread(_) | Root::Interpreter | Root::AtExit => 100,
    }
}

/// A word of a block as a reference.
fn word(checks: &[Check], offset: u64, value: u64, cost: u32) -> Reference<'_> {
    Reference {
        target: value,
        label: Label::Word(offset),
        cost,
        checks,
    }
}

/// From the lowest to the highest address of a block or an object.
fn bounds(blocks: &Blocks, pools: &[Range<u64>]) -> Range<u64> {
    let of_blocks = blocks.bounds();
    match (pools.first(), pools.last()) {
        (Some(first), Some(last)) if of_blocks.is_empty() => first.start..last.end,
        (Some(first), Some(last)) => first.start.min(of_blocks.start)..last.end.max(of_blocks.end),
        _ => of_blocks,
    }
}
