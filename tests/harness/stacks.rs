//! Compares the stacks of a report with the true ones.

use crate::report::{Frame, Report, ReportedSite};
use memtrace_common::{limits::MAX_FRAMES, unwind::End};
use serde::Deserialize;
use std::{collections::BTreeSet, fmt::Write, fs, path::Path};

/// A file, and the offset in it of one byte of a call (of the instruction itself, where a
/// signal interrupted it).
pub type Place = (String, u64);

/// A stack below which a target allocated, as the target reports it.
#[derive(Clone, Debug, Deserialize)]
pub struct TrueStack {
    pub tgid: u32,
    pub layer: String,
    /// Functions known by construction, see `targets/stacks/probe.h`.
    pub path: String,
    /// All that was allocated there; no other stack allocated as much each time.
    pub bytes: u64,
    pub count: u64,
    /// As the compiler's unwinder sees it, from the caller of `probe` outward; empty if there is none.
    pub frames: Vec<Place>,
}

/// A stack that may end early, and how.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    /// How its [`TrueStack::path`] begins.
    pub path: &'static str,
    pub end: End,
}

/// Reads a target's output.
#[track_caller]
pub fn read(path: &Path) -> Vec<TrueStack> {
    let text = fs::read_to_string(path).unwrap();
    let stacks: Vec<_> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    assert!(!stacks.is_empty(), "the target said nothing");
    stacks
}

/// The function of the targets that allocates, and all the targets' stacks lead to.
const PROBE: &str = "probe";

/// Where complete stacks end, without leading underscores: programs, threads, coroutines,
/// and the dynamic linkers of glibc and musl.
const OUTERMOST: [&str; 6] = [
    "start",
    "clone",
    "clone3",
    "start_context",
    "dl_start_user",
    "dlstart",
];

/// A function's own name: without namespaces, types, arguments and compilers' suffixes.
fn plain(function: &str) -> &str {
    let function = function
        .strip_prefix("(anonymous namespace)::")
        .unwrap_or(function);
    let name = function.split('(').next().unwrap_or(function);
    let name = match name.rsplit_once("::") {
        // Rust's hash.
        Some((rest, hash)) if hash.len() == 17 && hash.starts_with('h') => rest,
        _ => name,
    };
    let name = name.rsplit("::").next().unwrap_or(name);
    name.split('.').next().unwrap_or(name)
}

/// Whether functions, from the leaf outward, match a path.
fn follows<'a>(path: impl Iterator<Item = &'a str> + Clone, functions: &[&str]) -> bool {
    let mut rest = path;
    match (rest.next(), functions) {
        (None, functions) => functions.is_empty(),
        (Some("*"), functions) => {
            (0..=functions.len()).any(|skipped| follows(rest.clone(), &functions[skipped..]))
        }
        (Some(name), [first, functions @ ..]) => name == *first && follows(rest, functions),
        (Some(_), []) => false,
    }
}

impl TrueStack {
    fn is_followed_by(&self, functions: &[&str]) -> bool {
        follows(self.path.split('<'), functions)
    }

    /// Whether functions match the path up to one of its `*`, which stands for other people's code
    /// and may have no call frame information.
    fn is_followed_to_others(&self, functions: &[&str]) -> bool {
        let ends = self
            .path
            .match_indices('*')
            .map(|(at, star)| at + star.len());
        ends.into_iter()
            .any(|end| follows(self.path[..end].split('<'), functions))
    }

    /// Its allocations are those of all these.
    fn is_all_of(&self, reported: &[&Probed]) -> bool {
        let of_it = reported.iter().filter(|reported| {
            let counts = &reported.site.counts;
            // Each stack has a size of its own.
            (reported.site.tgid, &reported.site.layer) == (self.tgid, &self.layer)
                && counts.alloc_bytes * self.count == counts.alloc_count * self.bytes
        });
        let total = of_it.fold((0, 0), |(bytes, count), reported| {
            let counts = &reported.site.counts;
            (bytes + counts.alloc_bytes, count + counts.alloc_count)
        });
        total == (self.bytes, self.count)
    }

    /// How its walk may end, other than at its outermost frame.
    fn gap(&self, gaps: &[Gap]) -> Option<End> {
        let known = gaps.iter().find(|gap| self.path.starts_with(gap.path));
        // `probe` is a frame too.
        let too_deep = self.frames.len() >= MAX_FRAMES;
        known
            .map(|gap| gap.end)
            .or(too_deep.then_some(End::Truncated))
    }
}

/// A reported stack that leads to `probe`.
struct Probed<'a> {
    site: &'a ReportedSite,
    /// From the caller of `probe` outward.
    frames: Vec<&'a Frame>,
    functions: Vec<&'a str>,
}

impl<'a> Probed<'a> {
    fn of(site: &'a ReportedSite) -> Option<Self> {
        let physical = site.physical();
        let name = |frame: &&'a Frame| frame.function.as_deref().map_or("?", plain);
        let probe = physical.iter().position(|frame| name(frame) == PROBE)?;
        let frames = physical[probe + 1..].to_vec();
        Some(Self {
            site,
            functions: frames.iter().map(name).collect(),
            frames,
        })
    }

    fn is_of(&self, truth: &TrueStack) -> bool {
        (self.site.tgid, &self.site.layer) == (truth.tgid, &truth.layer)
            && (self.site.counts.alloc_bytes, self.site.counts.alloc_count)
                == (truth.bytes, truth.count)
    }

