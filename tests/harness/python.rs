//! Compares the Python frames of a report with the true ones (`targets/python/truth.py`).

use crate::{
    report::{Frame, Report, ReportedSite},
    stacks,
};
use memtrace_common::{
    limits::MAX_FRAMES,
    python::{FILENAME, LINETABLE, NAME},
    unwind::End,
};
use serde::Deserialize;
use std::{collections::BTreeSet, fmt::Write, fs, path::Path};

/// A Python frame as the interpreter sees it itself.
#[derive(Clone, Debug, Deserialize)]
pub struct TrueFrame {
    pub function: String,
    pub file: String,
    pub line: u32,
    /// Bytes of its code's line table.
    pub linetable: usize,
    /// The native code between it and the next frame outward: [`NOTHING`], [`INTERPRETER`], the
    /// name of a function, or how the name of a library begins; `None`: the interpreter's, if any.
    pub caller: Option<String>,
}

const NOTHING: &str = "nothing";
const INTERPRETER: &str = "interpreter";

/// The allocations below a chain of Python frames.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "way", rename_all = "lowercase")]
pub enum Allocated {
    /// Blocks by `probe`, of a size that no other chain has.
    Probe { bytes: u64, count: u64 },
    /// The same by the interpreter itself, which may have blocks of this size elsewhere.
    Bare { bytes: u64, count: u64 },
    /// The allocations of a library whose name contains this, at any line of the leaf function and
    /// below.
    Library {
        library: String,
        /// Nothing else makes the library allocate.
        alone: bool,
    },
}

/// A chain of Python frames, leaf first.
#[derive(Clone, Debug, Deserialize)]
pub struct TrueChain {
    pub tgid: u32,
    #[serde(flatten)]
    pub allocated: Allocated,
    pub frames: Vec<TrueFrame>,
}

/// Reads a target's output.
#[track_caller]
pub fn read(path: &Path) -> Vec<TrueChain> {
    let text = fs::read_to_string(path).unwrap();
    let chains: Vec<_> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    assert!(!chains.is_empty(), "the target said nothing");
    chains
}

/// Sizes of blocks that the truth does not cover.
const WARM_UP: u64 = 999;

/// Processes that allocate below a Python frame `warm_up`.
pub fn warm(report: &Report) -> BTreeSet<u32> {
    let is_warm_up =
        |frame: &&Frame| frame.kind == PYTHON && frame.function.as_deref() == Some("warm_up");
    let sites = report.sites.iter();
    sites
        .filter(|site| site.frames.iter().any(|frame| is_warm_up(&frame)))
        .map(|site| site.tgid)
        .collect()
}

const PYTHON: &str = "python";
/// The function that runs Python code, if it has a name (parts of it may have none).
const EVALUATION: &str = "_PyEval_EvalFrameDefault";

impl Frame {
    fn is_python(&self) -> bool {
        self.kind == PYTHON
    }

    fn module_name(&self) -> &str {
        let path = self.module.as_deref().unwrap_or_default();
        path.rsplit('/').next().unwrap_or(path)
    }

    /// Of the interpreter, or of an extension module that belongs to it.
    fn is_interpreters(&self) -> bool {
        let name = self.module_name();
        let extension = || {
            let path = self.module.as_deref().unwrap_or_default();
            path.contains("/lib-dynload/")
        };
        name.starts_with("python") || name.starts_with("libpython") || extension()
    }

    fn is_evaluation(&self) -> bool {
        let function = self.function.as_deref().unwrap_or_default();
        !self.is_python() && function.starts_with(EVALUATION)
    }

    fn is_of(&self, caller: &str) -> bool {
        let rest = self.module_name().strip_prefix(caller);
        self.function.as_deref() == Some(caller)
            || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
    }
}

