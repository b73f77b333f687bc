//! The verdicts on the sites of a process.

use super::{
    advice::{self, Advice},
    buffers::{self, Buffers},
    class::{Class, Grade},
    context::Context,
    detectors::SITE,
    diagnosis::{Scope, Verdict},
    evidence::{Amount, Evidence, Statement},
    keepers::pools,
    line,
    offset::{Offset, is_of_older},
    rule::OfSite,
    shape::{Judged, Shape},
    stepped::Stepped,
    subjects::{COUNT_FLOOR, Grown, JudgedSite, LIVE, SiteFinding},
    survival::{self, Survival},
    thresholds::{
        FALSE_DISCOVERIES, HOLDER_FLOOR, LAST_BLOCKS, PROCESS_FLOOR, REPORTED, SITE_FLOOR, SLOWING,
        STEADY, STEADY_BY_WORK, WITHOUT_STACK,
    },
};
use crate::{
    analysis::{
        series::{SiteSeries, place},
        statistics::benjamini_hochberg,
    },
    event::Layer,
    frames::mappings::Use,
    ledger::SiteKey,
};

static SIGNIFICANCE: Statement = Statement {
    name: "significance",
    sentence: "Mann–Kendall p = {p} among all tested sites",
};

static LATE: Statement = Statement {
    name: "late_over_early",
    sentence: "growth per {unit} in the last third is {ratio:.2} × that in the first third (a filling cache: at most {slowing}; a leak: at least {steady})",
};

static RISING: Statement = Statement {
    name: "parts_rising",
    sentence: "grew in {rising} of the last {parts} parts of the recording",
};

static WITHOUT: Statement = Statement {
    name: "without_stack",
    sentence: "{share} of the allocated bytes have no stack: other sites may be among them",
};

static OF_LINE: Statement = Statement {
    name: "stacks_of_line",
    sentence: "{stacks} stacks of one line together, as code and callers change:",
};

static OF_CALLS: Statement = Statement {
    name: "stacks_below_line",
    sentence: "{stacks} stacks below one line of the program together:",
};

static OF_THREADS: Statement = Statement {
    name: "stacks_that_create_threads",
    sentence: "all {stacks} stacks that create threads together, as code and callers change:",
};

static OF_POOL: Statement = Statement {
    name: "sites_of_container",
    sentence: "{sites} sites whose blocks one container keeps, together:",
};

/// Elements for each block, if a container gets what a site allocates: some blocks belong to no element.
const HALF: f64 = 0.5;

/// Judges each site that grew; the fastest growing first. `grows`: so does its process.
pub(super) fn judge(context: &Context, grows: bool) -> Vec<JudgedSite> {
    let tested: Vec<(&SiteSeries, Judged)> = tested_sites(context)
        .filter(|site| {
            let last = site.live_bytes.last();
            last.is_some_and(|last| *last >= floor(site, grows))
        })
        .filter_map(|site| Some((site, course_of(context, site, floor(site, grows))?)))
        .collect();
    let offset = Offset::of(context, &tested);
    let stepped = Stepped::of(context);
    let buffers = Buffers::of(context, &tested, &offset);
    // Sites whose growth is not material cannot be discoveries, so they are left out of the tests.
    let p_values: Vec<f64> = tested
        .iter()
        .filter(|(_, judged)| judged.is_material())
        .map(|(_, judged)| judged.trend.p_value)
        .collect();
    let mut adjusted = benjamini_hochberg(&p_values).into_iter();
    let mut judged: Vec<JudgedSite> = tested
        .into_iter()
        .filter_map(|(site, judged)| {
            let p = match judged.is_material() {
                true => adjusted.next().unwrap_or(1.0),
                false => judged.trend.p_value,
            };
            let found = match stepped.with(site) {
                Some(all) => all.part(context, site)?,
                None => {
                    let found = buffers.find(context, site).or_else(|| {
                        let alone = alone(context, site, &judged, p, offset.of_site(&site.key));
                        let leaks = |found: &(Class, SiteFinding)| found.0.is_leak();
                        match alone.as_ref().is_some_and(leaks) {
                            true => alone,
                            false => buffers::table(context, site).or(alone),
                        }
                    })?;
                    let is_open = found.0 == Class::Undetermined;
                    let is_open = is_open && offset.of_site(&site.key).is_none();
                    let replaced = || buffers::replaced(context, site);
                    is_open.then(replaced).flatten().unwrap_or(found)
                }
            };
            Some(finish(context, site, found))
        })
        .collect();
    let pooled = add_pools(context, &offset, &mut judged);
    add_lines(context, &offset, &mut judged);
    add_calls(context, &offset, &mut judged, &pooled);
    add_threads(context, &offset, &mut judged);
    judged.sort_by(|a, b| b.growth.total_cmp(&a.growth));
    judged
}

