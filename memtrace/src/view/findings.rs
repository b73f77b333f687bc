//! Answers a reader's first questions: which processes grow, which line allocates, which line
//! keeps. Sites of one line or of one keeper are one finding, and so are processes that behave the same.

mod named;
mod processes;

use std::collections::{HashMap, HashSet};

pub(crate) use self::{
    named::Named,
    processes::{place, row},
};
use self::{
    named::named,
    processes::{at_once, growing_below, replaced, replaced_by},
};
use super::Filter;
use crate::{
    analysis::{
        account::Term,
        series::{self, Place},
        verdict::{
            Absent, Advice, Class, Diagnosis, How, Keeper, Pool, REPORTED, Scope, Types, Verdict,
        },
    },
    event::Layer,
    frames::{Frame, callers, is_of_language, is_of_program, library_call, own_line},
    ledger::{ProcessId, SiteKey},
};

/// A share of the fastest leak, and bytes per second, that do not matter beside it.
const MINOR: f64 = 0.02;
const LITTLE: f64 = 8.0 * 1024.0;

/// A verdict on a process, or on several that do the same, with the lines behind it.
#[derive(Debug)]
pub(crate) struct Finding<'a> {
    /// The verdict on its fastest growing process.
    pub(crate) verdict: &'a Verdict,
    /// Verdicts on all its processes.
    pub(crate) processes: Vec<&'a Verdict>,
    /// The part of the growth of its processes that is of the same time: others begin when some end.
    at_once: f64,
    /// If all its processes come and go: how many of their kind ended while others took their place.
    pub(crate) replaced: Option<u64>,
    /// Processes that grow and were started, directly or not, by processes of this finding, which
    /// do not.
    pub(crate) growing_below: Vec<u32>,
    /// The fastest growing first; empty if no site is behind it.
    pub(crate) lines: Vec<Line<'a>>,
    /// What certainly keeps most of Python's objects that become more.
    pub(crate) keeps_objects: Option<&'a Keeper>,
    /// Where to look if no line is behind it.
    pub(crate) named: Option<Named<'a>>,
    /// A suppression hides all sites behind it.
    pub(crate) is_suppressed: bool,
}

/// The sites of one line, or of several lines whose blocks one container keeps, taken together.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    /// The one that allocates most. `None`: its stack is lost.
    pub(crate) allocates: Option<&'a Frame>,
    /// The caller that leaks, if the line allocates for others, too.
    pub(crate) called_by: Option<&'a Frame>,
    /// The program's functions that called it, the nearest first.
    pub(crate) callers: Vec<&'a Frame>,
    /// The runtime whose own code requested it for its heap.
    pub(crate) runtime: Option<&'static str>,
    /// The function of a library that the line called for it.
    pub(crate) calls: Option<&'a Frame>,
    /// The other lines, the fastest first.
    pub(crate) others: Vec<Part<'a>>,
    pub(crate) keeper: Option<&'a Keeper>,
    /// Why it is not known.
    pub(crate) absent: Option<&'a Absent>,
    /// The container that keeps the blocks, if that is certain.
    pool: Option<Pool>,
    /// Whether these are arenas of Python.
    pub(crate) are_arenas: bool,
    /// Bytes per second.
    pub(crate) bytes: f64,
    /// Blocks per second, of the largest site of each process.
    pub(crate) blocks: f64,
    /// Bytes per second of free space that its blocks hold open.
    pub(crate) holes: f64,
    /// Advice on what to try.
    pub(crate) next: &'a [Advice],
}

/// One of several lines whose blocks one container keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Part<'a> {
    pub(crate) allocates: Option<&'a Frame>,
    /// Whether these are arenas of Python.
    pub(crate) are_arenas: bool,
    /// Bytes per second.
    pub(crate) bytes: f64,
}