/// Whether this is the true text, or its beginning and `…` if it is longer than the copied bytes.
fn shows(reported: Option<&str>, truth: &str, most_bytes: usize) -> bool {
    // PEP 393: all characters of a string take as many bytes as the greatest.
    let width = match truth.chars().max().unwrap_or_default() {
        ..='\u{ff}' => 1,
        ..='\u{ffff}' => 2,
        _ => 4,
    };
    let most = most_bytes / width;
    let beginning = reported.and_then(|text| text.strip_suffix('…'));
    reported == Some(truth)
        || truth.chars().count() > most
            && beginning.is_some_and(|beginning| {
                truth.starts_with(beginning) && beginning.chars().count() + 1 >= most
            })
}

impl TrueFrame {
    fn is_in(&self, reported: &Frame) -> bool {
        shows(reported.function.as_deref(), &self.function, NAME)
            && shows(reported.file.as_deref(), &self.file, FILENAME)
    }

    /// A line is the true one, or unknown if the line table is longer than the copied bytes.
    fn is(&self, reported: &Frame) -> bool {
        let unknown = reported.line.is_none() && self.linetable > LINETABLE;
        self.is_in(reported) && (unknown || reported.line == Some(self.line))
    }

    /// Describes errors in the native frames between it and the next frame outward.
    fn wrong_caller(&self, natives: &[&Frame], outermost: bool) -> Option<&'static str> {
        let of_interpreter = || natives.iter().all(|frame| frame.is_interpreters());
        let fine = match self.caller.as_deref() {
            Some(NOTHING) => natives.is_empty(),
            Some(INTERPRETER) => !natives.is_empty() && of_interpreter(),
            Some(caller) => natives.iter().any(|frame| frame.is_of(caller)),
            None => outermost || of_interpreter(),
        };
        (!fine).then_some("not the native frames that called")
    }
}

/// A reported stack, and its Python frames by their position in it.
struct Stack<'a> {
    site: &'a ReportedSite,
    frames: Vec<&'a Frame>,
    python: Vec<usize>,
    /// Goes through the native function `probe`.
    is_probed: bool,
}

impl<'a> Stack<'a> {
    fn of(site: &'a ReportedSite) -> Self {
        let frames = site.physical();
        let (python, natives): (Vec<usize>, Vec<usize>) =
            (0..frames.len()).partition(|&at| frames[at].is_python());
        let mut natives = natives.into_iter().map(|at| &frames[at].function);
        Self {
            site,
            is_probed: natives.any(|name| name.as_deref() == Some("probe")),
            python,
            frames,
        }
    }

    fn python(&self) -> impl Iterator<Item = &'a Frame> {
        self.python.iter().map(|&at| self.frames[at])
    }

    /// Whether each block has this size.
    fn is_of(&self, bytes: u64) -> bool {
        let counts = &self.site.counts;
        counts.alloc_bytes == counts.alloc_count * bytes
    }

    fn is_below(&self, library: &str) -> bool {
        let mut natives = self.frames.iter().filter(|frame| !frame.is_python());
        natives.any(|frame| frame.module_name().contains(library))
    }

    /// Words that the kernel side wrote: two for a Python frame.
    fn words(&self) -> usize {
        self.frames.len() + self.python.len()
    }

    /// Describes errors in it, if it belongs to this chain.
    fn wrong(&self, truth: &[TrueFrame]) -> Option<&'static str> {
        let equal = self
            .python()
            .zip(truth)
            .all(|(frame, truth)| truth.is(frame));
        if !equal {
            return Some("other Python frames");
        }
        let complete = match self.site.end() {
            Some(End::Complete) => true,
            Some(End::Truncated) if (MAX_FRAMES - 1..=MAX_FRAMES).contains(&self.words()) => false,
            _ => return Some("it ends early"),
        };
        if complete && self.python.len() < truth.len() {
            return Some("Python frames are missing");
        }
        if self.python.len() > truth.len() {
            return Some("too many Python frames");
        }
        self.wrong_order(truth, complete)
    }

    fn wrong_order(&self, truth: &[TrueFrame], complete: bool) -> Option<&'static str> {
        let ends = self.python.iter().skip(1).copied();
        let ends = ends.chain([self.frames.len()]);
        for ((&at, end), truth) in self.python.iter().zip(ends).zip(truth) {
            let natives = &self.frames[at + 1..end];
            let outermost = end == self.frames.len();
            if outermost && !complete {
                break;
            }
            let wrong = truth.wrong_caller(natives, outermost);
            // Python code is run by the interpreter, whoever calls that.
            let run_by_others = natives
                .first()
                .is_some_and(|frame| !frame.is_interpreters());
            let wrong = wrong.or(run_by_others.then_some("not run by the interpreter"));
            if wrong.is_some() || outermost && natives.is_empty() {
                return wrong.or(Some("it does not go to the outermost frame"));
            }
        }
        let mut pairs = self.frames.windows(2);
        let runs_nothing = |pair: &[&Frame]| pair[1].is_evaluation() && !pair[0].is_python();
        let leaf = self
            .frames
            .first()
            .is_some_and(|frame| frame.is_evaluation());
        (leaf || pairs.any(runs_nothing)).then_some("an evaluation without Python frames")
    }

    fn describe(&self, text: &mut String) {
        let counts = &self.site.counts;
        let _ = write!(
            text,
            "\n  reported in {}, {} bytes in {} blocks, {}:",
            self.site.tgid,
            counts.alloc_bytes,
            counts.alloc_count,
            self.site.end().map_or("no stack", End::name)
        );
        for frame in &self.frames {
            let function = frame.function.as_deref().unwrap_or("?");
            let _ = match frame.is_python() {
                true => write!(
                    text,
                    "\n    {function:?} ({:?}:{:?})",
                    frame.file, frame.line
                ),
                false => write!(text, "\n      {} {function}", frame.module_name()),
            };
        }
    }
}

