//! The data of a page: JSON that its script reads. Sizes are bytes, times seconds since the start of
//! the recording; lists refer to each other by place.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::{
    layers,
    layers::LayerData,
    ranking::all,
    recorded::Recorded,
    tree::{Stacks, Tree},
};
use crate::{
    analysis::courses::{Course, LayerKey, add_to, layer_key, sum},
    event::Layer,
    ledger::ProcessId,
    recording::{MemorySample, Snapshot},
    render::collapsed::{missing, process as process_name},
    units::grouped,
    view::{By, Filter, Metric, Shown, group::program_line},
};

/// Most processes that a page names; the others are one.
const PROCESSES: usize = 50;

/// What a page keeps of a large recording.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) sites: usize,
    /// Intervals begin and end at every so many times.
    pub(super) step: usize,
}

/// Everything that the script shows.
#[derive(Debug, Serialize)]
pub(super) struct Data {
    #[serde(flatten)]
    pub(super) stacks: Stacks,
    pub(super) layers: Vec<LayerData>,
    pub(super) processes: Vec<ProcessData>,
    pub(super) times: Vec<f64>,
    pub(super) step: usize,
    pub(super) sites: Sites,
    pub(super) live: Vec<LayerSeries>,
    /// The part of the recording on which the verdict is based.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) window: Option<(f64, f64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) baseline: Option<BaselineData>,
}

/// The recording that a comparison starts from.
#[derive(Debug, Serialize)]
pub(super) struct BaselineData {
    pub(super) name: String,
    pub(super) times: Vec<f64>,
    /// Resident memory of all processes.
    pub(super) rss: Vec<Option<u64>>,
    /// Unit of growth.
    pub(super) per: String,
}

/// A process, or several.
#[derive(Debug, Serialize)]
pub(super) struct ProcessData {
    pub(super) name: String,
    /// Resident memory at each time; null while there is none.
    pub(super) rss: Vec<Option<u64>>,
}

/// Live bytes of a layer of a process at each time.
#[derive(Debug, Serialize)]
pub(super) struct LayerSeries {
    process: usize,
    layer: usize,
    live: Vec<u64>,
}

/// Sites, as columns.
#[derive(Debug, Default, Serialize)]
pub(super) struct Sites {
    pub(super) node: Vec<usize>,
    pub(super) line: Vec<usize>,
    pub(super) layer: Vec<usize>,
    pub(super) process: Vec<usize>,
    pub(super) live: Vec<u64>,
    /// Of one recording: figures of the report.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) blocks: Vec<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) allocated: Vec<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) allocations: Vec<u64>,
    /// Of each site, changes: the distance to the place of the time before, and the differences of
    /// the four figures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) courses: Vec<Vec<i64>>,
    /// Of two recordings: growth, and the figures of the baseline.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) growth: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) baseline_live: Vec<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) baseline_growth: Vec<f64>,
}

/// Seconds since the start of a recording, to the millisecond.
pub(super) fn since(snapshot: &Snapshot, time_ns: u64) -> f64 {
    let since = time_ns.saturating_sub(snapshot.meta.started_ns);
    (since as f64 / 1e6).round() / 1e3
}

/// The processes of a page.
pub(super) struct Processes {
    pub(super) list: Vec<ProcessData>,
    pub(super) places: HashMap<ProcessId, usize>,
}

impl Processes {
    /// Processes with most memory first; those beyond the limit together.
    pub(super) fn of(recorded: &Recorded) -> Processes {
        let mut live: HashMap<ProcessId, u64> = HashMap::new();
        let mut names: HashMap<ProcessId, String> = HashMap::new();
        for shown in &all(&recorded.snapshot) {
            let totals = shown.totals();
            let process = shown.site.key.process;
            *live.entry(process).or_default() += totals.live_bytes + totals.alloc_bytes;
            names.entry(process).or_insert_with(|| process_name(shown));
        }
        for process in &recorded.snapshot.processes {
            let row = &process.row;
            let name = || format!("{} ({})", crate::escape::clean(&row.comm), row.tgid);
            names.entry(row.id).or_insert_with(name);
        }
        let mut order: Vec<ProcessId> = names.keys().copied().collect();
        order.sort_by_key(|id| (std::cmp::Reverse(live.get(id).copied()), *id));
        let times = &recorded.courses.times_ns;
        let mut processes = Processes {
            list: Vec::new(),
            places: HashMap::new(),
        };
        let others = order.split_off(order.len().min(PROCESSES));
        for id in order {
            processes.places.insert(id, processes.list.len());
            processes.list.push(ProcessData {
                name: names.remove(&id).unwrap_or_default(),
                rss: recorded
                    .memory
                    .get(&id)
                    .map_or_else(Vec::new, |samples| resident(samples, times)),
            });
        }
        if !others.is_empty() {
            let mut rss = vec![None; times.len()];
            for id in &others {
                processes.places.insert(*id, processes.list.len());
                if let Some(samples) = recorded.memory.get(id) {
                    add(&mut rss, &resident(samples, times));
                }
            }
            processes.list.push(ProcessData {
                name: format!("{} other processes", grouped(others.len() as u64)),
                rss,
            });
        }
        processes
    }

