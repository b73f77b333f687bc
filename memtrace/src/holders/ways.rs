//! The ways in which sampled blocks are held: paths of the same shape are one way, and the growing
//! container is where they diverge.

mod container;
mod named;

use self::named::{Named, are_elements};
use super::{
    circle,
    graph::{Graph, NodeId, Unreached},
    memory::{Live, Memory},
    native::{self, Native, RootKind},
    python::{self, Length, Python, Root, Shown},
    reference::Label,
    witness::{self, Origin, Witness, WitnessStep},
};
use crate::{
    hash::FastMap,
    ledger::SiteKey,
    recording::{Collector, PERHAPS_WEAK, Path, STRUCTURE, Step, StepKind, Way, WayKind},
};
use std::{cell::RefCell, cmp::Reverse, collections::HashMap};

/// A node is common to paths of one shape if this share of them goes through it.
const COMMON: f64 = 0.8;

/// The dict of attributes.
const NAMESPACE: &str = ".__dict__";

/// A word of a block, wherever in it.
const WORD: &str = "[word]";

/// From this many on, similar nodes in a row are shown as one.
const ALIKE: usize = 3;

/// The sources for the names of steps.
pub(super) struct Naming<'a> {
    pub(super) graph: &'a Graph<'a>,
    pub(super) native: &'a Native,
    pub(super) memory: &'a Live,
    /// The site of a block.
    pub(super) site_of: &'a dyn Fn(u64) -> Option<SiteKey>,
    /// Types only.
    pub(super) redact: bool,
    /// The sites of containers' own memory, as far as looked up.
    pub(super) buffers: RefCell<FastMap<u64, Option<SiteKey>>>,
}

/// Lengths of containers at one moment, by node.
pub(super) type Lengths = HashMap<NodeId, u64>;

/// Instead of a node: the table of functions that `atexit` calls.
const AT_EXIT: NodeId = NodeId::MAX;

/// Lengths of the containers on these paths.
pub(super) fn lengths<'a>(
    graph: &Graph<'_>,
    witnesses: impl Iterator<Item = &'a Witness>,
    memory: &dyn Memory,
) -> Lengths {
    let Some(python) = graph.python else {
        return Lengths::new();
    };
    let mut lengths = Lengths::new();
    for witness in witnesses {
        if is_at_exit(witness) && !lengths.contains_key(&AT_EXIT) {
            let length = python.at_exit_length(memory);
            lengths.extend(length.map(|length| (AT_EXIT, length)));
        }
        for WitnessStep { node, .. } in &witness.steps {
            if let Some(object) = graph.object(*node)
                && let Some(Length { value, .. }) = python.length(memory, object)
            {
                lengths.insert(*node, value);
            }
        }
    }
    lengths
}

fn is_at_exit(witness: &Witness) -> bool {
    matches!(witness.origin, Origin::Python(Root::AtExit))
}

/// How many elements a second each container got.
pub(super) fn growth(before: &Lengths, after: &Lengths, seconds: f64) -> HashMap<NodeId, f64> {
    let grown = after.iter().filter_map(|(node, after)| {
        let before = before.get(node)?;
        Some((*node, (*after as f64 - *before as f64) / seconds))
    });
    grown.collect()
}

/// Merges the witnesses of one site. `growth`: of the containers on them.
pub(super) fn ways(
    naming: &Naming<'_>,
    witnesses: &[&Witness],
    lengths: &Lengths,
    growth: &HashMap<NodeId, f64>,
) -> Vec<Way> {
    let mut shapes: Vec<(String, Option<Unreached>, Vec<Vec<Named>>)> = Vec::new();
    for witness in witnesses {
        let named = naming.steps(witness, lengths, growth);
        let why = match witness.origin {
            Origin::Unreached(why) => Some(why),
            _ => None,
        };
        // What keeps a path without a root is its first node.
        let shape = shape(match why {
            Some(_) => &named[..named.len().min(2)],
            None => &named,
        });
        match shapes.iter_mut().find(|(known, ..)| *known == shape) {
            Some((.., paths)) => paths.push(named),
            None => shapes.push((shape, why, vec![named])),
        }
    }
    let mut ways: Vec<Way> = shapes
        .into_iter()
        .map(|(_, why, paths)| Way {
            blocks: paths.len().try_into().unwrap_or(u32::MAX),
            held: naming.held(why, &paths),
        })
        .collect();
    ways.sort_by_key(|way| Reverse(way.blocks));
    ways
}

