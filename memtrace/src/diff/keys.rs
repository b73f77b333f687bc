//! The parts of a frame that are compared, at each level.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use super::{Level, Site, Stack, module_name, python_path::PythonPaths, symbol};
use crate::frames::{Frame, FrameKind};

/// Number of native frames that identify a leaf: it, its caller and that one's.
const LEAF_FRAMES: usize = 3;

/// One way to compare two stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Files and offsets, frame by frame.
    Exact,
    /// Functions of modules.
    Path,
    /// The same without inlined calls, which are known only with debug information.
    PhysicalPath,
    /// Some frames at the leaf, up to the nearest Python frame.
    Leaf,
    /// Functions if both have names, modules otherwise.
    KnownNames,
    /// Modules and Python functions.
    Modules,
}

impl Step {
    /// In the order in which they are tried.
    pub(super) const ALL: [Step; 6] = [
        Step::Exact,
        Step::Path,
        Step::PhysicalPath,
        Step::Leaf,
        Step::KnownNames,
        Step::Modules,
    ];

    pub(super) fn level(self) -> Level {
        match self {
            Step::Exact => Level::BuildId,
            Step::Path | Step::PhysicalPath => Level::Symbol,
            Step::Leaf => Level::Leaf,
            Step::KnownNames | Step::Modules => Level::Module,
        }
    }
}

/// A frame's numbers at each level; equal numbers mean equal frames.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    exact: u32,
    symbol: u32,
    known: u32,
    module: u32,
    /// The module is CPython itself.
    interpreter: bool,
}

/// Names of frames of two sides, each computed once.
pub(super) struct Keys<'a> {
    templates: bool,
    python: PythonPaths,
    /// Modules with the same single build on both sides, so that differing places in them really
    /// differ.
    same_builds: BTreeSet<String>,
    /// Modules by path.
    modules: HashMap<&'a str, String>,
    /// Functions by their full name.
    symbols: HashMap<&'a str, String>,
    /// By address: a recording has each frame once.
    numbers: [HashMap<*const Frame, Numbers>; 2],
    interned: HashMap<String, u32>,
}

