//! The course of a process over a recording, on one grid of times: its memory, its live
//! allocations, and the sites that held enough to matter.

mod course;
mod device_series;
mod figure;
mod heap_allocator;
mod place;
mod site;
mod sums;

use std::{cmp::Reverse, collections::HashMap};

pub(crate) use self::device_series::DeviceSeries;

pub(crate) use self::figure::Figure;
pub(crate) use self::place::{Place, place};
pub(crate) use self::site::{Ages, Churning, SiteSeries};
use self::site::{Code, SITE_FLOOR};

pub(crate) use self::course::{MAX_POINTS, least_life};
use self::{
    course::{Course, Grid, SECOND, end_of, end_of_gain, end_of_use},
    figure::FIGURES,
    heap_allocator::Mapped,
};
use super::{
    kin::{self, Kin},
    statistics::MIN_POINTS,
    window::Window,
};
use crate::{
    event::Layer,
    frames::{
        Frame,
        allocators::Allocator,
        caching::{self, CachingAllocator},
        containers,
        mappings::Use,
        runtime_heaps::{self, Executable},
    },
    hash::FastMap,
    ledger::{Holes, ProcessId, SiteKey},
    recording::{
        Error, Fact, IntervalId, MemorySample, Overview, ProcessRow, Recording, SiteFigures, Stack,
    },
};

/// Most sites of a process that are judged one by one: the largest.
const MAX_SITES: usize = 200;

/// Most sites that free their blocks which are kept.
const MAX_CHURNING: usize = 1000;

/// Small sites of a process whose stacks are searched for Python frames.
const PYTHON_LOOKS: u64 = 16;

/// A container whose buffer was never this large is not judged on its own.
const CONTAINER_FLOOR: u64 = 1 << 10;

/// A process over time. Every series has a value for each of `times`; bytes, except counts.
#[derive(Clone, Debug)]
pub(crate) struct ProcessSeries {
    pub row: ProcessRow,
    pub(crate) kin: Kin,
    /// It runs a Python interpreter, according to its facts or its stacks.
    pub is_python: bool,
    /// With the runtime of a language with a heap of its own, according to its files.
    pub(crate) executable: Executable,
    /// Whether malloc was recorded.
    pub has_heap: bool,
    /// Seconds since the start of the recording, in about equal steps.
    pub times: Vec<f64>,
    /// Figures that were read at least once.
    figures: HashMap<Figure, Vec<f64>>,
    /// The point of the last reading of each: costly figures are read rarely.
    last_read: HashMap<Figure, usize>,
    /// Live memory allocated by the process itself.
    pub heap: Vec<f64>,
    /// Blocks of `heap`.
    pub live_blocks: Vec<f64>,
    /// Headers and rounding of the blocks of `heap`, estimated.
    pub overhead: Vec<f64>,
    /// The allocator that has the blocks of `heap`; `None`: not known.
    pub(crate) heap_allocator: Option<&'static Allocator>,
    /// Blocks of the heap allocated so far: a measure of the work done.
    pub allocations: Vec<f64>,
    /// Arenas of Python's object allocator.
    pub python: Vec<f64>,
    mapped: HashMap<Use, Vec<f64>>,
    /// Live memory in the layers other than the process's own memory, without that taken by their
    /// allocators.
    beside: HashMap<(Place, Layer), Vec<f64>>,
    pub devices: Vec<DeviceSeries>,
    /// Sites judged one by one, by key.
    pub sites: Vec<SiteSeries>,
    /// Number of sites too small to be judged on their own.
    pub small_sites: u64,
    /// Those of mappings, and then those with most blocks.
    pub(crate) churning: Vec<Churning>,
    /// What most of its open descriptors were at the end, in words.
    pub(crate) descriptors: Option<String>,
    /// Held open by the blocks of all sites when the heap was last looked through, bytes.
    pub holes: f64,
}

impl ProcessSeries {
    /// `None` if the figure was never read.
    pub(crate) fn figure(&self, figure: Figure) -> Option<&[f64]> {
        self.figures.get(&figure).map(Vec::as_slice)
    }