impl TrueChain {
    /// Differences to the stacks of its process; there is at least one.
    fn differences(&self, stacks: &[Stack], wrong: &mut Vec<String>) {
        let own = || stacks.iter().filter(|stack| stack.site.tgid == self.tgid);
        match &self.allocated {
            Allocated::Probe { bytes, count } => {
                let of_it = own().filter(|stack| stack.is_probed && stack.is_of(*bytes));
                let of_it: Vec<_> = of_it.collect();
                for stack in &of_it {
                    if let Some(what) = stack.wrong(&self.frames) {
                        wrong.push(self.described(what, Some(stack)));
                    }
                }
                self.expect_count(*count, &of_it, wrong);
            }
            Allocated::Bare { bytes, count } => {
                let of_it = own().filter(|stack| !stack.is_probed && stack.is_of(*bytes));
                let of_it = of_it.filter(|stack| stack.wrong(&self.frames).is_none());
                self.expect_count(*count, &of_it.collect::<Vec<_>>(), wrong);
            }
            Allocated::Library { library, alone } => {
                let mut direct = 0;
                for stack in own().filter(|stack| stack.is_below(library)) {
                    match self.calls_below(stack) {
                        Some(calls) => direct += usize::from(calls == 0),
                        None if !alone && self.is_of_others(stack) => (),
                        None => wrong.push(self.described("not below the function", Some(stack))),
                    }
                }
                if direct == 0 {
                    wrong.push(self.described("no allocation of the library", None));
                }
            }
        }
    }

    fn expect_count(&self, count: u64, stacks: &[&Stack], wrong: &mut Vec<String>) {
        let counts = stacks.iter().map(|stack| stack.site.counts.alloc_count);
        let reported: u64 = counts.sum();
        if reported != count {
            wrong.push(self.described(&format!("{reported} blocks are reported"), None));
        }
    }

    /// Number of Python frames below the leaf function of the chain, which the stack goes through.
    fn calls_below(&self, stack: &Stack) -> Option<usize> {
        let (leaf, callers) = self.frames.split_first()?;
        let calls = stack.python().position(|frame| leaf.is_in(frame))?;
        let outer: Vec<_> = stack.python().skip(calls + 1).collect();
        let equal = outer.len() == callers.len()
            && outer
                .iter()
                .zip(callers)
                .all(|(frame, truth)| truth.is(frame));
        (equal && stack.site.is_complete()).then_some(calls)
    }

