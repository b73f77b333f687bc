//! Verdicts on single sites.

use std::collections::{HashMap, HashSet};

use super::{
    Class, Grade, Quality, Scope, Verdict, advice,
    evidence::{bytes, grown, percent, rate, signed},
    shape::{Judged, Shape},
    thresholds::{
        FALSE_DISCOVERIES, LAST_BLOCKS, OF_LEVEL, OF_RESIDUAL, OFFSET, SITE_FLOOR, SLOWING, STEADY,
        STEADY_BY_WORK, SURVIVAL, WITHOUT_STACK,
    },
};
use crate::{
    analysis::{
        account::{EDGE, Window},
        series::{Place, ProcessSeries, SiteSeries, place},
        statistics::{WARM_UP, benjamini_hochberg},
    },
    event::{Device, Layer},
    frames::mappings::Use,
    ledger::SiteKey,
};

/// A site's verdict, and its growth in the window, bytes.
pub(super) struct JudgedSite {
    pub(super) verdict: Verdict,
    pub(super) growth: f64,
    /// The part of `growth` that became resident, bytes.
    pub(super) resident: f64,
    place: Place,
}

impl JudgedSite {
    /// Whether it is memory of this device.
    pub(super) fn is_on(&self, device: Device) -> bool {
        self.place == Place::Device(device)
    }

    /// Whether it is part of the process's own memory.
    pub(super) fn is_of_host(&self) -> bool {
        self.place == Place::Host
    }
}

/// What the sites of a process are judged by.
pub(super) struct Context<'a> {
    pub(super) series: &'a ProcessSeries,
    pub(super) window: Window,
    pub(super) quality: &'a Quality,
    /// How much of what was mapped became resident, of the program's mappings and of stacks.
    pub(super) touched: [(Use, Option<f64>); 2],
}

impl Context<'_> {
    /// How much of the site's mappings became resident; `None` where that is not known, or all is.
    fn touched(&self, site: &SiteSeries) -> Option<f64> {
        let mut known = self.touched.iter();
        known.find(|(what, _)| Some(*what) == site.mapping)?.1
    }
}

/// Judges each site that grew; the fastest growing first.
pub(super) fn judge(context: &Context) -> Vec<JudgedSite> {
    let Context { series, window, .. } = context;
    // An allocator's own mappings hold blocks, whose sites are judged.
    let sites = series
        .sites
        .iter()
        .filter(|site| !matches!(site.mapping, Some(Use::Allocator | Use::Library)));
    let tested: Vec<(&SiteSeries, Judged)> = sites
        .filter(|site| {
            site.live_bytes
                .last()
                .is_some_and(|last| *last >= SITE_FLOOR)
        })
        .filter_map(|site| {
            let judged = Judged::of(&series.times, &site.live_bytes, window.from, SITE_FLOOR);
            judged.ok().map(|judged| (site, judged))
        })
        .collect();
    let offset = Offset::of(context, &tested);
    let arenas = arenas(context);
    // Of a site that never changes nothing can be discovered: it is none of the many tests.
    let p_values: Vec<f64> = tested
        .iter()
        .map(|(_, judged)| judged.trend.p_value)
        .filter(|p| *p < 1.0)
        .collect();
    let mut adjusted = benjamini_hochberg(&p_values).into_iter();
    let mut judged: Vec<JudgedSite> = tested
        .into_iter()
        .filter_map(|(site, judged)| {
            let p = match judged.trend.p_value {
                tested if tested < 1.0 => adjusted.next().unwrap_or(1.0),
                unchanged => unchanged,
            };
            let grows = judged.is_material() && p <= FALSE_DISCOVERIES;
            match arenas.as_ref().filter(|_| site.key.layer == Layer::Python) {
                Some(arenas) if arenas.is_material() => arena(context, site, arenas),
                Some(_) => None,
                None if grows && offset.covers(&site.key) => replaced(context, site, &judged),
                None if grows => Some(growing(context, site, &judged, p)),
                None => filled(context, site, &judged),
            }
        })
        .collect();
    judged.sort_by(|a, b| b.growth.total_cmp(&a.growth));
    judged
}