impl<'a> Line<'a> {
    /// The lines that allocate, as far as they are known.
    pub(crate) fn allocating(&self) -> impl Iterator<Item = &'a Frame> + use<'a, '_> {
        let others = self.others.iter().map(|of| of.allocates);
        [self.allocates].into_iter().chain(others).flatten()
    }

    /// Any line may need the next arena: one that allocates many of the blocks says more.
    fn put_arenas_last(&mut self) {
        /// A container's own memory takes less than what it keeps.
        const MANY: f64 = 0.1;
        let many = MANY * self.bytes;
        let of_others: f64 = self.others.iter().map(|of| of.bytes).sum();
        let other = self
            .others
            .iter_mut()
            .find(|of| !of.are_arenas && of.bytes >= many);
        if let Some(other) = other.filter(|_| self.are_arenas) {
            std::mem::swap(&mut self.allocates, &mut other.allocates);
            std::mem::swap(&mut self.are_arenas, &mut other.are_arenas);
            // Those were of the line of arenas.
            (self.called_by, self.calls, self.callers) = (None, None, vec![]);
            other.bytes = self.bytes - of_others;
        }
    }

    /// What was seen to keep objects comes before a guess about arenas.
    fn prefer(&mut self, seen: &'a Keeper) {
        let is_guess = |of: &Keeper| matches!(of.how, How::Container(_));
        if self.are_arenas && seen.is_certain() && self.keeper.is_none_or(is_guess) {
            self.keeper = Some(seen);
        }
    }

    /// Whether arenas of Python are among its blocks.
    pub(crate) fn has_arenas(&self) -> bool {
        self.are_arenas || self.others.iter().any(|of| of.are_arenas)
    }

    /// Whether another one is of the same code in a process that ended before its memory could be searched.
    fn is_known_of(&self, other: &Self) -> bool {
        let has_ended = matches!(other.absent, Some(Absent::Ended)) && other.keeper.is_none();
        let is_here = |frame: &Frame| self.allocating().any(|of| of.shown() == frame.shown());
        has_ended && other.allocating().any(is_here)
    }

    fn scale(&mut self, by: f64) {
        let others = self.others.iter_mut().map(|of| &mut of.bytes);
        let own = [&mut self.bytes, &mut self.blocks, &mut self.holes];
        own.into_iter().chain(others).for_each(|rate| *rate *= by);
    }

    /// Adds another one of the same code; `blocks` combines the rates of blocks.
    fn absorb(&mut self, line: Self, blocks: fn(f64, f64) -> f64) {
        if line.bytes > self.bytes {
            self.are_arenas = line.are_arenas;
        }
        self.sum(&line, blocks);
        for part in line.others {
            let mut others = self.others.iter_mut();
            match others.find(|of| {
                of.are_arenas == part.are_arenas && are_same(of.allocates, part.allocates)
            }) {
                Some(of) => of.bytes += part.bytes,
                None => self.others.push(part),
            }
        }
        let surest = surer(self.keeper, line.keeper);
        if surest.is_some() && surest == line.keeper {
            (self.next, self.pool) = (line.next, line.pool);
        }
        self.keeper = surest;
    }

    /// Adds the rates of another one; `blocks` combines those of blocks.
    fn sum(&mut self, other: &Self, blocks: fn(f64, f64) -> f64) {
        self.bytes += other.bytes;
        self.blocks = blocks(self.blocks, other.blocks);
        self.holes += other.holes;
    }
}

impl<'a> Finding<'a> {
    /// Growth of all its processes together, or of the machine, bytes per second; `None` if it is not about bytes.
    pub(crate) fn rate(&self) -> Option<f64> {
        let rates = self.processes.iter().filter_map(|verdict| verdict.rate);
        match self.verdict.class.is_of_machine() {
            true => rates.reduce(f64::max),
            false => rates
                .reduce(|sum, rate| sum + rate)
                .map(|sum| sum * self.at_once),
        }
    }