/// Judges the sites whose blocks one container keeps by their sum, unless each leaks: its growth has one class. Returns the
/// sites that were judged so.
fn add_pools(context: &Context, offset: &Offset, judged: &mut Vec<JudgedSite>) -> Vec<SiteKey> {
    let mut pooled = Vec::new();
    for pool in pools(context, tested_sites(context)) {
        let class = |site: &SiteSeries| {
            let mut known = judged.iter().map(|of| &of.verdict);
            let known = known.find(|of| of.scope == Scope::Site(site.key));
            known.map(|of| of.class)
        };
        let leaks = |site: &&SiteSeries| class(site).is_some_and(Class::is_leak);
        if pool.iter().all(leaks) {
            continue;
        }
        let found = together(context, offset, &pool);
        if let Some(found) = found.filter(|(class, _)| *class != Class::Undetermined) {
            let sites = Amount::Count(pool.len() as f64);
            let of_pool = OF_POOL.with([("sites", sites)]);
            replace(context, judged, &pool, &found, &of_pool);
            pooled.extend(pool.iter().map(|site| site.key));
        }
    }
    pooled
}

/// Judges the sites of a line together that do not leak each by itself. If they do together, each has its part.
fn add_lines(context: &Context, offset: &Offset, judged: &mut Vec<JudgedSite>) {
    let sites = tested_sites(context).filter(|site| !leaks(judged, site));
    for line in line::of_several(context, sites) {
        let found = together(context, offset, &line);
        if let Some(found) = found.filter(|(class, _)| class.is_leak()) {
            let stacks = Amount::Count(line.len() as f64);
            let of_line = OF_LINE.with([("stacks", stacks)]);
            replace(context, judged, &line, &found, &of_line);
        }
    }
}

/// Judges what a line of the program called together, where it is spread over parts of which none leaks by itself. A
/// container, or its limit, says more about what it keeps.
fn add_calls(context: &Context, offset: &Offset, judged: &mut Vec<JudgedSite>, pooled: &[SiteKey]) {
    let has_container =
        |site: &SiteSeries| pooled.contains(&site.key) || context.limited(&site.key).is_some();
    let sites = tested_sites(context).filter(|site| !leaks(judged, site) && !has_container(site));
    for line in line::of_program(context, sites) {
        let found = together(context, offset, &line);
        let growth = |site: &SiteSeries| context.window.change(&site.live_bytes);
        let found = found.filter(|(class, all)| {
            let is_part = |site: &&SiteSeries| growth(site) < REPORTED * all.growth;
            class.is_leak() && line.iter().all(is_part)
        });
        if let Some(found) = found {
            let stacks = Amount::Count(line.len() as f64);
            let of_calls = OF_CALLS.with([("stacks", stacks)]);
            replace(context, judged, &line, &found, &of_calls);
        }
    }
}

fn leaks(judged: &[JudgedSite], site: &SiteSeries) -> bool {
    let mut leaks = judged.iter().filter(|of| of.verdict.class.is_leak());
    leaks.any(|of| of.verdict.scope == Scope::Site(site.key))
}

/// Judges the stacks of all threads together if no site leaks threads by itself: code that is compiled again creates them at
/// another site.
fn add_threads(context: &Context, offset: &Offset, judged: &mut Vec<JudgedSite>) {
    let (window, sites) = (context.window, context.series.sites.iter());
    let creates = sites.filter(|site| site.mapping == Some(Use::Stack));
    let creates: Vec<&SiteSeries> = creates.collect();
    let more: f64 = creates.iter().map(|of| window.change(&of.live_count)).sum();
    let is_known = judged
        .iter()
        .any(|of| of.verdict.class == Class::ThreadLeak);
    if creates.len() < 2 || more < COUNT_FLOOR || is_known {
        return;
    }
    let found = together(context, offset, &creates);
    if let Some(found) = found.filter(|(class, _)| *class == Class::ThreadLeak) {
        let stacks = Amount::Count(creates.len() as f64);
        let of_threads = OF_THREADS.with([("stacks", stacks)]);
        replace(context, judged, &creates, &found, &of_threads);
    }
}

