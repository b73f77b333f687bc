//! Finds the part of a growing process that grows.

use super::{
    class::{Class, Grade},
    context::Context,
    detectors::{rules, undetermined},
    diagnosis::Scope,
    evidence::{Amount, Evidence, Statement, grown},
    finding::Finding,
    rule::OfProcess,
    shape::{Judged, Shape},
    subjects::{COUNT_FLOOR, Growing, JudgedSite, Judging, Part, grade_of},
    thresholds::{MAJORITY, REPORTED, SITE_FLOOR},
};
use crate::{
    analysis::series::{Figure, Place, SiteSeries, place},
    event::Layer,
    frames::mappings::Use,
    ledger::SiteKey,
};

static TOGETHER: Statement = Statement {
    name: "footprint_grows",
    sentence: "resident and swapped memory {growth} in {length}, {rate}, Mann–Kendall p = {p}",
};

static CALLED: Statement = Statement {
    name: "part_of_sites",
    sentence: "sites classified as {class} grew {part}, with the allocator's rounding",
};

static SPREAD: Statement = Statement {
    name: "part_of_many_sites",
    sentence: "live memory grew {part}, spread over many sites: those with a verdict account for less than {least} of it",
};

static ONE_SITE: Statement = Statement {
    name: "part_of_one_site",
    sentence: "live memory grew {part}, most of it at a site whose own growth is not clear",
};

static GOES_ON: Statement = Statement {
    name: "growth_goes_on",
    sentence: "memory that grew {part} slowed down, but resident memory as a whole does not",
};

static WITH_THREADS: Statement = Statement {
    name: "part_with_threads",
    sentence: "threads that do not end, and the blocks that came with each of them, grew {part}",
};

/// Blocks of a site for each new thread, at most, and their distance from a whole number.
const OF_THREAD: f64 = 4.0;
const FROM_WHOLE: f64 = 0.05;

/// Least share of the growth that is of the stacks of these threads.
const OF_STACKS: f64 = 0.05;

/// The class of the largest part; the next one that matters is the runner-up. `None`: slow growth that is no leak.
pub(super) fn largest(judging: &Judging) -> Option<Finding> {
    let growing = Growing::of(judging);
    let trend = &judging.judged.trend;
    let [growth, length, rate] = grown(trend);
    let p = ("p", Amount::Probability(trend.p_value));
    let mut evidence = vec![TOGETHER.with([growth, length, rate, p])];
    let mut parts = growing.parts();
    growing.add_to_threads(&mut parts);
    parts.retain(|part| part.share >= REPORTED);
    // Allocators drift by that little, too.
    if judging.judged.is_slow() {
        parts.retain(|part| part.class.is_leak());
        parts.first()?;
    }
    // That something leaks is known of a part; of what is undetermined, nothing is.
    let has_leak = parts.iter().any(|part| part.class.is_leak());
    let is_last = |part: &Part| has_leak && part.class == Class::Undetermined;
    parts.sort_by(|a, b| {
        let by_share = b.share.total_cmp(&a.share);
        is_last(a).cmp(&is_last(b)).then(by_share)
    });
    // Free memory between leaking blocks cannot be distinguished from memory that would be free
    // without them.
    let leak = parts.iter().position(|part| part.class == Class::Leak);
    if let Some(leak) = leak
        && parts[0].class == Class::Retention
    {
        parts[..=leak].rotate_right(1);
    }
    let mut parts = parts.into_iter();
    let Some(mut first) = parts.next() else {
        evidence.push(undetermined::no_part(&growing));
        return Some(undetermined::growing(evidence, trend));
    };
    // Parts that end while others begin; one with a limit has it, however steadily it fills.
    let goes_on = judging.judged.shape() == Shape::Steady && !growing.fills_limited_caches();
    if first.class == Class::Cache && goes_on {
        let part = ("part", growing.amount(first.share * growing.growth));
        first = Part {
            class: Class::Undetermined,
            grade: Grade::D,
            evidence: GOES_ON.with([part]),
            ..first
        };
    }
    evidence.push(first.evidence);
    let second = parts.next();
    let runner_up = second.as_ref().map(|second| second.class);
    evidence.extend(second.map(|second| Evidence {
        of_runner_up: true,
        ..second.evidence
    }));
    let runner_up = runner_up.filter(|class| *class != first.class);
    Some(Finding {
        class: first.class,
        grade: first.grade,
        evidence,
        runner_up: runner_up.or(first.class.description().mistaken_for),
        rate: Some(trend.slope),
    })
}