    /// The line to blame: its lines have enough of the growth.
    pub(crate) fn blamed(&self) -> Option<&Line<'a>> {
        let lines = self.lines.iter();
        let bytes: f64 = lines.map(|line| line.bytes + line.holes).sum();
        let is_enough = self.rate().is_none_or(|rate| bytes >= REPORTED * rate);
        self.lines.first().filter(|_| is_enough)
    }

    /// Whether the verdict reports growth.
    pub(crate) fn is_growth(&self) -> bool {
        !self.is_suppressed && !matches!(self.verdict.class, Class::None | Class::Undetermined)
    }

    /// Adds processes that ended before they could be searched.
    fn take(&mut self, ended: Finding<'a>) {
        let speed = |verdict: &Verdict| verdict.rate.unwrap_or(0.0);
        if speed(ended.verdict) > speed(self.verdict) {
            self.verdict = ended.verdict;
        }
        self.processes.extend(ended.processes);
        for line in ended.lines {
            match self.lines.iter_mut().find(|of| of.is_known_of(&line)) {
                Some(known) => known.absorb(line, |a, b| a + b),
                None => add(&mut self.lines, line, |a, b| a + b),
            }
        }
    }

    /// Whether it grows so little that it does not matter beside a leak in the same memory.
    pub(crate) fn is_minor(&self, all: &[Finding]) -> bool {
        let is_leak = |of: &&Finding| of.is_growth() && of.verdict.class.is_leak();
        let leaks = all.iter().filter(is_leak);
        let beside = leaks.filter(|of| place(of.verdict) == place(self.verdict));
        let fastest = beside.filter_map(Finding::rate).fold(0.0, f64::max);
        let rate = self.rate().filter(|rate| *rate > 0.0 && self.is_growth());
        rate.is_some_and(|rate| rate < LITTLE.min(MINOR * fastest))
    }

    /// The order in which findings are shown. Nothing is known of a process that was hardly observed.
    fn rank(&self) -> (u8, f64) {
        let kind = match self.verdict.class {
            Class::GpuOutOfMemory => 0,
            Class::GpuUnused => 2,
            Class::None => 3,
            Class::Undetermined if self.rate().is_none() => 4,
            _ => 1,
        };
        let rate = self.rate().filter(|_| kind == 1 && !self.is_suppressed);
        (kind, -rate.unwrap_or(0.0).max(0.0))
    }
}

/// Findings of the processes that the filter leaves, those that grow first.
pub(crate) fn findings<'a>(found: &'a Diagnosis, filter: &Filter) -> Vec<Finding<'a>> {
    let verdicts = found.verdicts.iter();
    let covered = verdicts.filter(|verdict| filter.pid.is_none_or(|pid| pid == verdict.tgid));
    let mut of_processes: Vec<&Verdict> = covered
        .filter(|verdict| verdict.scope == Scope::Process)
        .collect();
    let mut sites: HashMap<ProcessId, Vec<&Verdict>> = HashMap::new();
    for verdict in &found.verdicts {
        sites.entry(verdict.process).or_default().push(verdict);
    }
    let speed = |verdict: &Verdict| verdict.rate.unwrap_or(0.0);
    of_processes.sort_by(|a, b| speed(b).total_cmp(&speed(a)));
    // With their processes.
    let mut findings: Vec<(Finding, HashSet<ProcessId>)> = Vec::new();
    for verdict in of_processes {
        let mut lines = lines(found, verdict, &sites[&verdict.process]);
        let types = found.types.get(&verdict.process);
        let keeps_objects = types.and_then(|types| types.keeper.as_ref());
        if let (Some(first), Some(seen)) = (lines.first_mut(), keeps_objects) {
            first.prefer(seen);
        }
        let is_suppressed = lines.is_empty() && has_suppressed(found, verdict);
        let alike = findings.iter_mut().find(|(known, processes)| {
            known.verdict.class == verdict.class
                && known.is_suppressed == is_suppressed
                && place(known.verdict) == place(verdict)
                && !processes.contains(&verdict.process)
                && do_the_same(found, known, verdict, &lines)
        });
        match alike {
            Some((known, processes)) => {
                processes.insert(verdict.process);
                known.processes.push(verdict);
                for line in lines {
                    add(&mut known.lines, line, |a, b| a + b);
                }
            }
            None => {
                let finding = Finding {
                    verdict,
                    processes: vec![verdict],
                    at_once: 1.0,
                    replaced: None,
                    growing_below: vec![],
                    lines,
                    keeps_objects,
                    named: named(found, verdict).filter(|_| !is_suppressed),
                    is_suppressed,
                };
                findings.push((finding, HashSet::from([verdict.process])));
            }
        }
    }
    let findings = findings.into_iter().map(|(finding, _)| finding);
    let mut findings: Vec<Finding> = findings.collect();
    merge_ended(&mut findings);
    for finding in &mut findings {
        finding.at_once = at_once(found, &finding.processes);
        finding.replaced = replaced(found, &finding.processes);
        let lines = finding.lines.iter_mut();
        lines.for_each(|line| line.scale(finding.at_once));
        if finding.verdict.class == Class::None {
            finding.growing_below = growing_below(found, &finding.processes);
        }
    }
    findings.sort_by(|a, b| {
        let ((kind, rate), (other, of_other)) = (a.rank(), b.rank());
        kind.cmp(&other).then(rate.total_cmp(&of_other))
    });
    findings
}