/// The class of the sum of sites.
fn together(
    context: &Context,
    offset: &Offset,
    sites: &[&SiteSeries],
) -> Option<(Class, SiteFinding)> {
    let all = line::together(sites)?;
    let course = course_of(context, &all, SITE_FLOOR)?;
    let p = course.trend.p_value;
    alone(context, &all, &course, p, offset.of_site(&all.key))
}

/// Gives each of the sites its part of what was `found` for their sum; `why` says what they have in common.
fn replace(
    context: &Context,
    judged: &mut Vec<JudgedSite>,
    sites: &[&SiteSeries],
    found: &(Class, SiteFinding),
    why: &Evidence,
) {
    let is_one = |of: &JudgedSite| {
        let mut scopes = sites.iter().map(|site| Scope::Site(site.key));
        scopes.any(|scope| of.verdict.scope == scope)
    };
    judged.retain(|of| !is_one(of));
    let (class, all) = found;
    let evidence = [std::slice::from_ref(why), &all.evidence].concat();
    let Context { series, window, .. } = context;
    for site in sites {
        let part = SiteFinding {
            evidence: evidence.clone(),
            grade: all.grade,
            runner_up: all.runner_up,
            rate: Some(window.rate(&site.live_bytes, &series.times)),
            growth: window.change(&site.live_bytes),
        };
        if part.growth > 0.0 {
            judged.push(finish(context, site, (*class, part)));
        }
    }
}

/// The sites that are judged: an allocator's own mappings hold blocks, whose sites are.
fn tested_sites<'a>(context: &Context<'a>) -> impl Iterator<Item = &'a SiteSeries> {
    let (window, sites) = (context.window, context.series.sites.iter());
    sites.filter(move |site| match site.mapping {
        Some(Use::Allocator | Use::Driver | Use::Library) => false,
        // The C library keeps some stacks for later threads.
        Some(Use::Stack) => window.change(&site.live_count) >= COUNT_FLOOR,
        Some(Use::Program | Use::Runtime) | None => true,
    })
}

/// A site's own course, after the start.
fn course_of(context: &Context, site: &SiteSeries, floor: f64) -> Option<Judged> {
    let from = |from| Judged::of(&context.series.times, &site.live_bytes, from, floor).ok();
    let judged = from(context.window.from)?;
    // Growth that began with its device, whose start may be later.
    match judged.steepens() {
        true => from(context.window_of(place(&site.key)).from),
        false => Some(judged),
    }
}

/// Least growth of a site that counts, bytes. Very little matters only if it may explain why the
/// process grows.
fn floor(site: &SiteSeries, process_grows: bool) -> f64 {
    match process_grows && site.holes >= PROCESS_FLOOR {
        true => HOLDER_FLOOR,
        false => SITE_FLOOR,
    }
}

/// A site judged by its own course.
fn alone(
    context: &Context,
    site: &SiteSeries,
    judged: &Judged,
    p: f64,
    replaced: Option<&Evidence>,
) -> Option<(Class, SiteFinding)> {
    let is_new = |of: &Evidence| is_of_older(of) && context.grows_with_container(site, HALF);
    let replaced = replaced.filter(|of| !is_new(of));
    let late = judged
        .is_material()
        .then(|| late_to_early(context, site, judged));
    let shape = late
        .as_ref()
        .map_or(Shape::Flat, |late| judged.shape_of(late.ratio, late.steady));
    // If every allocated block stays, growth needs no significance test.
    let goes_on = matches!(shape, Shape::Steady | Shape::Stepped);
    let is_certain =
        p <= FALSE_DISCOVERIES || goes_on && survival::all_stay(context, site).is_some();
    let late = late.filter(|_| is_certain);
    let grows = late.is_some();
    let grown = Grown {
        context,
        site,
        judged,
        shape: if grows { shape } else { Shape::Flat },
        survival: Survival::of(context, site),
        replaced,
    };
    // Memory loaded by an import stays, and says nothing about the program's behaviour.
    if site.code.is_import && grown.shape != Shape::Steady {
        return None;
    }
    let mut rules = SITE.iter().flat_map(|question| question.rules);
    let (class, mut found) = rules.find_map(|rule| {
        let found = match rule.find {
            OfSite::Growing(find) if grows => find(&grown),
            OfSite::Flat(find) if !grows => find(&grown),
            _ => None,
        };
        found.map(|found| (rule.class, found))
    })?;
    if let Some(late) = late.filter(|_| replaced.is_none()) {
        let mut evidence = tests(judged, p, &late);
        evidence.push(grown.survival.evidence());
        found.evidence.splice(0..0, evidence);
    }
    Some((class, found))
}