    /// The growth of `part` for each byte that `whole` grew between the first and the last reading
    /// of `part` in `window`, or over the whole time if those are close together; `None` if `whole`
    /// did not grow meanwhile, or one of them was never read.
    pub(crate) fn share(&self, part: Figure, whole: Figure, window: Window) -> Option<f64> {
        let (of, all) = (self.figure(part)?, self.figure(whole)?);
        let to = (self.last_read.get(&part)? + 1).min(window.to);
        let enough = to >= window.from + (window.to - window.from) / 3;
        let from = if enough { window.from } else { 0 };
        let read = Window { from, to };
        let grown = read.change(all);
        (grown > 0.0).then(|| read.change(of) / grown)
    }

    /// Address space by purpose.
    pub(crate) fn mapped(&self, what: Use) -> Vec<f64> {
        let known = self.mapped.get(&what).cloned();
        known.unwrap_or_else(|| vec![0.0; self.times.len()])
    }

    /// Number of threads' stacks that were mapped while recording, and still are.
    pub(crate) fn stacks(&self) -> Vec<f64> {
        let sites = self.sites.iter();
        let of_stacks = sites.filter(|site| site.mapping == Some(Use::Stack));
        self.sum(of_stacks.map(|site| site.live_count.as_slice()))
    }

    /// Its caching allocator of device memory.
    pub(crate) fn caching_allocator(&self) -> &'static CachingAllocator {
        caching::of_process(|layer| self.beside.keys().any(|(_, of)| *of == layer))
    }

    /// Live memory in a layer other than the process's own memory.
    pub(crate) fn beside(&self, place: Place, layer: Layer) -> Option<&[f64]> {
        self.beside.get(&(place, layer)).map(Vec::as_slice)
    }

    /// Page-locked for any device.
    pub(crate) fn pinned(&self) -> Option<&[f64]> {
        self.beside(Place::Locked, Layer::Pinned)
    }

    /// Cuts off the end of a process that has ended: giving back all its memory may take longer
    /// than an interval, and is not part of its course.
    fn without_end(mut self) -> ProcessSeries {
        if self.row.ended_ns.is_none() {
            return self;
        }
        let live = self.live();
        // Each device separately: a caching allocator keeps memory that an ending program gives back.
        let devices = self.devices.iter();
        let parts = devices
            .flat_map(|device| [&device.outstanding, &device.held])
            .chain(self.beside.values())
            .chain([&live]);
        let ends = parts.map(|part| end_of(part));
        let devices = self.devices.iter();
        let uses = devices.map(|device| end_of_use(&device.outstanding));
        let end = ends.chain(uses).min().unwrap_or(0);
        let end = end.min(end_of_gain(&live));
        self.truncate(end.max(MIN_POINTS));
        self
    }

    fn truncate(&mut self, points: usize) {
        for device in &mut self.devices {
            device.totals.truncate(points);
        }
        let sites = self.sites.iter_mut().flat_map(|site| {
            [
                &mut site.live_bytes,
                &mut site.live_count,
                &mut site.alloc_count,
            ]
        });
        let devices = self.devices.iter_mut().flat_map(|device| {
            [&mut device.outstanding, &mut device.held]
                .into_iter()
                .chain(&mut device.total)
        });
        let own = [
            &mut self.times,
            &mut self.heap,
            &mut self.live_blocks,
            &mut self.overhead,
            &mut self.allocations,
            &mut self.python,
        ];
        for series in own
            .into_iter()
            .chain(self.figures.values_mut())
            .chain(self.mapped.values_mut())
            .chain(self.beside.values_mut())
            .chain(devices)
            .chain(sites)
        {
            series.truncate(points);
        }
    }
}

/// The processes of a recording over time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Courses {
    pub processes: Vec<ProcessSeries>,
    /// Children that ended before a trend could be seen.
    pub too_short: u64,
    /// Allocated by heaps, bytes; and the part of it at sites without a stack.
    pub allocated: u64,
    pub without_stack: u64,
}

