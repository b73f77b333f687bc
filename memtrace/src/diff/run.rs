//! One recording as a comparison needs it: its sites over time.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{Memory, Per, Stack};
use crate::{
    analysis::statistics::warm_up,
    event::{Layer, StackId},
    frames::{
        Frame, Wrappers, compared_line,
        mappings::{self, Use},
        names::{self, source_line},
    },
    ledger::ProcessId,
    recording::{Origin, ProcessRow, SitePoint, SiteSeries, Snapshot},
};
use memtrace_common::loss::Effect;

/// Points of a series that are used: more would cost memory without improving the slope.
pub(crate) const POINTS: usize = 240;

/// Functions that a message names.
const BUSIEST: usize = 5;

/// One recording.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// Its name: the file.
    pub name: String,
    /// Ends of the intervals that count, seconds since the start.
    pub seconds: Vec<f64>,
    pub sites: Vec<Site>,
    pub(crate) memory: Memory,
    /// The known facts of the machine and the processes: field and value.
    pub facts: Vec<(String, String)>,
    /// Names of the reasons by which totals are only bounds.
    pub losses: Vec<&'static str>,
}

/// An allocation site of one process.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub layer: Layer,
    /// Address space only: an allocator's, whose blocks are counted in another layer, or a reserve that is touched
    /// little by little.
    pub is_space: bool,
    /// Sites share stacks.
    pub stack: Arc<Stack>,
    /// Live bytes at the moment that reports show: at the end, or at the peak of a process that
    /// exited by itself.
    pub live_bytes: u64,
    /// Changes: the index in [`Run::seconds`] from which on a point holds, rising. Before the
    /// first, all figures are zero.
    pub points: Vec<(usize, SitePoint)>,
}

impl Run {
    /// From a recording's snapshot at [`crate::recording::At::Default`] and its series. `prefixes`:
    /// function prefixes of allocators that were named for this or another of the recordings.
    pub(crate) fn new(
        name: String,
        snapshot: &Snapshot,
        series: &SiteSeries,
        memory: Memory,
        mut facts: Vec<(String, String)>,
        prefixes: &[String],
    ) -> Run {
        let rows = snapshot.processes.iter().map(|process| &process.row);
        facts.extend(rows.clone().filter_map(arguments));
        let end = end(rows.clone());
        let times = series.times_ns.iter().copied();
        let times: Vec<u64> = times.take_while(|time| *time <= end).collect();
        let ends: HashMap<ProcessId, u64> = rows
            .clone()
            .filter(|row| !row.is_group())
            .filter_map(|row| Some((row.id, row.ended_ns?)))
            .collect();
        let mut stacks = SharedStacks {
            wrappers: Wrappers::new(prefixes),
            ..SharedStacks::default()
        };
        let groups: HashMap<ProcessId, &ProcessRow> = rows
            .filter(|row| row.is_group())
            .map(|row| (row.id, row))
            .collect();
        let sites = snapshot.sites.iter().map(|site| {
            let mut points = match groups.get(&site.key.process) {
                Some(group) => folded(group, &times, site.totals.alloc_count),
                None => series.sites.get(&site.key).cloned().unwrap_or_default(),
            };
            points.retain(|(index, _)| *index < times.len());
            // A process that has ended holds nothing.
            if let Some(ended) = ends.get(&site.key.process) {
                let gone = times.partition_point(|time| time <= ended);
                points.retain(|(index, _)| *index < gone);
                if let Some((_, last)) = points.last().filter(|_| gone < times.len()) {
                    let alloc_count = last.alloc_count;
                    points.push((
                        gone,
                        SitePoint {
                            live_bytes: 0,
                            alloc_count,
                        },
                    ));
                }
            }
            let stack = snapshot.stacks.get(site.key.stack);
            let made_for = || mappings::of(site.key.by_allocator, stack.frames());
            Site {
                layer: site.key.layer,
                is_space: site.key.layer == Layer::Vm
                    && !matches!(made_for(), Use::Program | Use::Runtime),
                stack: stacks.of(site.key.stack, stack.frames()),
                live_bytes: site.totals.live_bytes,
                points,
            }
        });
        let lost = snapshot.losses.iter().filter(|(reason, count)| {
            let bounds = [
                Effect::AllocationsLost,
                Effect::ReleasesLost,
                Effect::Untraced,
            ];
            *count > 0 && bounds.contains(&reason.effect())
        });
        let started = snapshot.meta.started_ns;
        let seconds = |time: &u64| time.saturating_sub(started) as f64 / 1e9;
        Run {
            name,
            seconds: times.iter().map(seconds).collect(),
            sites: sites.collect(),
            memory,
            facts,
            losses: lost.map(|(reason, _)| reason.name()).collect(),
        }
    }