    pub(super) fn place(&self, id: ProcessId) -> usize {
        self.places.get(&id).copied().unwrap_or(0)
    }

    /// Resident memory of all processes.
    pub(super) fn rss(&self) -> Vec<Option<u64>> {
        let mut sum = Vec::new();
        for process in &self.list {
            sum.resize(sum.len().max(process.rss.len()), None);
            add(&mut sum, &process.rss);
        }
        sum
    }
}

fn add(sum: &mut [Option<u64>], values: &[Option<u64>]) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum = match (*sum, *value) {
            (Some(sum), Some(value)) => Some(sum.saturating_add(value)),
            (sum, value) => sum.or(value),
        };
    }
}

/// Resident memory at each time: the last sample up to then.
fn resident(samples: &[(u64, MemorySample)], times: &[u64]) -> Vec<Option<u64>> {
    let known: Vec<(u64, u64)> = samples
        .iter()
        .filter_map(|(time, sample)| Some((*time, sample.resident()?)))
        .collect();
    let end = known.last().map(|(time, _)| *time);
    let values = times.iter().enumerate().map(|(index, time)| {
        // A grid point stands for all intervals since the one before.
        let begin = index.checked_sub(1).map_or(0, |before| times[before]);
        let ended = end.is_none_or(|end| end <= begin);
        let before = known.partition_point(|(at, _)| at <= time);
        let last = before.checked_sub(1).filter(|_| !ended)?;
        Some(known[last].1)
    });
    values.collect()
}

/// The data of a recording's page.
pub(super) fn of_recording(recorded: &Recorded, limits: Limits) -> Data {
    let processes = Processes::of(recorded);
    let sites = all(&recorded.snapshot);
    let mut layers = layers::Layers::default();
    let mut tree = Tree::default();
    let mut columns = Sites::default();
    let courses = &recorded.courses;
    let points = courses.times_ns.len();
    let (single, others) = sites.split_at(limits.sites.min(sites.len()));
    let filter = Filter::default();
    for shown in single {
        let key = shown.site.key;
        let mut path: Vec<usize> = Vec::new();
        path.extend(missing(shown.stack).iter().map(|note| tree.note(note)));
        let frames = filter.frames(shown.stack);
        path.extend(frames.iter().rev().map(|frame| tree.frame(frame)));
        let line = program_line(shown.stack);
        columns.node.push(tree.node(path));
        columns
            .line
            .push(tree.line(By::ProgramLine.key(shown.stack), line));
        columns
            .layer
            .push(layers.place(key.layer, key.by_allocator));
        columns.process.push(processes.place(key.process));
        let totals = shown.totals();
        columns.live.push(totals.live_bytes);
        columns.blocks.push(totals.live_count);
        columns.allocated.push(totals.alloc_bytes);
        columns.allocations.push(totals.alloc_count);
        let course = courses.sites.get(&key);
        columns
            .courses
            .push(course.map_or_else(Vec::new, |course| encoded(course, points, limits.step)));
    }
    for rest in rest(others, recorded, &processes) {
        let note = format!("[{} smaller sites]", grouped(rest.sites.len() as u64));
        let place = tree.note(&note);
        columns.node.push(tree.node([place]));
        columns.line.push(tree.line(note, None));
        columns
            .layer
            .push(layers.place(rest.layer, rest.by_allocator));
        columns.process.push(rest.process);
        let of = |metric: Metric| {
            let sites = rest.sites.iter();
            sites.map(|shown| metric.of(&shown.totals())).sum()
        };
        columns.live.push(of(Metric::LiveBytes));
        columns.blocks.push(of(Metric::LiveCount));
        columns.allocated.push(of(Metric::AllocBytes));
        columns.allocations.push(of(Metric::AllocCount));
        columns
            .courses
            .push(encoded(&rest.course, points, limits.step));
    }
    let live = live(recorded, &processes, &mut layers);
    let accounts = recorded.verdicts.accounts.first();
    let round = |seconds: f64| (seconds * 1e3).round() / 1e3;
    Data {
        stacks: tree.stacks(),
        layers: layers.list,
        processes: processes.list,
        times: times(recorded),
        step: limits.step,
        sites: columns,
        live,
        window: accounts.map(|account| (round(account.from), round(account.to))),
        baseline: None,
    }
}