/// The shape of a path: equal for paths of the same way, whatever the indices and the lengths of lists.
fn shape(path: &[Named]) -> String {
    let mut shape = String::new();
    for (index, named) in path.iter().enumerate() {
        if index > 0 && named.is_like(&path[index - 1]) {
            continue;
        }
        let of_type = named.step.type_name.as_deref().unwrap_or_default();
        shape += &format!("{}:{of_type}\n", named.general);
    }
    shape
}

impl Naming<'_> {
    fn steps(
        &self,
        witness: &Witness,
        lengths: &Lengths,
        growth: &HashMap<NodeId, f64>,
    ) -> Vec<Named> {
        let mut named = vec![self.origin(&witness.origin)];
        let labels: Vec<Label> = witness.steps.iter().map(|step| step.link.label).collect();
        let mut rest = &witness.steps[..];
        let mut is_cached = false;
        if let ([first, after @ ..], Origin::Python(Root::Module(_))) = (rest, &witness.origin) {
            // The root has its name already.
            named[0].node = Some(first.node);
            rest = after;
        }
        if is_at_exit(witness) {
            named[0].step.length = lengths.get(&AT_EXIT).copied();
            named[0].step.growth_per_s = growth.get(&AT_EXIT).copied();
        }
        while let [WitnessStep { node, link }, after @ ..] = rest {
            let index = labels.len() - rest.len();
            let is_buffer = link.label == Label::Buffer;
            if is_buffer && after.is_empty() && self.has_container(witness, index) {
                break;
            }
            // A dict of attributes is not a step of its own: its values are attributes of its owner.
            let (taken, node) = match (link.label, after.first()) {
                (Label::Namespace, Some(attribute)) => (2, attribute.node),
                _ => (1, *node),
            };
            let next = labels.get(index + taken).copied();
            if let Label::Structure(offset) = link.label {
                named.push(structure(offset));
            }
            let mut step = self.step(node, &labels[index..index + taken], next);
            let is_in_block = named
                .last()
                .is_some_and(|of| of.step.kind == StepKind::Block);
            if is_in_block && link.label.is_word() {
                step.general = WORD.to_owned();
            }
            let holder = named.last().and_then(|of| of.node);
            if self.may_be_weak(holder, link.label, node) {
                step.general = PERHAPS_WEAK.to_owned();
                step.step.name = PERHAPS_WEAK.to_owned();
            }
            if let (Label::Local(_), Some(holder)) = (link.label, named.last()) {
                step.is_expression = local(&mut step, holder);
            }
            step.step.length = lengths.get(&node).copied();
            step.step.growth_per_s = growth.get(&node).copied();
            // The function has no items in Python.
            step.is_expression &= !std::mem::take(&mut is_cached);
            if link.label == python::OF_LRU
                && let Some(cache) = named.last_mut()
            {
                cache.be_cache(step);
                is_cached = true;
                rest = after;
                continue;
            }
            if (index..index + taken).contains(&witness::ENDS) {
                step.step.repeated += (witness.left_out / taken) as u64;
            }
            named.push(step);
            rest = &rest[taken..];
        }
        named
    }

    /// The class of the C++ object in a block, or the structure that the C++ library has there.
    fn type_of_block(&self, node: NodeId) -> Option<String> {
        let Native { types, modules, .. } = self.native;
        let of_type = types.type_of(self.memory, modules, self.graph.address(node));
        let structure = || {
            let block = self.graph.blocks.block(node as usize);
            native::node_of(self.memory, block).map(str::to_owned)
        };
        of_type.map(|name| name.to_string()).or_else(structure)
    }

    /// Whether a word that leads to a block may be that of a `std::weak_ptr`: to the counts of references, or to the object
    /// with those in the next word.
    fn may_be_weak(&self, holder: Option<NodeId>, label: Label, node: NodeId) -> bool {
        let Label::Word(offset) = label else {
            return false;
        };
        if self.graph.object(node).is_some() {
            return false;
        }
        let Native { types, modules, .. } = self.native;
        let next = || self.memory.word(self.graph.address(holder?) + offset + 8);
        let block = self.graph.blocks.block(node as usize);
        let mut places = [Some(block.start), next()].into_iter().flatten();
        let weak = places.find_map(|at| {
            let class = types.class_of(self.memory, modules, at)?;
            native::weak_references(self.memory, &class, at, block)
        });
        weak.is_some_and(|weak| weak > 0)
    }

    /// A block by its type alone.
    pub(super) fn block(&self, node: NodeId) -> Step {
        Step {
            type_name: self.type_of_block(node),
            ..Step::new(StepKind::Block, String::new())
        }
    }

    /// Whether the holder of step `index` is a container, whose own memory needs no step.
    fn has_container(&self, witness: &Witness, index: usize) -> bool {
        let holder = index.checked_sub(1).map(|index| witness.steps[index].node);
        let object = holder.and_then(|holder| self.graph.object(holder));
        let python = self.graph.python;
        object.is_some_and(|object| {
            python.is_some_and(|python| python.length(self.memory, object).is_some())
        })
    }

    fn origin(&self, origin: &Origin) -> Named {
        let (mut general, mut word) = (None, None);
        let (kind, name, is_expression) = match *origin {
            Origin::Python(root) => {
                let kind = match root {
                    Root::Module(_) => StepKind::Module,
                    Root::Frame { .. } => StepKind::Frame,
                    _ => StepKind::Interpreter,
                };
                let python = self.graph.python;
                let shown = python.map(|python| python.show_root(self.memory, root, self.redact));
                let (text, is_expression) = shown
                    .map(|shown| (shown.text, shown.is_expression))
                    .unwrap_or_default();
                (kind, text, is_expression)
            }
            Origin::Native(address, of_root) => {
                let kind = match self.native.roots.kind(of_root, address) {
                    RootKind::Global => StepKind::Global,
                    RootKind::ThreadLocal => StepKind::ThreadLocal,
                    RootKind::Stack => StepKind::Stack,
                    RootKind::Mapping => StepKind::Mapping,
                };
                word = Some(address);
                let modules = &self.native.modules;
                // The elements of an array.
                general = modules
                    .variable(address)
                    .filter(|_| kind == StepKind::Global);
                let name = self.native.roots.describe(self.memory, modules, address);
                (kind, name, false)
            }
            Origin::Register(register) => {
                let Native { roots, modules, .. } = self.native;
                let name = roots.describe_register(self.memory, modules, &register);
                (StepKind::Register, name, false)
            }
            Origin::Unreached(why) => (StepKind::Interpreter, format!("{why:?}"), false),
        };
        Named {
            general: general.unwrap_or_else(|| name.clone()),
            step: Step::new(kind, name),
            node: None,
            is_expression,
            word,
        }
    }

    fn step(&self, node: NodeId, labels: &[Label], next: Option<Label>) -> Named {
        let object = self.graph.object(node);
        let python = self.graph.python;
        let (name, is_expression) = match (python, labels) {
            (_, [Label::Word(0) | Label::Structure(_) | Label::Buffer]) => (String::new(), false),
            (_, [Label::Word(offset)]) => (at_offset(*offset), false),
            (Some(python), _) => {
                let shown = self.shown(python, labels, next);
                (shown.text, shown.is_expression)
            }
            (None, _) => (String::new(), false),
        };
        let general = match labels {
            [Label::Item(_)] => "[i]".to_owned(),
            [Label::Value(_)] => "[key]".to_owned(),
            // The elements of an array, and the nodes to the left and to the right in a tree.
            [Label::Word(_)] if object.is_none() => WORD.to_owned(),
            _ => name.clone(),
        };
        let (kind, type_name) = match object {
            Some(object) => (
                StepKind::Object,
                python.and_then(|python| python.type_name(self.memory, object)),
            ),
            None => (StepKind::Block, self.type_of_block(node)),
        };
        Named {
            general,
            step: Step {
                kind,
                name,
                type_name,
                length: None,
                limit: object.and_then(|object| python?.limit(self.memory, object)),
                growth_per_s: None,
                repeated: 1,
                buffer: match object {
                    Some(object) => self.buffer(object),
                    None => (self.site_of)(self.graph.address(node)),
                },
            },
            node: Some(node),
            is_expression,
            word: None,
        }
    }

    /// The labels of one step as Python would write them, before the label of the next one.
    fn shown(&self, python: &Python, labels: &[Label], next: Option<Label>) -> Shown {
        let show = |labels: &[Label]| python.show(self.memory, labels, self.redact);
        let (Some(next), [Label::Namespace, value]) = (next, labels) else {
            return show(labels);
        };
        // The attribute of a `staticmethod` is the function that it holds, not the object itself.
        let with_next = show(&[Label::Namespace, *value, next]);
        if !with_next.text.starts_with(NAMESPACE) {
            return show(labels);
        }
        let (dict, value) = (show(&[Label::Namespace]), show(&[*value]));
        Shown {
            text: dict.text + &value.text,
            is_expression: dict.is_expression && value.is_expression,
        }
    }

    /// The site of the memory that a container has of its own; of its earlier memory, if it grew after the recording.
    fn buffer(&self, object: u64) -> Option<SiteKey> {
        if let Some(known) = self.buffers.borrow().get(&object) {
            return *known;
        }
        let python = self.graph.python?;
        let length = python.length(self.memory, object)?.value;
        let mut site = None;
        python.references(self.memory, object, &mut |reference| {
            if reference.is_to_elements() && site.is_none() {
                let block = self.graph.blocks.containing(reference.target);
                let block = block.map(|block| self.graph.blocks.block(block));
                // The address may be recorded for another block.
                let block = block.filter(|block| self.native.is_current(self.memory, *block));
                site = block.and_then(|block| (self.site_of)(block.start));
            }
        });
        let earlier = || {
            let buffer = self.graph.buffers.get(&object)?;
            (self.site_of)(buffer.block).filter(|_| buffer.is_of(length))
        };
        let site = site.or_else(earlier);
        self.buffers.borrow_mut().insert(object, site);
        site
    }

    /// What CPython's collector does about cycles.
    pub(super) fn collector(&self) -> Collector {
        let python = self.graph.python;
        match python.is_some_and(|python| python.is_collecting(self.memory)) {
            true => Collector::On,
            false => Collector::Off,
        }
    }

    fn held(&self, why: Option<Unreached>, paths: &[Vec<Named>]) -> WayKind {
        match (why, paths) {
            (_, []) | (Some(Unreached::Unclear), _) => WayKind::Nothing,
            (None, _) => WayKind::Path(self.path(paths)),
            (Some(Unreached::Cycle), [first, ..]) => {
                WayKind::Cycle(self.collector(), self.circle(first))
            }
            (Some(Unreached::Frozen), [first, ..]) => {
                WayKind::Cycle(Collector::Frozen, self.circle(first))
            }
            (Some(why), [first, ..]) => {
                // The path begins with the object itself.
                let first = first[1..].to_vec();
                let path = Path {
                    container: None,
                    container_number: None,
                    expression: None,
                    ..self.path(&[first])
                };
                match why {
                    Unreached::Surplus => WayKind::Surplus(path),
                    _ => WayKind::Hidden(path),
                }
            }
        }
    }

    /// The circle of references that the first object of a path is in, if one is found.
    fn circle(&self, path: &[Named]) -> Path {
        let object = path.get(1).and_then(|of| of.node);
        let steps = object.map(|node| circle::through(self.graph, node, self.memory));
        let witness = Witness {
            origin: Origin::Unreached(Unreached::Cycle),
            steps: steps.unwrap_or_default(),
            head: None,
            left_out: 0,
        };
        let named = self.steps(&witness, &Lengths::new(), &HashMap::new());
        Path::of(named.into_iter().skip(1).map(|of| of.step).collect())
    }

    /// The first of the paths of one shape, with the differing parts left open. There is one.
    fn path(&self, paths: &[Vec<Named>]) -> Path {
        // The longest shows how many nodes a list has at least.
        let nodes = |path: &&Vec<Named>| path.iter().map(|named| named.step.repeated).sum::<u64>();
        let first = paths.iter().min_by_key(|path| Reverse(nodes(path)));
        let first = first.unwrap_or(&paths[0]);
        let shortest = paths.iter().min_by_key(nodes).map(Vec::as_slice);
        let common = common(first, paths);
        let root = &first[0];
        let mut roots = paths.iter().filter_map(|path| path.first());
        // Elements of an array, as the table of a hash map, or members of a structure.
        let differ = roots.any(|of| of.step.name != root.step.name);
        let words = paths.iter().filter_map(|path| path.first()?.word);
        let is_array = differ && are_elements(words.collect());
        let container = container::of(first, common).or(differ.then_some(0));
        let chain = container::chain(first, common).filter(|it| container == Some(*it.start()));
        let mut steps: Vec<Step> = Vec::new();
        let mut at = None;
        let mut row = 1;
        for (index, named) in first.iter().enumerate() {
            let mut step = named.step.clone();
            if index == 0 && differ {
                let element = if is_array { "[i]" } else { "" };
                step.name = format!("{}{element}", named.general);
            }
            if index > common && ["[i]", "[key]"].contains(&&*named.general) {
                step.name.clone_from(&named.general);
            }
            if index > common && named.general == WORD {
                step.name.clear();
            }
            // The line is that of the container whose length is shown, unless that one has moved.
            if index > common && step.kind == StepKind::Object && step.buffer.is_none() {
                let alike = paths.iter().filter(|path| path.len() == first.len());
                step.buffer = named::buffer_of_all(alike.map(|path| &path[index]));
            }
            row = match index > 0 && named.is_like(&first[index - 1]) {
                true => row + 1,
                false => 1,
            };
            // The container itself is shown, whatever is like it.
            let is_merged = match chain.as_ref().filter(|chain| chain.contains(&index)) {
                Some(chain) => index > chain.start() + 1,
                None => row >= ALIKE && container.is_none_or(|container| index > container),
            };
            if is_merged && let Some(last) = steps.last_mut() {
                last.repeated += step.repeated;
                continue;
            }
            if Some(index) == container {
                at = Some(steps.len());
            }
            steps.push(step);
        }
        Path {
            steps,
            container: at,
            // Several containers that are shown as one have the number of what they all hang in.
            container_number: container.and_then(|index| first[index.min(common)].node),
            expression: shortest.and_then(expression),
        }
    }
}