    /// The unit of growth, at each point.
    pub(super) fn units(&self, per: &Per) -> Vec<f64> {
        match per {
            Per::Seconds => self.seconds.clone(),
            Per::Count => self.allocations(|_| true),
            Per::AllocOf(place) => self.allocations(|site| is_at(site, place)),
        }
    }

    /// Functions that allocate most often.
    pub(super) fn busiest(&self) -> Vec<String> {
        busiest(&self.sites)
    }

    /// Allocations so far at the `wanted` sites, without address space.
    pub(super) fn allocations(&self, wanted: impl Fn(&Site) -> bool) -> Vec<f64> {
        let sites = self.sites.iter().filter(|site| !site.is_space);
        self.sums(sites.filter(|site| wanted(site)), |point| point.alloc_count)
    }

    /// The number of points at the beginning that belong to the start of the program.
    pub(super) fn start(&self) -> usize {
        let own = (0..self.sites.len()).filter(|index| !self.sites[*index].is_space);
        warm_up(&self.live(own))
    }

    /// Live bytes of these sites, at each point.
    pub(super) fn live(&self, sites: impl IntoIterator<Item = usize>) -> Vec<f64> {
        let sites = sites.into_iter().map(|index| &self.sites[index]);
        self.sums(sites, |point| point.live_bytes)
    }

    /// The sum over sites of one figure, at each point.
    fn sums<'a>(
        &self,
        sites: impl Iterator<Item = &'a Site>,
        figure: fn(&SitePoint) -> u64,
    ) -> Vec<f64> {
        // By how much the sum changes at each point: a site seldom changes at all of them.
        let mut steps = vec![0i128; self.seconds.len()];
        for site in sites {
            let mut held = 0;
            for (index, point) in &site.points {
                let value = i128::from(figure(point));
                if let Some(step) = steps.get_mut(*index) {
                    *step += value - held;
                    held = value;
                }
            }
        }
        let running = steps.into_iter().scan(0, |sum, step| {
            *sum += step;
            Some(*sum as f64)
        });
        running.collect()
    }
}

/// Stacks and frames, each once.
#[derive(Default)]
struct SharedStacks {
    stacks: HashMap<StackId, Arc<Stack>>,
    wrappers: Wrappers,
    /// By address: a recording has each frame once.
    frames: HashMap<*const Frame, Arc<Frame>>,
}

impl SharedStacks {
    fn of<'a>(&mut self, id: StackId, frames: impl IntoIterator<Item = &'a Frame>) -> Arc<Stack> {
        let known = &mut self.frames;
        let shared = |frame: &'a Frame| {
            let shared = known
                .entry(frame)
                .or_insert_with(|| Arc::new(frame.clone()));
            Arc::clone(shared)
        };
        let stack = self.stacks.entry(id);
        let wrappers = &self.wrappers;
        Arc::clone(
            stack.or_insert_with(|| Arc::new(Stack::new(frames.into_iter().map(shared), wrappers))),
        )
    }
}

/// The course of a site of a group: processes that ended hold nothing, and came as evenly as is known.
fn folded(group: &ProcessRow, times: &[u64], alloc_count: u64) -> Vec<(usize, SitePoint)> {
    let from = times.partition_point(|time| *time < group.started_ns);
    let ended = group.ended_ns.unwrap_or(u64::MAX);
    let to = times.partition_point(|time| *time <= ended).max(from + 1);
    let steps = (to - from) as u64;
    (from..to)
        .zip(1..=steps)
        .map(|(index, step)| {
            let so_far = u128::from(alloc_count) * u128::from(step) / u128::from(steps);
            let point = SitePoint {
                live_bytes: 0,
                alloc_count: so_far as u64,
            };
            (index, point)
        })
        .collect()
}