/// A site that grows to the end.
fn growing(context: &Context, site: &SiteSeries, judged: &Judged, p: f64) -> JudgedSite {
    let trend = &judged.trend;
    let mut evidence = vec![
        format!("live bytes {}, {}", grown(trend), rate(trend)),
        format!("Mann–Kendall p = {p:.1e} among all tested sites"),
    ];
    let (ratio, clock, steady) = late_to_early(context, site, judged);
    if let Some(ratio) = ratio {
        evidence.push(format!(
            "late over early growth {ratio:.2} by {clock} (a cache that fills: at most {SLOWING}; a leak: at least {steady})"
        ));
    }
    let steps = trend.blocks.len().saturating_sub(1).min(LAST_BLOCKS);
    let rising = trend.rising_of_last(LAST_BLOCKS);
    evidence.push(format!(
        "grew in {rising} of the last {steps} parts of the recording"
    ));
    let survival = survival(context, site);
    evidence.push(survival.words());
    let (class, grade, runner_up) = match judged.shape_of(ratio, steady) {
        Shape::Slowing => (Class::Cache, Grade::C, Some(Class::Leak)),
        Shape::Steady => match survival {
            Survival::Share(share) if share < SURVIVAL => {
                (Class::Undetermined, Grade::D, Some(Class::Leak))
            }
            Survival::Unknown => (leak(context, site), Grade::C, Some(Class::Cache)),
            Survival::Share(_) | Survival::OneBlock => {
                (leak(context, site), Grade::B, Some(Class::Cache))
            }
        },
        Shape::Between | Shape::Flat => (Class::Undetermined, Grade::D, Some(Class::Leak)),
    };
    if class == Class::MappingLeak {
        evidence.push(format!(
            "resident memory grew by {} of what was mapped: mostly not touched",
            percent(context.touched(site).unwrap_or(0.0))
        ));
    }
    finish(
        context,
        site,
        class,
        grade,
        evidence,
        runner_up,
        Some(trend.slope),
        trend.growth(),
    )
}

/// Late over early growth, by what, and from where on it is steady: by the work that others do meanwhile, where they do enough to tell: a
/// program, or its machine, may be busier at one time than at another. Otherwise by time.
fn late_to_early(
    context: &Context,
    site: &SiteSeries,
    judged: &Judged,
) -> (Option<f64>, &'static str, f64) {
    let Context { series, window, .. } = context;
    let by_time = (judged.trend.late_to_early(), "time", STEADY);
    if site.key.layer != Layer::Heap {
        return by_time;
    }
    let others: Vec<f64> = series
        .allocations
        .iter()
        .zip(&site.alloc_count)
        .map(|(all, own)| all - own)
        .collect();
    if window.change(&others) < window.change(&site.alloc_count) {
        return by_time;
    }
    let clock = others.get(window.from..).unwrap_or_default();
    (
        judged.trend.late_to_early_per(clock),
        "allocations of other sites",
        STEADY_BY_WORK,
    )
}

/// Where memory is of a layer in which what some sites gained others lost: blocks of one site take the
/// place of another's, as when a list that was filled in one place is kept up in another.
struct Offset(HashSet<(Place, Layer)>);

