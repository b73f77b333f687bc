//! Groups sites by a common property of their stacks: a line of Python, a function, a file, a
//! thread. Pure.
//!
//! Layers stay separate, because they overlap: heap blocks are in mappings that vm counts. Peaks
//! are left out: sites need not peak at the same time.

use std::{cmp::Reverse, collections::BTreeMap, fmt, str::FromStr};

use super::{Error, Metric, Selection, health::UNKNOWN_MODULE};
use crate::{
    event::Layer,
    frames::{Frame, FrameKind, names, own_line},
    hash::FastMap,
    ledger::{ProcessId, Totals},
    recording::Stack,
};

const NO_STACK: &str = "[no stack]";
const NO_PYTHON_FRAME: &str = "[no Python frame]";
const NO_NATIVE_FRAME: &str = "[no native frame]";
pub(crate) const UNKNOWN_THREAD: &str = "[unknown thread]";

/// The property that merges sites into one row of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum By {
    /// Each site separately, with its stack.
    #[default]
    Site,
    /// The innermost line of Python.
    PythonLine,
    /// The innermost line of Python that is of no installed package and not of the standard library;
    /// of a program that is installed itself, the innermost line. Without Python, the innermost line that is of no
    /// language's library.
    ProgramLine,
    /// The innermost native function that is not an allocator's.
    NativeSite,
    /// The file of that function.
    Module,
    /// The thread's name.
    Thread,
}

impl By {
    /// Every choice, in the order of the documentation.
    pub(crate) const ALL: [By; 6] = [
        By::Site,
        By::PythonLine,
        By::ProgramLine,
        By::NativeSite,
        By::Module,
        By::Thread,
    ];

    /// Its name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            By::Site => "site",
            By::PythonLine => "python-line",
            By::ProgramLine => "program-line",
            By::NativeSite => "native-site",
            By::Module => "module",
            By::Thread => "thread",
        }
    }

    /// One group, in words.
    pub(crate) const fn noun(self) -> &'static str {
        match self {
            By::Site => "site",
            By::PythonLine => "Python line",
            By::ProgramLine => "program line",
            By::NativeSite => "native site",
            By::Module => "module",
            By::Thread => "thread",
        }
    }

    /// The group that a stack belongs to. The text of a traced program is in it as it is.
    pub(crate) fn key(self, stack: Stack) -> String {
        if self == By::Thread {
            return stack.thread().unwrap_or(UNKNOWN_THREAD).into();
        }
        if stack.is_empty() {
            return NO_STACK.into();
        }
        if self == By::PythonLine {
            let mut python = stack.frames().filter(|frame| frame.is_python());
            return python.next().map_or(NO_PYTHON_FRAME.into(), line);
        }
        if self == By::ProgramLine {
            return program_line(stack).map_or(NO_STACK.into(), line);
        }
        let frames = stack.frames().skip(stack.wrappers());
        let mut native = frames.filter(|frame| frame.kind == FrameKind::Native);
        let Some(frame) = native.next() else {
            return NO_NATIVE_FRAME.into();
        };
        let module = frame.module.as_deref().unwrap_or(UNKNOWN_MODULE);
        match self {
            By::Module => module.into(),
            _ => function(frame),
        }
    }
}

/// The frame that [`By::ProgramLine`] groups a stack by; `None`: it has no frames.
pub(crate) fn program_line(stack: Stack<'_>) -> Option<&Frame> {
    let frames: Vec<&Frame> = stack.of_caller().collect();
    own_line(&frames).or(stack.frames().next())
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for By {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = By::ALL.into_iter().find(|by| by.name() == text);
        known.ok_or_else(|| {
            let names = By::ALL.map(By::name).join(", ");
            format!("cannot group by `{text}`, expected one of {names}")
        })
    }
}

/// `function [file of its code]`.
fn function(frame: &Frame) -> String {
    let module = frame.module.as_deref().unwrap_or(UNKNOWN_MODULE);
    format!("{} [{module}]", names::name(frame))
}

/// `file:line function`.
fn line(frame: &Frame) -> String {
    if !frame.is_python() && frame.file.is_none() {
        return function(frame);
    }
    let parts = [
        frame.file.clone().map(|file| match frame.line {
            Some(line) => format!("{file}:{line}"),
            None => file,
        }),
        frame.function.clone(),
    ];
    let known: Vec<String> = parts.into_iter().flatten().collect();
    match known.is_empty() {
        true => names::name(frame),
        false => known.join(" "),
    }
}

/// The sites of one layer, in all processes, with a common key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub layer: Layer,
    pub key: String,
    pub sums: Sums,
}