/// Writes a local variable as a Python expression if the holder is its frame; returns whether it is.
fn local(step: &mut Named, holder: &Named) -> bool {
    let frame = match holder.step.type_name.as_deref() {
        Some("frame") => "",
        Some("generator") => ".gi_frame",
        Some("coroutine") => ".cr_frame",
        Some("async_generator") => ".ag_frame",
        _ => return false,
    };
    let Some(name) = step.step.name.strip_prefix(": ") else {
        return false;
    };
    step.step.name = format!("{frame}.f_locals['{name}']");
    step.general.clone_from(&step.step.name);
    true
}

/// The last step of `first` that nearly all paths go through.
fn common(first: &[Named], paths: &[Vec<Named>]) -> usize {
    if paths.len() == 1 {
        return first.len() - 1;
    }
    let mut through: HashMap<NodeId, usize> = HashMap::new();
    for node in paths.iter().flatten().filter_map(|named| named.node) {
        *through.entry(node).or_default() += 1;
    }
    let is_common = |named: &Named| {
        let count = named.node.and_then(|node| through.get(&node)).copied();
        count.is_some_and(|count| count as f64 >= COMMON * paths.len() as f64)
    };
    first.iter().rposition(is_common).unwrap_or(0)
}

fn at_offset(offset: u64) -> String {
    format!("+{offset:#x}")
}

/// The structure in C that hangs in the word of an object at this offset.
fn structure(offset: u64) -> Named {
    let step = Step {
        type_name: Some(STRUCTURE.to_owned()),
        ..Step::new(StepKind::Block, at_offset(offset))
    };
    Named {
        general: step.name.clone(),
        step,
        node: None,
        is_expression: false,
        word: None,
    }
}

/// The path as an expression, if every part of it is one.
fn expression(path: &[Named]) -> Option<String> {
    path.iter()
        .all(|named| named.is_expression && named.step.repeated == 1)
        .then(|| path.iter().map(|named| named.step.name.as_str()).collect())
}