impl Offset {
    fn of(context: &Context, tested: &[(&SiteSeries, Judged)]) -> Offset {
        let Context { series, window, .. } = context;
        let net = |at: (Place, Layer), window: Window| match at {
            (Place::Host, Layer::Heap) => window.change(&series.heap),
            (Place::Host, Layer::Python) => window.change(&series.python),
            (Place::Host, _) => [Use::Program, Use::Stack]
                .map(|what| window.change(&series.mapped(what)))
                .iter()
                .sum(),
            (place, layer) => {
                let of = |place| {
                    series
                        .beside(place, layer)
                        .map_or(0.0, |of| window.change(of))
                };
                // What went of a device that is not known may be of this one.
                of(place) + of(Place::Device(None)).min(0.0)
            }
        };
        let mut gained: HashMap<(Place, Layer), Vec<&SiteSeries>> = HashMap::new();
        for (site, judged) in tested {
            if judged.is_material() {
                let at = (place(&site.key), site.key.layer);
                gained.entry(at).or_default().push(site);
            }
        }
        let covered = gained.into_iter().filter(|(at, sites)| {
            // What goes at the start of a device, which may be later than the process's, makes no room.
            let mut devices = series.devices.iter();
            let device = devices.find(|device| at.0 == Place::Device(device.index));
            let start = device.map_or(0, |device| device.window().from);
            let over = Window {
                from: window.from.max(start),
                ..*window
            };
            let gained = sites.iter().map(|site| over.change(&site.live_bytes));
            net(*at, over) < OFFSET * gained.sum::<f64>()
        });
        Offset(covered.map(|(at, _)| at).collect())
    }

    fn covers(&self, key: &SiteKey) -> bool {
        self.0.contains(&(place(key), key.layer))
    }
}

/// A site that grew by about as much as others of its layer shrank: nothing is said of it unless
/// the process grows.
fn replaced(context: &Context, site: &SiteSeries, judged: &Judged) -> Option<JudgedSite> {
    let trend = &judged.trend;
    let evidence = vec![
        format!("live bytes {}, {}", grown(trend), rate(trend)),
        "other sites of the layer shrank as much: blocks take one another's place".into(),
    ];
    let runner_up = Some(Class::Leak);
    let class = Class::Undetermined;
    let finished = finish(
        context,
        site,
        class,
        Grade::D,
        evidence,
        runner_up,
        None,
        trend.growth(),
    );
    Some(finished)
}

/// The course of all arenas of Python's object allocator together.
fn arenas(context: &Context) -> Option<Judged> {
    let Context { series, window, .. } = context;
    Judged::of(&series.times, &series.python, window.from, SITE_FLOOR).ok()
}

/// A site that took arenas. Which one needs the next is chance, so all together have one shape.
fn arena(context: &Context, site: &SiteSeries, arenas: &Judged) -> Option<JudgedSite> {
    let growth = context.window.change(&site.live_bytes);
    let trend = &arenas.trend;
    if growth < arenas.threshold || growth < OF_LEVEL * trend.growth() {
        return None;
    }
    let class = match arenas.shape() {
        Shape::Steady => Class::Leak,
        Shape::Slowing => Class::Cache,
        Shape::Between | Shape::Flat => Class::Undetermined,
    };
    let evidence = vec![
        format!(
            "{} of the arenas of Python's object allocator were needed here",
            signed(growth)
        ),
        format!("all arenas: {}, {}", grown(trend), rate(trend)),
        "an arena holds many objects: the line is the one that needed a new one".into(),
    ];
    let length = trend.to - trend.from;
    let runner_up = match class {
        Class::Leak => Some(Class::Cache),
        _ => Some(Class::Leak),
    };
    let rate = Some(growth / length.max(f64::MIN_POSITIVE));
    Some(finish(
        context,
        site,
        class,
        Grade::C,
        evidence,
        runner_up,
        rate,
        growth,
    ))
}

/// Memory that is mapped and not touched costs address space only.
fn leak(context: &Context, site: &SiteSeries) -> Class {
    match place(&site.key) {
        Place::Locked => return Class::Pinned,
        Place::Device(_) => return Class::GpuLeak,
        Place::Host | Place::Within => {}
    }
    match context.touched(site) {
        Some(share) if share < OF_RESIDUAL => Class::MappingLeak,
        _ => Class::Leak,
    }
}