/// Puts processes that ended before they could be searched to others that leak at the same code.
fn merge_ended(findings: &mut Vec<Finding>) {
    let mut at = 0;
    while let Some(ended) = findings.get(at) {
        let first = ended.lines.first();
        let is_same = |(other, of): &(usize, &Finding)| {
            let is_alike = of.verdict.class == ended.verdict.class
                && place(of.verdict) == place(ended.verdict);
            let knows = |line| of.lines.iter().any(|of| of.is_known_of(line));
            *other != at && is_alike && first.is_some_and(knows)
        };
        match findings.iter().enumerate().find(is_same) {
            Some((other, _)) => {
                let ended = findings.remove(at);
                findings[other - usize::from(other > at)].take(ended);
            }
            None => at += 1,
        }
    }
}

/// The finding common to several processes of a job, the fastest first.
pub(crate) fn of_job<'a>(found: &'a Diagnosis, filter: &Filter) -> Option<Finding<'a>> {
    let mut findings = findings(found, filter).into_iter();
    findings.find(|finding| finding.processes.len() > 1 && finding.is_growth())
}

/// Whether suppressions hide sites with the class of their process.
fn has_suppressed(found: &Diagnosis, process: &Verdict) -> bool {
    let mut suppressed = found.suppressed.iter();
    suppressed.any(|(_, site)| site.process == process.process && site.class == process.class)
}

/// Whether a process of a finding's class behaves like the finding's processes: the growth is at
/// one line, or, without such a line, the program is the same.
fn do_the_same(found: &Diagnosis, known: &Finding, verdict: &Verdict, lines: &[Line]) -> bool {
    let program = |id: ProcessId| row(found, id).map(|row| (&row.comm, row.cmdline.first()));
    match (lines.first(), known.lines.first()) {
        _ if verdict.class == Class::None => {
            let of = |verdict| replaced_by(found, verdict).is_some();
            of(known.verdict) == of(verdict)
        }
        (Some(line), Some(_)) => {
            let mut known = known.lines.iter();
            known.any(|of| are_same(of.allocates, line.allocates))
        }
        (None, None) => program(known.verdict.process) == program(verdict.process),
        _ => false,
    }
}

/// The lines of the sites that have the class of their process; `all`: the verdicts on it and on its sites.
fn lines<'a>(found: &'a Diagnosis, process: &'a Verdict, all: &[&'a Verdict]) -> Vec<Line<'a>> {
    let mut lines: Vec<Line> = Vec::new();
    let sites = all.iter().filter(|of| is_behind(of, process.class));
    let place = place(process);
    for verdict in sites {
        let Scope::Site(key) = verdict.scope else {
            continue;
        };
        let of_site = match series::place(&key) {
            Place::Device(device) => Some(device),
            _ => None,
        };
        if of_site != place {
            continue;
        }
        let frames: Vec<&Frame> = found.stacks.get(key.stack).of_caller().collect();
        let own = own_line(&frames);
        let is_named =
            |own: &Frame| own.is_python() || own.function.is_some() && is_of_program(own);
        let runtime = verdict.runtime.filter(|_| !own.is_some_and(is_named));
        let line = Line {
            allocates: own,
            called_by: verdict.caller.as_ref(),
            callers: callers(&frames),
            runtime: runtime.map(|of| of.name),
            calls: library_call(&frames),
            others: Vec::new(),
            // One piece of its heap has many objects.
            keeper: verdict.keeper.as_ref().filter(|_| runtime.is_none()),
            absent: verdict.absent.as_ref().filter(|_| runtime.is_none()),
            pool: found
                .holders
                .get(&key)
                .and_then(|of| Pool::of(of, &found.stacks))
                .filter(|_| runtime.is_none()),
            are_arenas: key.layer == Layer::Python,
            bytes: verdict.rate.unwrap_or(0.0),
            // A block of the layer `python` is an arena, which no line requested as such.
            blocks: match key.layer {
                Layer::Python => 0.0,
                _ if runtime.is_some() => 0.0,
                _ => verdict.blocks.unwrap_or(0.0),
            },
            holes: holes(found, key),
            next: match verdict.class {
                Class::Undetermined => &process.next,
                _ => &verdict.next,
            },
        };
        add(&mut lines, line, parts);
    }
    let types = found.types.get(&process.process);
    pooled(lines, types.is_some_and(Types::have_one_keeper))
}