    /// Not below the function: of other Python code, or of none where a process ends.
    fn is_of_others(&self, stack: &Stack) -> bool {
        let function = &self.frames[0];
        let mut natives = stack
            .frames
            .iter()
            .filter_map(|frame| frame.function.as_deref());
        !stack.python().any(|frame| function.is_in(frame))
            && (!stack.python.is_empty()
                || natives.any(|name| name.trim_start_matches("__GI_") == "exit"))
    }

    fn described(&self, what: &str, stack: Option<&Stack>) -> String {
        let mut text = format!("{what}\n  true in {}, {:?}:", self.tgid, self.allocated);
        for frame in &self.frames {
            let TrueFrame {
                function,
                file,
                line,
                ..
            } = frame;
            let _ = write!(text, "\n    {function:?} ({file:?}:{line})");
            if let Some(caller) = &frame.caller {
                let _ = write!(text, "\n      called from {caller}");
            }
        }
        if let Some(stack) = stack {
            stack.describe(&mut text);
        }
        text
    }
}

/// Describes errors in a report's Python frames.
///
/// Every true chain must be reported with all of its allocations, in stacks with exactly these
/// Python frames, in order, and with the native frames where they belong. No other stack through
/// `probe` may be reported.
pub fn differences(report: &Report, truth: &[TrueChain]) -> Vec<String> {
    let tgids: BTreeSet<_> = truth.iter().map(|chain| chain.tgid).collect();
    let sites = report.sites.iter();
    let stacks: Vec<_> = sites
        .filter(|site| tgids.contains(&site.tgid) && site.layer == "heap")
        .filter(|site| site.counts.alloc_count > 0)
        .map(Stack::of)
        .collect();
    let mut wrong = Vec::new();
    for chain in truth {
        chain.differences(&stacks, &mut wrong);
    }
    for stack in stacks.iter().filter(|stack| stack.is_probed) {
        let is_known = |chain: &TrueChain| match chain.allocated {
            Allocated::Probe { bytes, .. } => chain.tgid == stack.site.tgid && stack.is_of(bytes),
            _ => false,
        };
        if !stack.is_of(WARM_UP) && !truth.iter().any(is_known) {
            let mut text = "blocks of no true chain, or of several".to_owned();
            stack.describe(&mut text);
            wrong.push(text);
        }
    }
    wrong
}

/// Fails if a stack has Python frames that no true chain with its blocks has. Having none is not a
/// failure, except below the function `alone`: a thread that is in several interpreters gets none.
#[track_caller]
pub fn expect_none_wrong(report: &Report, truth: &[TrueChain], alone: &str) {
    let sites = report.sites.iter().filter(|site| site.layer == "heap");
    let stacks = sites.map(Stack::of);
    let with_python: Vec<_> = stacks
        .filter(|stack| stack.is_probed && !stack.is_of(WARM_UP) && !stack.python.is_empty())
        .collect();
    let mut wrong = Vec::new();
    let mut of_alone = 0;
    for chain in truth
        .iter()
        .filter(|chain| chain.frames[0].function == alone)
    {
        chain.differences(&with_python, &mut wrong);
        of_alone += 1;
    }
    assert!(of_alone > 0, "the target did not call {alone}");
    for stack in &with_python {
        let is_true = |chain: &TrueChain| {
            let bytes = match chain.allocated {
                Allocated::Probe { bytes, .. } | Allocated::Bare { bytes, .. } => bytes,
                Allocated::Library { .. } => return false,
            };
            chain.tgid == stack.site.tgid
                && stack.is_of(bytes)
                && stack.wrong(&chain.frames).is_none()
        };
        if !truth.iter().any(is_true) {
            let mut text = "Python frames of no true chain".to_owned();
            stack.describe(&mut text);
            wrong.push(text);
        }
    }
    stacks::expect_none(&wrong, truth.len(), report.sites.len());
}

/// Fails with the first of the [`differences`].
#[track_caller]
pub fn expect_same(report: &Report, truth: &[TrueChain]) {
    let wrong = differences(report, truth);
    stacks::expect_none(&wrong, truth.len(), report.sites.len());
}

#[cfg(test)]
#[path = "python_tests.rs"]
mod tests;