/// A site that grew after the first moments and stopped: a cache that is full.
fn filled(context: &Context, site: &SiteSeries, judged: &Judged) -> Option<JudgedSite> {
    let Window { from, to } = context.window;
    let start = (to as f64 * WARM_UP) as usize;
    let since = Window { from: start, to };
    let growth = since.change(&site.live_bytes);
    let late = judged.trend.growth();
    // A load that comes and goes is now here, now there: what stays is never again as low.
    let part = |from: usize, to: usize| site.live_bytes.get(from..to).unwrap_or_default();
    let before = part(start, start + (to - start) / EDGE);
    let after = part(from.max(to / 2), to);
    let highest = before.iter().copied().fold(0.0, f64::max);
    let lowest = after.iter().copied().fold(f64::INFINITY, f64::min);
    let stays = lowest - highest >= growth / 2.0;
    let full = growth >= judged.threshold && late < judged.threshold && late < SLOWING * growth;
    if !full || !stays {
        return None;
    }
    let length = judged.trend.to - judged.trend.from;
    let evidence = vec![
        format!(
            "live bytes {} since the first fifth of the recording",
            signed(growth)
        ),
        format!(
            "then flat at {} for {length:.0} s: {}",
            bytes(judged.trend.level),
            rate(&judged.trend)
        ),
    ];
    let runner_up = Some(Class::None);
    Some(finish(
        context,
        site,
        Class::Cache,
        Grade::C,
        evidence,
        runner_up,
        None,
        late.max(0.0),
    ))
}

#[allow(
    clippy::too_many_arguments,
    reason = "the fields of one verdict, by the two functions that make one"
)]
fn finish(
    context: &Context,
    site: &SiteSeries,
    class: Class,
    mut grade: Grade,
    mut evidence: Vec<String>,
    runner_up: Option<Class>,
    rate: Option<f64>,
    growth: f64,
) -> JudgedSite {
    if context.quality.without_stack > WITHOUT_STACK {
        grade = grade.max(Grade::C);
        evidence.push(format!(
            "{} of the allocated bytes have no stack: other sites may be among them",
            percent(context.quality.without_stack)
        ));
    }
    let verdict = Verdict {
        process: site.key.process,
        tgid: context.series.row.tgid,
        scope: Scope::Site(site.key),
        class,
        grade,
        evidence,
        runner_up,
        next: advice::site(class, site.key.layer, context),
        rate,
    };
    JudgedSite {
        verdict,
        growth,
        resident: growth * context.touched(site).unwrap_or(1.0),
        place: place(&site.key),
    }
}

/// What became of the blocks that outlived a quarter of the window.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Survival {
    Share(f64),
    /// The number of blocks does not grow: one block does, by realloc.
    OneBlock,
    /// The process has ended, and gave back what it had on its way.
    Unknown,
}

impl Survival {
    fn words(self) -> String {
        match self {
            Survival::Share(share) => format!(
                "{} of the blocks that grew old are still there (a leak: at least {})",
                percent(share),
                percent(SURVIVAL)
            ),
            Survival::OneBlock => "the number of blocks does not grow, their size does".into(),
            Survival::Unknown => "which blocks grow old is not known: the process has ended".into(),
        }
    }
}

fn survival(context: &Context, site: &SiteSeries) -> Survival {
    let Context { series, window, .. } = context;
    let (from, to) = (window.from, window.to.saturating_sub(1));
    let at = |values: &[f64], index: usize| values.get(index).copied().unwrap_or(0.0);
    let more = at(&site.live_count, to) - at(&site.live_count, from);
    if more < 2.0 {
        return Survival::OneBlock;
    }
    let allocated = at(&site.alloc_count, to) - at(&site.alloc_count, from);
    if more >= SURVIVAL * allocated {
        return Survival::Share((more / allocated.max(1.0)).min(1.0));
    }
    if series.row.ended_ns.is_some() {
        return Survival::Unknown;
    }
    let length = at(&series.times, to) - at(&series.times, from);
    let bucket = ((length / 4.0 * 1e9).max(1.0)).log2().floor();
    let age = bucket.exp2() / 1e9;
    let freed: u64 = site.lifetimes.iter().skip(bucket as usize).sum();
    // In steady growth as many are old now as there were then: the young ones of then have gone,
    // or grown old.
    let then = series
        .times
        .partition_point(|time| *time < at(&series.times, to) - age);
    let old = at(&site.live_count, then).min(at(&site.live_count, to));
    match old + freed as f64 {
        0.0 => Survival::Share(0.0),
        all => Survival::Share(old / all),
    }
}