/// Reads the series of every process that lived long enough for a trend, and of those requested.
pub(crate) fn read(recording: &Recording, overview: &Overview) -> Result<Courses, Error> {
    let intervals = recording.intervals()?;
    let mut courses = Courses::default();
    let mut processes: Vec<Building> = Vec::new();
    let kin = kin::of_all(overview);
    for row in &overview.processes {
        let is_short = || Grid::new(row, &intervals).is_short(least_life(&overview.meta));
        let kin = kin.get(&row.id).copied().unwrap_or_default();
        // For one that lives on, a longer recording would show more.
        if row.is_group() || kin.is_passing(row) && is_short() {
            courses.too_short += row.processes();
        } else {
            let holes = recording.holes(row.id)?;
            let started_ns = overview.meta.started_ns;
            let mut building = Building::new(row, &intervals, started_ns, holes);
            building.series.kin = kin;
            processes.push(building);
        }
    }
    let by_id: FastMap<ProcessId, usize> = (0..)
        .zip(&processes)
        .map(|(index, building)| (building.series.row.id, index))
        .collect();

    let facts = recording.facts()?;
    let [providers, pythons, descriptors, runtimes, paths] = [
        "malloc.provider",
        "python.version",
        "descriptors.most",
        "runtime.heap",
        "exe.path",
    ]
    .map(|field| of_field(&facts, field));
    for building in &mut processes {
        let id = building.series.row.id;
        let runtime = runtimes.get(&id).copied();
        building.series.executable = Executable {
            runtime: runtime.and_then(runtime_heaps::named),
            path: paths.get(&id).map(|path| (*path).to_owned()),
        };
    }
    let mut mapped: FastMap<ProcessId, Mapped> = FastMap::default();
    let mut uses: FastMap<SiteKey, Use> = FastMap::default();
    let mut keys = Vec::new();
    recording.each_site(|number, site| {
        let key = site.key;
        let stack = overview.stacks.get(key.stack);
        if key.layer == Layer::Heap {
            courses.allocated += site.totals.alloc_bytes;
            if stack.is_empty() {
                courses.without_stack += site.totals.alloc_bytes;
            }
        }
        let Some(index) = by_id.get(&key.process) else {
            return;
        };
        keys.push((number, key));
        if key.layer == Layer::Vm {
            let made_for = site::made_for(key, stack, &processes[*index].series.executable);
            uses.insert(key, made_for);
            if made_for == Use::Allocator {
                let mapped = mapped.entry(key.process).or_default();
                mapped.add(stack.frames(), site.totals.peak_bytes);
            }
        }
        processes[*index].consider(number, site, stack);
    })?;
    for building in &mut processes {
        let id = building.series.row.id;
        let provider = providers.get(&id).copied();
        building.series.is_python |= pythons.contains_key(&id);
        building.series.descriptors = descriptors.get(&id).map(|most| (*most).to_owned());
        building.series.has_heap = !overview.meta.without_heap;
        building.series.heap_allocator = mapped.entry(id).or_default().most(provider);
        building.memory(&recording.memory(id)?);
        let (history, usage) = (recording.device_history(id)?, recording.device_usage(id)?);
        building.series.devices =
            device_series::read(&building.grid, &building.series.row, &history, &usage);
        building.choose_sites();
    }
    recording.site_changes(&keys, |interval, site| {
        if let Some(index) = by_id.get(&site.key.process) {
            processes[*index].change(interval, &site, uses.get(&site.key).copied());
        }
    })?;
    for building in processes {
        let mut ages = HashMap::new();
        for (key, number) in &building.chosen {
            let found = recording.ages(*number)?;
            ages.extend(found.map(|found| {
                let since = found.time_ns.saturating_sub(overview.meta.started_ns);
                let ages = Ages {
                    time: since as f64 / SECOND,
                    live: found.live,
                    freed: found.freed,
                };
                (*key, ages)
            }));
        }
        let finished = building.finish(|key| (uses.get(key).copied(), ages.remove(key)));
        courses.processes.push(finished);
    }
    Ok(courses)
}

/// The value of a field for each process that has it.
fn of_field<'a>(facts: &'a [Fact], field: &str) -> HashMap<ProcessId, &'a str> {
    let facts = facts.iter().filter(|fact| fact.field == field);
    facts
        .filter_map(|fact| Some((fact.process?, fact.value.as_str())))
        .collect()
}

#[derive(Default)]
struct SiteCourse {
    bytes: Course,
    count: Course,
    allocs: Course,
}

/// A site's figures at a change.
#[derive(Clone, Copy, Default)]
struct AtChange {
    bytes: f64,
    count: f64,
    overhead: f64,
    allocs: f64,
}