/// Adds all figures that can be added: everything but peaks.
fn add(sum: &mut Totals, totals: &Totals) {
    for (sum, value) in [
        (&mut sum.live_bytes, totals.live_bytes),
        (&mut sum.live_count, totals.live_count),
        (&mut sum.inherited_bytes, totals.inherited_bytes),
        (&mut sum.inherited_count, totals.inherited_count),
        (&mut sum.alloc_bytes, totals.alloc_bytes),
        (&mut sum.alloc_count, totals.alloc_count),
        (&mut sum.free_bytes, totals.free_bytes),
        (&mut sum.free_count, totals.free_count),
    ] {
        *sum = sum.saturating_add(value);
    }
}

/// Sums of sites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Without peaks.
    pub totals: Totals,
    pub sites: u64,
    /// The part of `totals` that is not [`indirect`](super::Shown::is_indirect).
    own: Totals,
    /// Number of processes that each row represents.
    processes: BTreeMap<ProcessId, u64>,
}

impl Sums {
    fn add(&mut self, totals: &Totals, sites: u64) {
        add(&mut self.totals, totals);
        self.sites += sites;
    }

    pub(crate) fn processes(&self) -> u64 {
        self.processes.values().sum()
    }
}

/// The groups of the selected sites, the largest by `sort` first: sorted by the program's own
/// requests, or by all if there are none.
///
/// # Errors
///
/// When they are to be ordered by their peaks.
pub(crate) fn groups(selection: &Selection, by: By, sort: Metric) -> Result<Vec<Group>, Error> {
    if sort == Metric::Peak {
        return Err(Error::NoPeakOfGroups);
    }
    let mut sums: BTreeMap<(Layer, String), Sums> = BTreeMap::new();
    for shown in &selection.sites {
        let key = shown.site.key;
        let group = sums.entry((key.layer, by.key(shown.stack)));
        let group = group.or_default();
        group.add(&shown.totals(), 1);
        if !shown.is_indirect() {
            add(&mut group.own, &shown.totals());
        }
        let processes = shown.process.map_or(1, |process| process.row.processes());
        group.processes.insert(key.process, processes);
    }
    let groups = sums.into_iter();
    let mut groups: Vec<_> = groups
        .map(|((layer, key), sums)| Group { layer, key, sums })
        .collect();
    // Stable: equal ones stay in order of layer and key.
    groups.sort_by_key(|group| {
        let totals = &group.sums.totals;
        Reverse((sort.of(&group.sums.own), sort.of(totals), totals.live_bytes))
    });
    Ok(groups)
}

/// The groups of all layers with the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row<'a> {
    pub key: &'a str,
    /// In the order of the groups, at least one.
    pub layers: Vec<&'a Group>,
}

impl Row<'_> {
    /// Whether the program requested none of it itself.
    pub(crate) fn is_indirect(&self) -> bool {
        let mut layers = self.layers.iter();
        layers.all(|group| group.sums.own == Totals::default())
    }
}

/// One row for each key, in the order of its first group.
pub(crate) fn rows(groups: &[Group]) -> Vec<Row<'_>> {
    let mut rows: Vec<Row> = Vec::new();
    let mut places: FastMap<&str, usize> = FastMap::default();
    for group in groups {
        let place = *places.entry(&group.key).or_insert(rows.len());
        match rows.get_mut(place) {
            Some(row) => row.layers.push(group),
            None => rows.push(Row {
                key: &group.key,
                layers: vec![group],
            }),
        }
    }
    rows
}

/// The groups of one layer that are not listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rest {
    pub groups: u64,
    pub sums: Sums,
}