    /// Its allocations are those of all these, which look the same where a walk ends early.
    fn is_all_of<'t>(&self, truth: impl Iterator<Item = &'t TrueStack>) -> bool {
        let total = truth.fold((0, 0), |(bytes, count), stack| {
            (bytes + stack.bytes, count + stack.count)
        });
        (self.site.counts.alloc_bytes, self.site.counts.alloc_count) == total
    }

    /// The frames, as far as there are any, are the true ones.
    fn agrees(&self, truth: &TrueStack) -> bool {
        self.frames.len() <= truth.frames.len()
            && self
                .frames
                .iter()
                .zip(&truth.frames)
                .all(|(frame, (module, offset))| {
                    frame.module.as_ref() == Some(module) && frame.file_offset == Some(*offset)
                })
    }

    fn equals(&self, truth: &TrueStack) -> bool {
        let complete = self.site.is_complete();
        match (truth.frames.is_empty(), complete) {
            (true, true) => truth.is_followed_by(&self.functions),
            (true, false) => truth.is_followed_to_others(&self.functions),
            (false, _) => {
                complete
                    && self.frames.len() == truth.frames.len()
                    && self.agrees(truth)
                    && truth.is_followed_by(&self.functions)
            }
        }
    }

    fn is_cut(&self, truth: &TrueStack) -> bool {
        !self.site.is_complete() && !truth.frames.is_empty() && self.agrees(truth)
    }

    fn describe(&self, text: &mut String) {
        let counts = &self.site.counts;
        let _ = write!(
            text,
            "\n  reported, {} bytes in {} blocks, {}:",
            counts.alloc_bytes,
            counts.alloc_count,
            self.site.end().map_or("no stack", End::name)
        );
        for (frame, function) in self.frames.iter().zip(&self.functions) {
            let module = frame.module.as_deref().unwrap_or("?");
            let _ = write!(
                text,
                "\n    {module}+{:#x} {function}",
                frame.file_offset.unwrap_or_default()
            );
        }
    }
}

fn describe(truth: &TrueStack, text: &mut String) {
    let _ = write!(
        text,
        "\n  true, of {}, {} bytes in {} blocks:",
        truth.path, truth.bytes, truth.count
    );
    for (module, offset) in &truth.frames {
        let _ = write!(text, "\n    {module}+{offset:#x}");
    }
}

/// Describes errors in a report's stacks.
///
/// Every true stack must be reported with all of its allocations, and complete unless it is one of
/// `gaps` or deeper than recorded stacks. Every reported stack must be a true one, or marked
/// incomplete and the beginning of a true one.
pub fn differences(report: &Report, truth: &[TrueStack], gaps: &[Gap]) -> Vec<String> {
    let tgids: BTreeSet<_> = truth.iter().map(|stack| stack.tgid).collect();
    let sites = || {
        let sites = report.sites.iter();
        sites.filter(|site| tgids.contains(&site.tgid) && site.counts.alloc_count > 0)
    };
    let probed: Vec<_> = sites().filter_map(Probed::of).collect();
    let mut wrong = Vec::new();

    for stack in truth {
        // Truth that has only functions cannot distinguish the places in them.
        let alike: Vec<_> = probed
            .iter()
            .filter(|reported| stack.frames.is_empty() && reported.equals(stack))
            .collect();
        let accepted = |reported: &Probed| {
            (reported.is_of(stack) && reported.equals(stack))
                || reported.is_cut(stack)
                    && stack.gap(gaps).is_some()
                    && reported.site.end() == stack.gap(gaps)
                    && reported.is_all_of(truth.iter().filter(|other| reported.is_cut(other)))
        };
        if !stack.is_all_of(&alike) && !probed.iter().any(accepted) {
            let mut text = "a true stack that is not reported".to_owned();
            describe(stack, &mut text);
            for reported in probed.iter().filter(|reported| reported.is_of(stack)) {
                reported.describe(&mut text);
            }
            wrong.push(text);
        }
    }
    for reported in &probed {
        let mut own = truth
            .iter()
            .filter(|stack| stack.tgid == reported.site.tgid);
        if !own.any(|stack| reported.equals(stack) || reported.is_cut(stack)) {
            let mut text = "a reported stack that is not true".to_owned();
            reported.describe(&mut text);
            wrong.push(text);
        }
    }
    for site in sites().filter(|site| site.is_complete() && Probed::of(site).is_none()) {
        let physical = site.physical();
        // A library without symbols does not reveal its functions.
        let outermost = physical.last().and_then(|frame| frame.function.as_deref());
        let known = |name: &str| OUTERMOST.contains(&plain(name).trim_start_matches('_'));
        if physical.is_empty() || outermost.is_some_and(|name| !known(name)) {
            wrong.push(format!(
                "a stack that does not reach the outermost frame, and does not say so: {physical:#?}"
            ));
        }
    }
    wrong
}

/// Differences that a failure shows.
const SHOWN: usize = 12;

/// Fails with the first of the [`differences`].
#[track_caller]
pub fn expect_same(report: &Report, truth: &[TrueStack], gaps: &[Gap]) {
    let wrong = differences(report, truth, gaps);
    expect_none(&wrong, truth.len(), report.sites.len());
}

/// Fails with the first of these differences.
#[track_caller]
pub(crate) fn expect_none(wrong: &[String], truth: usize, reported: usize) {
    assert!(
        wrong.is_empty(),
        "{} of {truth} true and {reported} reported stacks:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(SHOWN)].join("\n")
    );
}

#[cfg(test)]
#[path = "stacks_tests.rs"]
mod tests;