/// Results of the tests of a growing site.
fn tests(judged: &Judged, p: f64, late: &Late) -> Vec<Evidence> {
    let trend = &judged.trend;
    let mut evidence = vec![
        LIVE.of(trend),
        SIGNIFICANCE.with([("p", Amount::Probability(p))]),
    ];
    evidence.extend(late.ratio.map(|ratio| {
        let values = [
            ("ratio", Amount::Ratio(ratio)),
            ("unit", Amount::Name(late.unit)),
        ];
        LATE.with(values).against([
            ("slowing", Amount::Ratio(SLOWING)),
            ("steady", Amount::Ratio(late.steady)),
        ])
    }));
    let parts = trend.blocks.len().saturating_sub(1).min(LAST_BLOCKS);
    evidence.push(RISING.with([
        (
            "rising",
            Amount::Count(trend.rising_of_last(LAST_BLOCKS) as f64),
        ),
        ("parts", Amount::Count(parts as f64)),
    ]));
    evidence
}

/// The ratio of late to early growth.
struct Late {
    ratio: Option<f64>,
    /// The unit of time or work that growth is counted by.
    unit: &'static str,
    /// The ratio from which growth counts as steady.
    steady: f64,
}

/// By the work that others do meanwhile, if they do enough of it: a program, or its machine, may be busier at one time than
/// at another. Otherwise by time, and so if growth goes on by time while the work came in a burst.
fn late_to_early(context: &Context, site: &SiteSeries, judged: &Judged) -> Late {
    let Context { series, window, .. } = context;
    let by_time = Late {
        ratio: judged.trend.late_to_early(),
        unit: "second",
        steady: STEADY,
    };
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
    let goes_on = matches!(judged.shape(), Shape::Steady | Shape::Stepped);
    if goes_on && window.has_burst(&others) {
        return by_time;
    }
    let clock = others.get(window.from..).unwrap_or_default();
    Late {
        ratio: judged.trend.late_to_early_per(clock),
        unit: "allocation of other sites",
        steady: STEADY_BY_WORK,
    }
}

fn finish(context: &Context, site: &SiteSeries, found: (Class, SiteFinding)) -> JudgedSite {
    let (class, found) = found;
    let SiteFinding {
        mut grade,
        mut evidence,
        growth,
        ..
    } = found;
    let without_stack = context.quality.without_stack;
    if without_stack > WITHOUT_STACK {
        grade = grade.max(Grade::C);
        evidence.push(WITHOUT.with([("share", Amount::Share(without_stack))]));
    }
    let Context { series, window, .. } = context;
    let overhead = series.overhead_of(site);
    let mut next = advice::site(class, site, context);
    if site.key.layer == Layer::Heap && buffers::are_of_buffer(&evidence) {
        let find = next.iter_mut().filter(|of| **of == Advice::FindKeeper);
        find.for_each(|of| *of = Advice::LimitBuffer);
    }
    // A runtime reserves much more than it uses.
    let is_of_runtime = site.mapping == Some(Use::Runtime);
    let touched = context.touched(site).unwrap_or(1.0);
    let resident = if is_of_runtime { touched } else { 1.0 };
    let verdict = Verdict {
        process: site.key.process,
        tgid: context.series.row.tgid,
        scope: Scope::Site(site.key),
        class,
        grade,
        evidence,
        runner_up: Some(found.runner_up),
        next,
        rate: found
            .rate
            .map(|rate| rate * resident + window.rate(&overhead, &series.times)),
        blocks: Some(window.rate(&site.live_count, &series.times)),
        caller: None,
        keeper: None,
        absent: None,
        runtime: site.code.runtime.filter(|_| is_of_runtime),
    };
    JudgedSite {
        verdict,
        growth,
        resident: growth * touched + window.change(&overhead),
        holes: site.holes,
        place: place(&site.key),
    }
}
