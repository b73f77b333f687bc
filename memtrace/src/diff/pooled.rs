//! The sites of several baselines against those of one new recording.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use super::{
    Error, Growth, Level, Options, Per, Run, Site, SiteDifference, Stack, Workload,
    keys::names,
    matching::{self, Group},
};
use crate::{
    analysis::statistics::{MIN_POINTS, median},
    event::Layer,
    frames::{compared_line, names::source_line},
};

/// Sites that are worth a thread.
const MIN_SHARE: usize = 100;

/// A recording and the unit of its growth.
pub(super) struct Measured<'a> {
    pub(super) run: &'a Run,
    units: Vec<f64>,
    /// Points of the program's start.
    start: usize,
    /// Of sites whose series have this shape. Resampling takes long, and most sites just come, stay or go.
    known: Mutex<HashMap<Shape, Growth>>,
}

/// A series without its size: where it changes, and to which value.
type Shape = Vec<(usize, u64)>;

/// The shape of a series of bytes, and its size: the greatest common divisor of its values.
fn shape(series: &[f64]) -> (Shape, u64) {
    let values = || series.iter().map(|value| *value as u64);
    let least = values().min().unwrap_or(0);
    let size = values()
        .fold(0, |size, value| gcd(value - least, size))
        .max(1);
    let mut before = 0;
    let mut changes = Vec::new();
    for (index, value) in values().map(|value| (value - least) / size).enumerate() {
        if value != before {
            changes.push((index, value));
            before = value;
        }
    }
    (changes, size)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A series of this shape.
fn of_shape(shape: &Shape, points: usize) -> Vec<f64> {
    let mut series = vec![0.0; points];
    for (index, value) in shape {
        series[*index..].fill(*value as f64);
    }
    series
}

impl<'a> Measured<'a> {
    pub(super) fn new(run: &'a Run, per: &Per) -> Result<Measured<'a>, Error> {
        let units = run.units(per);
        match per {
            Per::AllocOf(place) if units.last() == Some(&0.0) => Err(Error::NoSuchPlace {
                run: run.name.clone(),
                place: place.clone(),
                known: run.busiest().join("`, `"),
            }),
            _ => Ok(Measured {
                start: run.start(),
                units,
                run,
                known: Mutex::default(),
            }),
        }
    }

    /// Too few points after the start for an interval.
    pub(super) fn is_short(&self) -> bool {
        self.units.len().saturating_sub(self.start) < MIN_POINTS
    }

    fn growth(&self, sites: &[usize]) -> Growth {
        if sites.is_empty() {
            return Growth::NONE;
        }
        let live = self.run.live(sites.iter().copied());
        let start = self.start.min(live.len());
        let (shape, size) = shape(&live[start..]);
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known().get(&shape).copied();
        let growth = found.unwrap_or_else(|| {
            let units = &self.units[start..];
            let growth = Growth::of(units, &of_shape(&shape, units.len()), 0);
            known().insert(shape, growth);
            growth
        });
        growth.times(size as f64)
    }

    fn sites(&self, sites: &[usize]) -> impl Iterator<Item = &'a Site> {
        let run = self.run;
        sites.iter().map(|site| &run.sites[*site])
    }

    fn bytes(&self, sites: &[usize]) -> u64 {
        self.sites(sites).map(|site| site.live_bytes).sum()
    }

    /// Allocations per unit, after the start.
    fn rate(&self) -> Option<f64> {
        let allocations = self.run.allocations(|_| true);
        let from = self.start.min(self.units.len().saturating_sub(2));
        let units = self.units.last()? - self.units.get(from)?;
        let count = allocations.last()? - allocations.get(from)?;
        (units > 0.0).then(|| count / units)
    }
}

/// Sites of every baseline and of the new recording that are one.
#[derive(Default)]
struct Pool {
    /// By baseline.
    baselines: BTreeMap<usize, Vec<usize>>,
    new: Vec<usize>,
    level: Option<Level>,
}

impl Pool {
    /// The first site of the new recording, or of a baseline.
    fn first<'a>(&self, baselines: &[Measured<'a>], new: &Measured<'a>) -> Option<&'a Site> {
        let of_new = new.sites(&self.new).next();
        of_new.or_else(|| {
            let (index, sites) = self.baselines.iter().next()?;
            baselines[*index].sites(sites).next()
        })
    }

    fn add(&mut self, other: Pool) {
        for (baseline, sites) in other.baselines {
            self.baselines.entry(baseline).or_default().extend(sites);
        }
        self.new.extend(other.new);
        // The least sure of several.
        self.level = self.level.max(other.level);
    }
}