/// Whether the site of a verdict is behind growth of this class. Shared memory that the program maps and keeps is a leak of
/// the site that maps it. Page-locked memory is allocated by its sites, whatever becomes of them.
fn is_behind(of: &Verdict, class: Class) -> bool {
    let is_in = |layer| matches!(&of.scope, Scope::Site(key) if key.layer == layer);
    match (class, of.class) {
        (Class::Shmem, Class::Leak) if is_in(Layer::Vm) => true,
        (Class::Pinned, Class::Undetermined) if is_in(Layer::Pinned) => of.rate > Some(0.0),
        (class, of_site) => class == of_site,
    }
}

/// The rate of the blocks of two sites together.
fn parts(a: f64, b: f64) -> f64 {
    match alike(a, b) {
        // Two parts of one object.
        true => a.max(b),
        false => a + b,
    }
}

/// Lines whose blocks one container keeps, taken together; `in_arenas`: one keeps nearly all objects in arenas.
fn pooled(lines: Vec<Line<'_>>, in_arenas: bool) -> Vec<Line<'_>> {
    let mut pooled: Vec<Line> = Vec::new();
    for line in lines {
        let mut known = pooled.iter_mut();
        // The memory of the container itself may not have been searched for.
        let is_same = |known: &&mut Line| {
            let has_keeper = known.keeper.is_some() && known.keeper == line.keeper;
            let is_pool = known.pool.is_some() && (known.pool == line.pool || has_keeper);
            is_pool || in_arenas && known.has_arenas() && line.are_arenas
        };
        match known.find(is_same) {
            Some(known) => {
                known.sum(&line, parts);
                known.others.push(Part {
                    allocates: line.allocates,
                    are_arenas: line.are_arenas,
                    bytes: line.bytes,
                });
            }
            None => pooled.push(line),
        }
    }
    pooled.iter_mut().for_each(Line::put_arenas_last);
    sort(&mut pooled);
    pooled
}

/// The fastest first. The code of a language's library requests memory for the program, whose own lines say more, even if
/// they grow only half as fast.
fn sort(lines: &mut [Line]) {
    let weight = |line: &Line| match line.allocates.is_some_and(|frame| !is_of_language(frame)) {
        true => 2.0 * (line.bytes + line.holes),
        false => line.bytes + line.holes,
    };
    lines.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
}

/// Whether two rates are equal within chance.
fn alike(a: f64, b: f64) -> bool {
    (a - b).abs() <= 0.02 * a.max(b)
}

/// Adds the sites of a line; `blocks` combines their rates of blocks.
fn add<'a>(lines: &mut Vec<Line<'a>>, line: Line<'a>, blocks: fn(f64, f64) -> f64) {
    let mut known = lines.iter_mut();
    // Which caller leaks does not matter where the line that keeps the blocks is known.
    let is_filled = |of: &Line<'a>| of.keeper.is_some_and(|keeper| keeper.line.is_some());
    let is_same = |known: &&mut Line<'a>| {
        let has_caller =
            are_same(known.called_by, line.called_by) || is_filled(known) || is_filled(&line);
        let is_runtime = known.runtime.is_some() && known.runtime == line.runtime;
        is_runtime || are_same(known.allocates, line.allocates) && has_caller
    };
    match known.find(is_same) {
        Some(known) => known.absorb(line, blocks),
        None => lines.push(line),
    }
    sort(lines);
}

/// Whether two frames are shown alike.
fn are_same(one: Option<&Frame>, other: Option<&Frame>) -> bool {
    one.map(Frame::shown) == other.map(Frame::shown)
}

/// An observation on one site outweighs a guess on another one of the same line.
fn surer<'a>(a: Option<&'a Keeper>, b: Option<&'a Keeper>) -> Option<&'a Keeper> {
    let is_path = |of: &&Keeper| matches!(of.how, How::Path { .. });
    a.filter(is_path).or(b.filter(is_path)).or(a).or(b)
}

/// Growth of the free space that a site holds open, bytes per second.
fn holes(found: &Diagnosis, site: SiteKey) -> f64 {
    let mut accounts = found.accounts.iter();
    let Some(of) = accounts.find(|of| of.process == site.process) else {
        return 0.0;
    };
    let rows = of.accounts.iter().flat_map(|account| &account.rows);
    let held = rows.filter(|(term, _)| *term == Term::Holes(site));
    held.map(|(_, bytes)| bytes).sum::<f64>() / (of.to - of.from).max(f64::MIN_POSITIVE)
}