struct Building<'a> {
    series: ProcessSeries,
    grid: Grid<'a>,
    heap: Course,
    live_blocks: Course,
    overhead: Course,
    allocations: Course,
    python: Course,
    mapped: HashMap<Use, Course>,
    beside: HashMap<(Place, Layer), Course>,
    /// Memory that the blocks of sites hold open, by site number.
    holes: HashMap<i64, Holes>,
    /// Code of the large sites.
    code: FastMap<SiteKey, Code>,
    /// Sites large enough to be judged one by one, and their numbers.
    large: Vec<(i64, SiteFigures)>,
    chosen: HashMap<SiteKey, i64>,
    sites: HashMap<SiteKey, SiteCourse>,
    /// The figures of each site at its last change, for the sums.
    held: HashMap<SiteKey, AtChange>,
}

impl<'a> Building<'a> {
    fn new(
        row: &ProcessRow,
        intervals: &'a [(IntervalId, u64)],
        started_ns: u64,
        holes: HashMap<i64, Holes>,
    ) -> Building<'a> {
        let grid = Grid::new(row, intervals);
        let times = intervals[grid.first.min(intervals.len())..grid.last]
            .chunks_exact(grid.per_point)
            .map(|point| {
                let time = |end: Option<&(IntervalId, u64)>| {
                    end.map_or(0, |(_, time)| time.saturating_sub(started_ns))
                };
                f64::midpoint(time(point.first()) as f64, time(point.last()) as f64) / SECOND
            })
            .collect();
        Building {
            series: ProcessSeries {
                row: row.clone(),
                kin: Kin::default(),
                is_python: false,
                executable: Executable::default(),
                has_heap: true,
                times,
                figures: HashMap::new(),
                last_read: HashMap::new(),
                heap: vec![],
                live_blocks: vec![],
                overhead: vec![],
                heap_allocator: None,
                allocations: vec![],
                python: vec![],
                mapped: HashMap::new(),
                beside: HashMap::new(),
                devices: vec![],
                sites: vec![],
                small_sites: 0,
                churning: vec![],
                descriptors: None,
                holes: holes.values().map(|held| held.bytes as f64).sum(),
            },
            holes,
            code: FastMap::default(),
            grid,
            heap: Course::default(),
            live_blocks: Course::default(),
            overhead: Course::default(),
            allocations: Course::default(),
            python: Course::default(),
            mapped: HashMap::new(),
            beside: HashMap::new(),
            large: Vec::new(),
            chosen: HashMap::new(),
            sites: HashMap::new(),
            held: HashMap::new(),
        }
    }

    /// A figure not read at an interval keeps its last value; before the first reading, the first
    /// one.
    fn memory(&mut self, samples: &[(u64, MemorySample)]) {
        for &(figure, read) in FIGURES {
            let mut course = Course::default();
            let mut last = None;
            for (time, sample) in samples {
                let Some(at) = self.grid.at_time(*time) else {
                    continue;
                };
                if let Some(value) = read(sample) {
                    let from = if last.is_some() { at } else { self.grid.first };
                    course.set(&self.grid, from, value as f64);
                    last = Some(at);
                }
            }
            if let Some(last) = last {
                let point = last.saturating_sub(self.grid.first) / self.grid.per_point;
                self.series.last_read.insert(figure, point);
                let course = course.finish(&self.grid);
                self.series.figures.insert(figure, course);
            }
        }
    }

    /// A site of this process.
    fn consider(&mut self, number: i64, site: SiteFigures, stack: Stack) {
        if place(&site.key) == Place::Within {
            return;
        }
        // Python shows in nearly every stack, so a few are enough.
        if !self.series.is_python && self.series.small_sites < PYTHON_LOOKS {
            self.series.is_python = stack.frames().any(Frame::is_python);
        }
        self.series.churning.extend(Churning::of(&site));
        let peak = site.totals.peak_bytes;
        let may_fill = site.key.layer == Layer::Heap && peak >= CONTAINER_FLOOR;
        let container = may_fill
            .then(|| containers::filled(stack.of_caller()))
            .flatten()
            .map(|(container, _)| container);
        let holes = self.holes.get(&number).map_or(0, |held| held.bytes);
        if peak.max(holes) >= SITE_FLOOR || container.is_some() {
            self.code.insert(
                site.key,
                Code::of(stack, container, &self.series.executable),
            );
            self.large.push((number, site));
        } else {
            self.series.small_sites += 1;
        }
    }

    fn choose_sites(&mut self) {
        let churning = &mut self.series.churning;
        let is_other = |of: &Churning| of.site.layer != Layer::Vm;
        churning.sort_unstable_by_key(|of| (is_other(of), Reverse(of.blocks), of.site));
        churning.truncate(MAX_CHURNING);
        let mut large = std::mem::take(&mut self.large);
        let size = |(number, site): &(i64, SiteFigures)| {
            let holes = self.holes.get(number).map_or(0, |held| held.bytes);
            site.totals.peak_bytes.max(holes)
        };
        large.sort_by_key(|site| (Reverse(size(site)), site.1.key));
        let rest = large.split_off(large.len().min(MAX_SITES));
        self.series.small_sites += rest.len() as u64;
        self.chosen = large
            .into_iter()
            .map(|(number, site)| (site.key, number))
            .collect();
    }

    fn change(&mut self, interval: IntervalId, site: &SiteFigures, mapping: Option<Use>) {
        let Some(at) = self.grid.at(interval) else {
            return;
        };
        let (bytes, count) = (site.totals.live_bytes as f64, site.totals.live_count as f64);
        let now = AtChange {
            bytes,
            count,
            overhead: match site.key.layer {
                Layer::Heap => heap_allocator::overhead(self.series.heap_allocator, bytes, count),
                _ => 0.0,
            },
            allocs: site.totals.alloc_count as f64,
        };
        let before = self.held.insert(site.key, now).unwrap_or_default();
        let grid = &self.grid;
        if site.key.layer == Layer::Heap {
            self.allocations.add(grid, at, now.allocs - before.allocs);
            self.live_blocks.add(grid, at, now.count - before.count);
            self.overhead.add(grid, at, now.overhead - before.overhead);
        }
        let sum = match (place(&site.key), site.key.layer) {
            (Place::Within, _) => return,
            at @ (Place::Device(_) | Place::Locked, _) => self.beside.entry(at).or_default(),
            (Place::Host, Layer::Heap) => &mut self.heap,
            (Place::Host, Layer::Python) => &mut self.python,
            (Place::Host, _) => self
                .mapped
                .entry(mapping.unwrap_or(Use::Program))
                .or_default(),
        };
        sum.add(grid, at, bytes - before.bytes);
        if self.chosen.contains_key(&site.key) {
            let course = self.sites.entry(site.key).or_default();
            course.bytes.set(grid, at, bytes);
            course.count.set(grid, at, count);
            course.allocs.set(grid, at, now.allocs);
        }
    }

    fn finish(
        self,
        mut about: impl FnMut(&SiteKey) -> (Option<Use>, Option<Ages>),
    ) -> ProcessSeries {
        let grid = &self.grid;
        let (chosen, holes, code) = (self.chosen, self.holes, self.code);
        let holes_of = |number| holes.get(&number).map_or(0.0, |held| held.bytes as f64);
        let mut sites: Vec<SiteSeries> = self
            .sites
            .into_iter()
            .map(|(key, course)| {
                let (mapping, ages) = about(&key);
                SiteSeries {
                    key,
                    mapping,
                    live_bytes: course.bytes.finish(grid),
                    live_count: course.count.finish(grid),
                    alloc_count: course.allocs.finish(grid),
                    ages,
                    code: code.get(&key).copied().unwrap_or_default(),
                    holes: chosen.get(&key).map_or(0.0, |number| holes_of(*number)),
                }
            })
            .collect();
        sites.sort_by_key(|site| site.key);
        ProcessSeries {
            heap: self.heap.finish(grid),
            live_blocks: self.live_blocks.finish(grid),
            overhead: self.overhead.finish(grid),
            allocations: self.allocations.finish(grid),
            python: self.python.finish(grid),
            mapped: self
                .mapped
                .into_iter()
                .map(|(what, course)| (what, course.finish(grid)))
                .collect(),
            beside: self
                .beside
                .into_iter()
                .map(|(at, course)| (at, course.finish(grid)))
                .collect(),
            sites,
            ..self.series
        }
        .without_end()
    }
}