/// Every site of every recording, in exactly one difference.
pub(super) fn differences(
    baselines: &[Measured],
    new: &Measured,
    options: &Options,
) -> Vec<SiteDifference> {
    let pools = pools(baselines, new, options);
    let of = |pools: &[Pool]| -> Vec<SiteDifference> {
        let differences = pools.iter().map(|pool| difference(pool, baselines, new));
        differences.collect()
    };
    // Resampling thousands of series takes seconds on one processor.
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let share = pools.len().div_ceil(threads).max(MIN_SHARE);
    thread::scope(|scope| {
        let of = &of;
        let shares = pools.chunks(share);
        let shares: Vec<_> = shares.map(|share| scope.spawn(|| of(share))).collect();
        let differences = shares.into_iter().flat_map(|share| match share.join() {
            Ok(differences) => differences,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        differences.collect()
    })
}

fn pools(baselines: &[Measured], new: &Measured, options: &Options) -> Vec<Pool> {
    let mut pools: Vec<Pool> = Vec::new();
    // Places of the new recording's sites.
    let mut places: BTreeMap<usize, usize> = BTreeMap::new();
    for (index, baseline) in baselines.iter().enumerate() {
        let sides = [&*baseline.run.sites, &*new.run.sites];
        for group in matching::groups(sides, options.templates) {
            join(&mut pools, &mut places, index, group);
        }
    }
    pools.retain(|pool| !pool.new.is_empty() || !pool.baselines.is_empty());
    let (mut pools, gone): (Vec<_>, Vec<_>) = pools.into_iter().partition(|p| !p.new.is_empty());
    pools.extend(joined_by_name(gone, baselines, options.templates));
    joined_by_line(pools, baselines, new)
}

/// Pools of one line of the program are merged: its callers, templates and JIT-compiled versions are many. A pool that
/// one side lacks joins the pool that has its line there, if there is one such.
fn joined_by_line(mut pools: Vec<Pool>, baselines: &[Measured], new: &Measured) -> Vec<Pool> {
    let is_whole = |pool: &Pool| !pool.new.is_empty() && !pool.baselines.is_empty();
    pools.sort_by_key(|pool| !is_whole(pool));
    let mut joined: Vec<Pool> = Vec::new();
    let mut known: HashMap<[Option<Place>; 2], usize> = HashMap::new();
    // Of pools that have both sides, by the place on one of them; `None`: several have it.
    let mut of_side: [HashMap<Place, Option<usize>>; 2] = Default::default();
    for pool in pools {
        let old = pool.baselines.iter();
        let old = old.flat_map(|(index, sites)| baselines[*index].sites(sites));
        let places = [place(old), place(new.sites(&pool.new))];
        let next = joined.len();
        let at = match (is_whole(&pool), &places) {
            (true, [Some(_), Some(_)]) => *known.entry(places.clone()).or_insert(next),
            (true, _) | (false, [None, None]) => next,
            (false, [old, new]) => {
                let sides = [old, new].into_iter().zip(&of_side);
                let mut sides = sides.filter_map(|(place, known)| *known.get(place.as_ref()?)?);
                let whole = sides.next();
                whole.unwrap_or_else(|| *known.entry(places.clone()).or_insert(next))
            }
        };
        let is_first = at == next && is_whole(&pool);
        for (place, known) in places.into_iter().zip(&mut of_side) {
            if let Some(place) = place.filter(|_| is_first) {
                let several = known.entry(place).and_modify(|at| *at = None);
                several.or_insert(Some(next));
            }
        }
        match joined.get_mut(at) {
            Some(whole) => whole.add(pool),
            None => joined.push(pool),
        }
    }
    joined
}

/// The line of the program that sites are about, in a layer, and the module that it calls.
type Place = (Layer, bool, String, Option<String>);

/// The place of all these sites; `None` if they have several, or one has none.
fn place<'a>(sites: impl Iterator<Item = &'a Site>) -> Option<Place> {
    let of_one = |site: &Site| {
        let shown = site.stack.shown();
        let line = compared_line(&shown).filter(|frame| frame.line.is_some())?;
        let called = shown.first().and_then(|frame| frame.module_name());
        let called = called.map(str::to_owned);
        Some((site.layer, site.is_space, source_line(line)?, called))
    };
    let mut places = sites.map(of_one);
    let first = places.next()??;
    let is_first = |place: Option<Place>| place.as_ref() == Some(&first);
    places.all(is_first).then_some(first)
}

/// Pools that only baselines have: sites of several that look the same are merged.
fn joined_by_name(gone: Vec<Pool>, baselines: &[Measured], templates: bool) -> Vec<Pool> {
    if baselines.len() < 2 {
        return gone;
    }
    let mut joined: BTreeMap<_, Pool> = BTreeMap::new();
    for pool in gone {
        let key = pool.baselines.iter().find_map(|(index, sites)| {
            let site = &baselines[*index].run.sites[*sites.first()?];
            Some((site.layer, site.is_space, names(&site.stack, templates)))
        });
        let whole = joined.entry(key).or_default();
        for (index, sites) in pool.baselines {
            whole.baselines.entry(index).or_default().extend(sites);
        }
    }
    joined.into_values().collect()
}

/// Baselines are matched one by one; sites that match the same site of the new recording are
/// merged.
fn join(pools: &mut Vec<Pool>, places: &mut BTreeMap<usize, usize>, baseline: usize, group: Group) {
    let [old, new] = group.sites;
    let mut pool = Pool::default();
    let mut known: Vec<usize> = new
        .iter()
        .filter_map(|site| places.get(site).copied())
        .collect();
    known.sort_unstable();
    known.dedup();
    for place in &known {
        pool.add(std::mem::take(&mut pools[*place]));
    }
    if !old.is_empty() {
        pool.baselines.entry(baseline).or_default().extend(old);
    }
    pool.new.extend(new);
    pool.new.sort_unstable();
    pool.new.dedup();
    pool.level = pool.level.max(group.level);
    let place = pools.len();
    places.extend(pool.new.iter().map(|site| (*site, place)));
    pools.push(pool);
}

fn difference(pool: &Pool, baselines: &[Measured], new: &Measured) -> SiteDifference {
    let in_baseline = |index: usize| pool.baselines.get(&index).map_or(&[][..], Vec::as_slice);
    let olds = baselines.iter().enumerate();
    let growths: Vec<Growth> = olds
        .clone()
        .map(|(index, side)| side.growth(in_baseline(index)))
        .collect();
    let new_growth = new.growth(&pool.new);
    let old_growth = Growth::pooled(&growths, new_growth.rate);
    let old_stack = pool.baselines.iter().next().map(|(index, sites)| {
        let side = &baselines[*index];
        stack(side, sites)
    });
    let new_stack = (!pool.new.is_empty()).then(|| stack(new, &pool.new));
    let first = pool.first(baselines, new);
    SiteDifference {
        layer: first.map_or(Layer::Heap, |site| site.layer),
        is_space: first.is_some_and(|site| site.is_space),
        level: pool.level,
        baseline: old_growth,
        new: new_growth,
        delta: new_growth.minus(old_growth),
        baseline_bytes: olds
            .map(|(index, side)| side.bytes(in_baseline(index)))
            .sum(),
        new_bytes: new.bytes(&pool.new),
        baseline_stack: old_stack,
        new_stack,
    }
}

/// The stack of the site that holds most, for all.
fn stack(side: &Measured, sites: &[usize]) -> Arc<Stack> {
    let most = side.sites(sites).max_by_key(|site| {
        let last = site.points.last().map_or(0, |(_, point)| point.live_bytes);
        (last, site.live_bytes)
    });
    most.map_or_else(Arc::default, |site| Arc::clone(&site.stack))
}

/// Allocations of both per unit; `None` if allocations are the unit, or the rate is unknown.
pub(super) fn workload(baselines: &[Measured], new: &Measured, per: &Per) -> Option<Workload> {
    if *per == Per::Count {
        return None;
    }
    let rates: Option<Vec<f64>> = baselines.iter().map(Measured::rate).collect();
    Some(Workload {
        baseline: median(&rates?)?,
        new: new.rate()?,
    })
}

#[cfg(test)]
mod tests {
    use super::{Growth, of_shape, shape};

    #[test]
    fn a_series_is_its_shape_times_its_size() {
        let series = [1000.0, 1000.0, 1300.0, 1200.0, 1200.0];
        let (changes, size) = shape(&series);
        assert_eq!((&*changes, size), (&[(2, 3), (3, 2)][..], 100));
        let again: Vec<f64> = of_shape(&changes, 5)
            .iter()
            .map(|value| 1000.0 + 100.0 * value)
            .collect();
        assert_eq!(again, series);
        assert_eq!(shape(&[7.0; 3]), (vec![], 1));
        assert_eq!(shape(&[]), (vec![], 1));
    }

    #[test]
    fn its_growth_is_that_of_its_shape_times_its_size() {
        let x: Vec<f64> = (0..60).map(f64::from).collect();
        let y: Vec<f64> = (0..60u64)
            .map(|i| (4096 + 48 * (i * i % 17 + i)) as f64)
            .collect();
        let (changes, size) = shape(&y);
        let whole = Growth::of(&x, &y, 0);
        let scaled = Growth::of(&x, &of_shape(&changes, 60), 0).times(size as f64);
        let parts = |growth: Growth| {
            let (low, high) = growth.interval.unwrap_or_default();
            [growth.rate, low, high]
        };
        assert!(size >= 48);
        for (one, other) in parts(whole).into_iter().zip(parts(scaled)) {
            assert!(
                (one - other).abs() < 1e-6 * whole.rate.abs(),
                "{whole:?} {scaled:?}"
            );
        }
    }
}