/// Sums up groups by layer: with those that are listed, nothing is missing.
pub(crate) fn rest(groups: &[Group]) -> BTreeMap<Layer, Rest> {
    let mut layers: BTreeMap<Layer, Rest> = BTreeMap::new();
    for group in groups {
        let rest = layers.entry(group.layer).or_default();
        rest.groups += 1;
        rest.sums.add(&group.sums.totals, group.sums.sites);
        rest.sums.processes.extend(&group.sums.processes);
    }
    layers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        frames::fixture::python,
        recording::Snapshot,
        view::{Filter, fixture},
    };

    fn of(snapshot: &Snapshot, filter: &Filter, by: By) -> Vec<Group> {
        let selection = filter.select(snapshot, Metric::LiveBytes).unwrap();
        groups(&selection, by, Metric::LiveBytes).unwrap()
    }

    fn keys(by: By) -> Vec<String> {
        let groups = of(&fixture::snapshot_of_python(), &Filter::default(), by);
        groups.into_iter().map(|group| group.key).collect()
    }

    #[test]
    fn stacks_are_grouped_by_the_requested_key() {
        assert_eq!(
            keys(By::PythonLine),
            [
                "/src/cache;1.py:41 Cache.fill",
                "[no stack]",
                "[no Python frame]",
                "[no Python frame]",
            ]
        );
        assert_eq!(
            keys(By::NativeSite),
            [
                "list_resize [/usr/bin/leaker]",
                "[no stack]",
                "grow;it [/usr/bin/leaker]",
                "grow;it [/usr/bin/leaker]",
            ]
        );
        assert_eq!(
            keys(By::Module),
            ["/usr/bin/leaker", "[no stack]", "/usr/bin/leaker"]
        );
        assert_eq!(
            keys(By::Thread),
            ["worker", "[unknown thread]", "[unknown thread]"]
        );
    }

    #[test]
    fn layers_with_the_same_key_are_one_row() {
        let snapshot = fixture::snapshot_of_python();
        let all = of(&snapshot, &Filter::default(), By::Module);
        let rows = rows(&all);
        let keys: Vec<_> = rows.iter().map(|row| (row.key, row.layers.len())).collect();
        assert_eq!(keys, [("/usr/bin/leaker", 2), ("[no stack]", 1)]);
        assert!(rows.iter().all(|row| !row.is_indirect()));
        let vm = Filter {
            layer: Some(Layer::Vm),
            ..Filter::default()
        };
        // The fixture's mapping is an allocator's.
        let mappings = of(&snapshot, &vm, By::Module);
        assert!(super::rows(&mappings).iter().all(Row::is_indirect));
    }

    #[test]
    fn a_python_line_is_named_from_known_parts() {
        let mut frame = python("f", "/a.py", 3);
        assert_eq!(line(&frame), "/a.py:3 f");
        frame.line = None;
        assert_eq!(line(&frame), "/a.py f");
        frame.file = None;
        assert_eq!(line(&frame), "f");
        frame.function = None;
        assert_eq!(line(&frame), "unknown");
    }

    /// Everything that is summed up, added up in another way.
    fn figures<'a>(all: impl Iterator<Item = &'a Totals>) -> [u64; 8] {
        all.fold([0; 8], |sum, t| {
            let values = [
                t.live_bytes,
                t.live_count,
                t.inherited_bytes,
                t.inherited_count,
                t.alloc_bytes,
                t.alloc_count,
                t.free_bytes,
                t.free_count,
            ];
            std::array::from_fn(|i| sum[i] + values[i])
        })
    }

    #[test]
    fn groups_and_their_rest_come_to_the_totals_of_each_layer() {
        let mut snapshot = fixture::snapshot_of_python();
        for (n, site) in (1..).zip(&mut snapshot.sites) {
            site.totals.inherited_bytes = 1000 * n;
            site.totals.inherited_count = n;
        }
        for by in By::ALL.into_iter().skip(1) {
            let all = of(&snapshot, &Filter::default(), by);
            for listed in 0..=all.len() {
                let (listed, unlisted) = all.split_at(listed);
                let unlisted = rest(unlisted);
                for layer in Layer::ALL {
                    let sites = snapshot.sites.iter();
                    let sites: Vec<_> = sites.filter(|site| site.key.layer == layer).collect();
                    let listed = listed.iter().filter(|group| group.layer == layer);
                    let sums: Vec<_> = listed
                        .map(|group| &group.sums)
                        .chain(unlisted.get(&layer).map(|rest| &rest.sums))
                        .collect();
                    let found = figures(sums.iter().map(|sums| &sums.totals));
                    let expected = figures(sites.iter().map(|site| &site.totals));
                    assert_eq!(found, expected, "{by} {layer:?}");
                    let counted: u64 = sums.iter().map(|sums| sums.sites).sum();
                    assert_eq!(counted, sites.len() as u64, "{by} {layer:?}");
                    let layers = snapshot.layers.iter().filter(|l| l.layer == layer);
                    let live: u64 = layers.map(|l| l.totals.totals.live_bytes).sum();
                    assert_eq!(found[0], live, "{by} {layer:?}");
                }
            }
        }
    }

    #[test]
    fn filters_choose_the_sites_that_are_grouped() {
        let filter = Filter {
            pid: Some(fixture::PARENT),
            layer: Some(Layer::Heap),
            ..Filter::default()
        };
        let groups = of(&fixture::snapshot(), &filter, By::Module);
        assert_eq!(groups.len(), 1);
        let sums = &groups[0].sums;
        assert_eq!((sums.totals.live_bytes, sums.sites), (1 << 20, 2));
        assert_eq!(sums.processes(), 1);
    }

    #[test]
    fn groups_have_no_peak() {
        let snapshot = fixture::snapshot();
        let filter = Filter::default();
        let selection = filter.select(&snapshot, Metric::Peak).unwrap();
        let error = groups(&selection, By::Module, Metric::Peak).unwrap_err();
        assert!(matches!(error, Error::NoPeakOfGroups));
        let groups = groups(&selection, By::Module, Metric::AllocCount).unwrap();
        assert!(groups.iter().all(|g| g.sums.totals.peak_bytes == 0));
    }
}