impl<'a> Keys<'a> {
    pub(super) fn new(sides: [&'a [Site]; 2], templates: bool) -> Keys<'a> {
        let frames = |side: &'a [Site]| {
            let all = side.iter().flat_map(|site| site.stack.frames.iter());
            // Each once: stacks share frames.
            let mut known: HashSet<*const Frame> = HashSet::new();
            let first = move |frame: &&Arc<Frame>| known.insert(Arc::as_ptr(frame));
            all.filter(first).map(Arc::as_ref)
        };
        let mut modules: HashMap<&str, String> = HashMap::new();
        let mut builds: [BTreeMap<String, BTreeSet<Option<&str>>>; 2] = Default::default();
        for (side, builds) in sides.into_iter().zip(&mut builds) {
            for frame in frames(side) {
                let Some(path) = frame.module.as_deref() else {
                    continue;
                };
                let name = modules
                    .entry(path)
                    .or_insert_with(|| module_name::normalise(path).0);
                let known = builds.entry(name.clone()).or_default();
                known.insert(frame.build_id.as_deref());
            }
        }
        let [baseline, new] = builds;
        let same = |(name, builds): (String, BTreeSet<Option<&str>>)| {
            let one = builds.len() == 1 && !builds.contains(&None);
            (one && new.get(&name) == Some(&builds)).then_some(name)
        };
        let python = sides.map(|side| {
            frames(side)
                .filter(|frame| frame.kind == FrameKind::Python)
                .filter_map(|frame| frame.file.as_deref())
                .collect()
        });
        Keys {
            templates,
            python: PythonPaths::new(python),
            same_builds: baseline.into_iter().filter_map(same).collect(),
            modules,
            symbols: HashMap::new(),
            numbers: Default::default(),
            interned: HashMap::new(),
        }
    }

    /// The parts of a site's stack that `step` compares.
    pub(super) fn path(&mut self, side: usize, site: &'a Site, step: Step) -> Vec<u32> {
        if step == Step::Exact {
            let physical = site.stack.frames.iter().filter(|frame| !frame.inlined);
            return physical.map(|frame| self.of(side, frame).exact).collect();
        }
        let shown = site.stack.shown();
        match step {
            Step::Exact | Step::Path => self.each(side, &shown, |numbers| numbers.symbol),
            Step::PhysicalPath => {
                let physical: Vec<_> = shown.into_iter().filter(|frame| !frame.inlined).collect();
                self.each(side, &physical, |numbers| numbers.symbol)
            }
            Step::Leaf => {
                let python = shown.iter().position(|frame| frame.is_python());
                let native = python.unwrap_or(shown.len()).min(LEAF_FRAMES);
                let leaf = shown.iter().take(native).copied();
                let leaf: Vec<_> = leaf.chain(python.map(|at| shown[at])).collect();
                self.each(side, &leaf, |numbers| numbers.symbol)
            }
            Step::KnownNames => self.each(side, &shown, |numbers| numbers.known),
            Step::Modules => {
                // The frames that start an interpreter are not the program's, and its own functions
                // differ.
                let outermost = shown.iter().rposition(|frame| frame.is_python());
                let end = outermost.map_or(shown.len(), |at| at + 1);
                let numbers = shown[..end].iter().map(|frame| self.of(side, frame));
                let mut modules: Vec<u32> = numbers
                    .filter(|numbers| outermost.is_none() || !numbers.interpreter)
                    .map(|numbers| numbers.module)
                    .collect();
                modules.dedup();
                modules
            }
        }
    }

    /// The source lines of the frames that `step` compares, if it compares functions.
    pub(super) fn lines(site: &Site) -> Vec<Option<u32>> {
        site.stack.shown().iter().map(|frame| frame.line).collect()
    }

    fn each(&mut self, side: usize, frames: &[&'a Frame], of: fn(Numbers) -> u32) -> Vec<u32> {
        frames
            .iter()
            .map(|frame| of(self.of(side, frame)))
            .collect()
    }

    fn of(&mut self, side: usize, frame: &'a Frame) -> Numbers {
        if let Some(numbers) = self.numbers[side].get(&std::ptr::from_ref(frame)) {
            return *numbers;
        }
        let numbers = match frame.kind {
            FrameKind::Python => self.of_python(side, frame),
            FrameKind::Native => self.of_native(frame),
        };
        self.numbers[side].insert(std::ptr::from_ref(frame), numbers);
        numbers
    }

    fn of_python(&mut self, side: usize, frame: &Frame) -> Numbers {
        let file = frame.file.as_deref().unwrap_or_default();
        let file = self.python.name(side, file);
        let file = file
            .strip_suffix(".pyc")
            .map_or(file.clone(), |stem| format!("{stem}.py"));
        let name = frame.function.as_deref().unwrap_or_default();
        // Before 3.11 only the last part of a qualified name is known.
        let own = name.rsplit('.').next().unwrap_or(name);
        let symbol = self.intern(format!("p {file} {name}"));
        Numbers {
            exact: self.intern(format!("p {file} {name} {:?}", frame.line)),
            symbol,
            known: symbol,
            module: self.intern(format!("P {file} {own}")),
            interpreter: false,
        }
    }

    fn of_native(&mut self, frame: &'a Frame) -> Numbers {
        let path = frame.module.as_deref().unwrap_or_default();
        let module = self.modules.get(path).cloned().unwrap_or_default();
        let build = frame.build_id.as_deref();
        let place = format!("{} {:?}", build.unwrap_or(path), frame.file_offset);
        let symbol = match &frame.function {
            Some(function) => {
                let templates = self.templates;
                let name = self.symbols.entry(function).or_insert_with(|| {
                    let (name, _) = symbol::normalise(function, templates);
                    name
                });
                format!("s {module} {name}")
            }
            // Nothing to compare but the place.
            None => format!("o {place}"),
        };
        let same_build = self.same_builds.contains(&module);
        let only_module = format!("m {module}");
        let known = match frame.function.is_none() && !same_build {
            true => &only_module,
            false => &symbol,
        };
        // Places in generated code mean nothing elsewhere.
        let exact = match (build, frame.file_offset) {
            (Some(_), Some(_)) => format!("o {place}"),
            _ => format!("o {place} {:?}", frame.function),
        };
        Numbers {
            exact: self.intern(exact),
            known: self.intern(known.clone()),
            module: self.intern(if same_build {
                symbol.clone()
            } else {
                only_module
            }),
            symbol: self.intern(symbol),
            interpreter: module == module_name::PYTHON,
        }
    }

    fn intern(&mut self, text: String) -> u32 {
        let next = u32::try_from(self.interned.len()).unwrap_or(u32::MAX);
        *self.interned.entry(text).or_insert(next)
    }
}

/// The normalised names on a stack, for sites on one kind of machine.
pub(super) fn names(stack: &Stack, templates: bool) -> Vec<(String, String)> {
    let name = |frame: &&Frame| {
        let place = frame.module.as_deref().or(frame.file.as_deref());
        let module = module_name::normalise(place.unwrap_or_default()).0;
        let function = match &frame.function {
            Some(function) => symbol::normalise(function, templates).0,
            None => format!("{:?} {:?}", frame.build_id, frame.file_offset),
        };
        (module, function)
    };
    stack.shown().iter().map(name).collect()
}