/// The arguments of a process that was launched or attached to, as a fact. The program has facts of its own.
fn arguments(row: &ProcessRow) -> Option<(String, String)> {
    let arguments = row
        .cmdline
        .get(1..)
        .filter(|_| row.origin != Origin::Child)?;
    let text = match arguments {
        [] => "(none)".to_owned(),
        _ => arguments.join(" "),
    };
    Some(("command.arguments".to_owned(), text))
}

/// The end of the last requested process; children may live on, or be short.
fn end<'a>(rows: impl Iterator<Item = &'a ProcessRow>) -> u64 {
    rows.filter(|row| row.origin != Origin::Child)
        .map(|row| row.ended_ns.unwrap_or(u64::MAX))
        .max()
        .unwrap_or(u64::MAX)
}

/// Frames that name an allocation's place: the first, the first of Python, and the program's own.
fn places<'a>(shown: &[&'a Frame]) -> Vec<&'a Frame> {
    let python = shown.iter().copied().find(|frame| frame.is_python());
    let mut places: Vec<&Frame> = shown.first().copied().into_iter().chain(python).collect();
    places.extend(compared_line(shown));
    places
}

/// Whether `place` is a function, as any command writes it or without its classes and namespaces, or a `file:line`
/// of a site.
fn is_at(site: &Site, place: &str) -> bool {
    let is_end = |whole: &str, before: &[&str]| {
        let start = whole.strip_suffix(place);
        start.is_some_and(|start| start.is_empty() || before.iter().any(|end| start.ends_with(end)))
    };
    places(&site.stack.shown()).into_iter().any(|frame| {
        let function = frame.function.as_deref().unwrap_or_default();
        let base = function.split('(').next().unwrap_or(function);
        let line = source_line(frame).unwrap_or_default();
        place == function
            || is_end(base, &["::", "."])
            || is_end(&names::plain(frame), &["::", "."])
            || is_end(&line, &["/"])
    })
}

/// Functions that allocate most often, for a message.
fn busiest(sites: &[Site]) -> Vec<String> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for site in sites.iter().filter(|site| !site.is_space) {
        let Some(frame) = places(&site.stack.shown()).pop() else {
            continue;
        };
        let allocations = site.points.last().map_or(0, |(_, point)| point.alloc_count);
        *counts.entry(names::plain(frame)).or_default() += allocations;
    }
    let mut functions: Vec<(String, u64)> = counts.into_iter().collect();
    functions.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let functions = functions.into_iter().take(BUSIEST);
    functions.map(|(function, _)| function).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: ProcessRow = ProcessRow {
        id: ProcessId(1),
        tgid: 0,
        ppid: 0,
        origin: Origin::Child,
        comm: String::new(),
        cmdline: vec![],
        started_ns: 0,
        ended_ns: None,
        exit_status: None,
        rss_at_start: None,
        folded: None,
    };

    #[test]
    fn arguments_are_those_of_processes_that_were_asked_for() {
        let row = |origin, words: &[&str]| ProcessRow {
            origin,
            cmdline: words.iter().map(|word| (*word).to_owned()).collect(),
            ..ROW
        };
        let text = |row: &ProcessRow| arguments(row).map(|(_, text)| text);
        let launched = row(Origin::Launched, &["./train", "--lr", "1"]);
        assert_eq!(text(&launched).as_deref(), Some("--lr 1"));
        let bare = row(Origin::Attached, &["./train"]);
        assert_eq!(text(&bare).as_deref(), Some("(none)"));
        assert_eq!(text(&row(Origin::Attached, &[])), None);
        assert_eq!(text(&row(Origin::Child, &["cc", "a.c"])), None);
    }

    #[test]
    fn allocations_of_a_group_are_spread_over_its_time() {
        let group = |started_ns, ended_ns| ProcessRow {
            started_ns,
            ended_ns: Some(ended_ns),
            folded: Some(3),
            ..ROW
        };
        let times = [10, 20, 30, 40, 50];
        let course = |started, ended| -> Vec<(usize, u64)> {
            let points = folded(&group(started, ended), &times, 100).into_iter();
            points
                .map(|(index, point)| {
                    assert_eq!(point.live_bytes, 0);
                    (index, point.alloc_count)
                })
                .collect()
        };
        assert_eq!(course(15, 45), [(1, 33), (2, 66), (3, 100)]);
        assert_eq!(
            course(0, 99),
            [(0, 20), (1, 40), (2, 60), (3, 80), (4, 100)]
        );
        assert_eq!(course(21, 22), [(2, 100)]);
    }
}