pub(super) fn times(recorded: &Recorded) -> Vec<f64> {
    let times = recorded.courses.times_ns.iter();
    times.map(|time| since(&recorded.snapshot, *time)).collect()
}

/// Live bytes of the layers of each process of a page.
pub(super) fn live(
    recorded: &Recorded,
    processes: &Processes,
    layers: &mut layers::Layers,
) -> Vec<LayerSeries> {
    let mut series: HashMap<(usize, usize), Vec<u64>> = HashMap::new();
    for ((process, layer, by_allocator), live) in &recorded.courses.layers {
        let Some(process) = processes.places.get(process) else {
            continue;
        };
        let Some(layer) = layers.known(*layer, *by_allocator) else {
            continue;
        };
        let sum = series.entry((*process, layer)).or_default();
        sum.resize(live.len(), 0);
        for (sum, live) in sum.iter_mut().zip(live) {
            *sum += live;
        }
    }
    let mut series: Vec<_> = series.into_iter().collect();
    series.sort_by_key(|(key, _)| *key);
    let series = series.into_iter();
    series
        .map(|((process, layer), live)| LayerSeries {
            process,
            layer,
            live,
        })
        .collect()
}

/// The series of all processes together.
pub(super) fn together(series: Vec<LayerSeries>) -> Vec<LayerSeries> {
    let mut layers: BTreeMap<usize, LayerSeries> = BTreeMap::new();
    for LayerSeries { layer, live, .. } in series {
        let sum = layers.entry(layer).or_insert_with(|| LayerSeries {
            process: 0,
            layer,
            live: vec![0; live.len()],
        });
        for (sum, live) in sum.live.iter_mut().zip(live) {
            *sum += live;
        }
    }
    layers.into_values().collect()
}

/// Sites of a layer of a process that are not shown one by one.
struct Rest<'a> {
    process: usize,
    layer: Layer,
    by_allocator: bool,
    sites: Vec<Shown<'a>>,
    course: Course,
}

fn rest<'a>(others: &[Shown<'a>], recorded: &Recorded, processes: &Processes) -> Vec<Rest<'a>> {
    let group =
        |(process, layer, by_allocator): LayerKey| (processes.place(process), layer, by_allocator);
    let courses = &recorded.courses;
    let mut groups: BTreeMap<_, (Vec<Shown<'a>>, Vec<&Course>)> = BTreeMap::new();
    for shown in others {
        let key = shown.site.key;
        let (sites, of_sites) = groups.entry(group(layer_key(&key))).or_default();
        sites.push(shown.clone());
        of_sites.extend(courses.sites.get(&key));
    }
    for (key, course) in &courses.rest {
        if let Some((_, of_sites)) = groups.get_mut(&group(*key)) {
            of_sites.push(course);
        }
    }
    let groups = groups.into_iter();
    groups
        .map(|((process, layer, by_allocator), (sites, of_sites))| Rest {
            process,
            layer,
            by_allocator,
            sites,
            course: sum(of_sites.into_iter()),
        })
        .collect()
}

/// A course as a page has it, see [`Sites::courses`]; each change at the next time at which an
/// interval may begin.
fn encoded(course: &Course, points: usize, step: usize) -> Vec<i64> {
    let last = points.saturating_sub(1);
    let mut changes: Vec<(usize, [i64; 4])> = Vec::new();
    for (slot, change) in course.iter().filter(|(slot, _)| *slot <= last) {
        let slot = last - (last - slot) / step * step;
        add_to(&mut changes, slot, *change);
    }
    let mut encoded = Vec::new();
    let mut before = 0;
    for (slot, change) in changes {
        if change != [0; 4] {
            encoded.push((slot - before) as i64);
            encoded.extend(change);
            before = slot;
        }
    }
    encoded
}