impl Growing<'_> {
    /// In the order of the rules.
    fn parts(&self) -> Vec<Part> {
        let parts = rules().filter_map(|rule| match rule.find {
            OfProcess::Part(find) => find(self),
            _ => None,
        });
        let mut parts: Vec<Part> = parts.collect();
        if self.live / self.growth >= REPORTED {
            parts.extend(self.outstanding());
        }
        if self.residual / self.growth >= REPORTED {
            parts.extend(rules().find_map(|rule| match rule.find {
                OfProcess::Unexplained(find) => find(self),
                _ => None,
            }));
        }
        parts
    }

    /// By site, or in total if it is spread over many.
    fn outstanding(&self) -> Vec<Part> {
        let sites = rules().filter_map(|rule| match rule.find {
            OfProcess::Sites => self.of_sites(rule.class),
            _ => None,
        });
        let sites: Vec<Part> = sites.collect();
        match sites.iter().any(|part| part.share >= REPORTED) {
            true => sites,
            false => self.spread().into_iter().collect(),
        }
    }

    /// The part of the growth at sites of a class.
    fn of_sites(&self, class: Class) -> Option<Part> {
        let sites = || {
            let host = self.sites.iter().filter(|site| site.is_of_host());
            host.filter(|site| site.verdict.class == class)
        };
        let bytes = sites().map(|site| site.resident.min(self.live));
        let bytes = bytes.sum::<f64>().min(self.live);
        let best = sites().map(|site| site.verdict.grade).min();
        let evidence = CALLED.with([
            ("class", Amount::Class(class)),
            ("part", self.amount(bytes)),
        ]);
        (bytes > 0.0).then(|| Part {
            grade: grade_of(bytes / self.growth).max(best.unwrap_or(Grade::C)),
            ..self.part(class, bytes, evidence)
        })
    }

    /// Moves blocks that leak with threads to the part of the threads: those that do not end keep what they work with.
    fn add_to_threads(&self, parts: &mut [Part]) {
        let of = |class| parts.iter().position(|part| part.class == class);
        let (Some(leak), Some(threads)) = (of(Class::Leak), of(Class::ThreadLeak)) else {
            return;
        };
        let share = self.with_threads() / self.growth;
        let share = share.min(parts[leak].share);
        if share <= 0.0 || parts[threads].share < OF_STACKS {
            return;
        }
        parts[leak].share -= share;
        let judged = self.sites.iter().map(|site| &site.verdict);
        let of_threads = judged.filter(|of| of.class == Class::ThreadLeak);
        let worst = of_threads.map(|of| of.grade).max().unwrap_or(Grade::C);
        let threads = &mut parts[threads];
        threads.share += share;
        threads.grade = grade_of(threads.share).max(worst);
        threads.evidence = WITH_THREADS.with([("part", self.amount(threads.share * self.growth))]);
    }

    /// Bytes of the sites that leak as many blocks as there are new threads, or a few times as many, and that no container
    /// certainly keeps.
    fn with_threads(&self) -> f64 {
        let Context { series, window, .. } = self.context;
        let threads = self.change(series.figure(Figure::Threads));
        let is_of_threads = |site: &&JudgedSite| {
            let of = self.series_of(site);
            let each = of.map_or(0.0, |of| window.change(&of.live_count)) / threads;
            let whole = each.round();
            let is_kept = of.is_some_and(|of| self.context.is_in_container(&of.key));
            (1.0..=OF_THREAD).contains(&whole) && (each - whole).abs() <= FROM_WHOLE && !is_kept
        };
        // It is chance which line needs the next arena.
        let is_arena = |site: &JudgedSite| matches!(&site.verdict.scope, Scope::Site(key) if key.layer == Layer::Python);
        let leaks = self.sites.iter().filter(|site| {
            let leaks = site.is_of_host() && site.verdict.class == Class::Leak;
            leaks && !is_arena(site) && threads >= COUNT_FLOOR
        });
        leaks.filter(is_of_threads).map(|site| site.resident).sum()
    }

    fn series_of(&self, site: &JudgedSite) -> Option<&SiteSeries> {
        let mut all = self.context.series.sites.iter();
        all.find(|of| site.verdict.scope == Scope::Site(of.key))
    }

    /// Whether most of what is classified as caches is in those that have a limit.
    fn fills_limited_caches(&self) -> bool {
        let sites = self.sites.iter().filter(|site| site.is_of_host());
        let caches = sites.filter(|site| site.verdict.class == Class::Cache);
        let (mut all, mut known) = (0.0, 0.0);
        for site in caches {
            all += site.resident;
            let of = self.series_of(site);
            let has_limit = of.is_some_and(|of| {
                let is_known = of.code.cache.is_some_and(|it| it.limit.is_some());
                is_known || self.context.limited(&of.key).is_some()
            });
            known += if has_limit { site.resident } else { 0.0 };
        }
        known > MAJORITY * all
    }

    /// Many sites that grow a little each: the class that the shape of all together has.
    fn spread(&self) -> Option<Part> {
        let Context { series, window, .. } = self.context;
        let mut all = series.live();
        for (sum, mapped) in all.iter_mut().zip(series.mapped(Use::Program)) {
            *sum += mapped;
        }
        let shape = Judged::of(&series.times, &all, window.from, SITE_FLOOR)
            .map_or(Shape::Flat, |judged| judged.shape());
        let mut host = series
            .sites
            .iter()
            .filter(|site| place(&site.key) == Place::Host);
        let one = host.find(|site| window.change(&site.live_bytes) >= MAJORITY * self.live);
        let is_one = one.is_some();
        let is_judged = |key: &SiteKey| {
            let of = self
                .sites
                .iter()
                .find(|of| of.verdict.scope == Scope::Site(*key));
            of.is_some_and(|of| of.verdict.class != Class::Undetermined)
        };
        // If a single site certainly kept growing, or slowed down, it would have its own verdict.
        let shape = match (shape, one) {
            (Shape::Steady, Some(_)) => Shape::Between,
            (Shape::Slowing, Some(one)) if !is_judged(&one.key) => Shape::Between,
            (other, _) => other,
        };
        let part = ("part", self.amount(self.live));
        let evidence = match is_one {
            true => ONE_SITE.with([part]),
            false => SPREAD
                .with([part])
                .against([("least", Amount::Share(REPORTED))]),
        };
        rules().find_map(|rule| match rule.find {
            OfProcess::Spread(shapes, grade) if shapes.contains(&shape) => Some(Part {
                grade,
                ..self.part(rule.class, self.live, evidence.clone())
            }),
            _ => None,
        })
    }
}
