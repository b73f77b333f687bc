//! Which part of a growing process grows.

use super::{Finding, grade_of, part_of};
use crate::analysis::{
    account::{Kind, Term, accounts},
    series::Figure,
    verdict::{
        Class, Grade,
        evidence::{grown, rate},
        shape::{Judged, Shape},
        site::{Context, JudgedSite},
        thresholds::{OF_RESIDUAL, PROCESS_FLOOR, REPORTED, SITE_FLOOR},
    },
};
use crate::frames::mappings::Use;

/// What one live block can keep from being given back, bytes.
const PAGE: f64 = 4096.0;

/// A class and how much of the growth it has.
struct Candidate {
    class: Class,
    share: f64,
    grade: Grade,
    evidence: Vec<String>,
}

/// The class of the largest part; the next one that matters is the runner-up.
pub(super) fn largest(context: &Context, judged: &Judged, sites: &[JudgedSite]) -> Finding {
    let Context { series, window, .. } = context;
    let trend = &judged.trend;
    let footprint = series.footprint().unwrap_or_else(|| series.live());
    let growth = window.change(&footprint).max(f64::MIN_POSITIVE);
    let mut evidence = vec![format!(
        "resident and swapped memory {}, {}, Mann–Kendall p = {:.1e}",
        grown(trend),
        rate(trend),
        trend.p_value
    )];
    let (live, residual) = split(context, growth);
    let mut candidates = file_and_shared(context, growth, residual);
    candidates.extend(outstanding(context, growth, live, sites));
    candidates.extend(not_outstanding(context, growth, residual));
    candidates.retain(|candidate| candidate.share >= REPORTED);
    candidates.sort_by(|a, b| b.share.total_cmp(&a.share));
    // What lies free between blocks that leak cannot be told from what would be free without them.
    let leak = candidates
        .iter()
        .position(|found| found.class == Class::Leak);
    if let Some(leak) = leak
        && candidates[0].class == Class::Retention
    {
        candidates[..=leak].rotate_right(1);
    }
    let mut candidates = candidates.into_iter();
    let Some(first) = candidates.next() else {
        evidence.push(format!(
            "no kind of memory has 30 % of it: live {}, not explained {}",
            part_of(live, growth),
            part_of(residual, growth)
        ));
        return Finding::undetermined(evidence, None);
    };
    evidence.extend(first.evidence);
    let second = candidates.next();
    if let Some(second) = &second {
        evidence.push(format!("besides: {}", second.evidence.join("; ")));
    }
    let runner_up = second
        .map(|second| second.class)
        .filter(|class| *class != first.class);
    Finding {
        class: first.class,
        grade: first.grade,
        evidence,
        runner_up: runner_up.or_else(|| usual_confusion(first.class)),
        rate: Some(trend.slope),
    }
}

/// What a class is most often mistaken for.
fn usual_confusion(class: Class) -> Option<Class> {
    match class {
        Class::Leak => Some(Class::Cache),
        Class::Cache | Class::Undetermined => Some(Class::Leak),
        Class::Thp | Class::MadvFree => Some(Class::Retention),
        Class::Shmem => Some(Class::Pinned),
        _ => None,
    }
}

/// Growth of anonymous memory that is outstanding, and the rest of it.
fn split(context: &Context, growth: f64) -> (f64, f64) {
    let accounts = accounts(context.series, context.window);
    match accounts
        .iter()
        .find(|account| account.kind == Kind::Anonymous)
    {
        Some(account) => {
            let residual = account.of(Term::Retained) + account.of(Term::Unattributed);
            (account.growth - residual, residual)
        }
        None => (growth, 0.0),
    }
}

fn file_and_shared(context: &Context, growth: f64, residual: f64) -> Vec<Candidate> {
    let change =
        |values: Option<&[f64]>| values.map_or(0.0, |values| context.window.change(values));
    let [file, shared] =
        [Figure::File, Figure::Shmem].map(|figure| change(context.series.figure(figure)));
    // Page-locked memory may be shared memory, as NVIDIA's driver makes it, or of no other kind.
    let room = shared.max(0.0) + residual.max(0.0);
    let pinned = change(context.series.pinned()).min(room);
    let shared = shared - pinned.clamp(0.0, shared.max(0.0));
    vec![
        Candidate {
            class: Class::Pinned,
            share: pinned / growth,
            grade: grade_of(pinned / growth),
            evidence: vec![format!("page-locked memory {}", part_of(pinned, growth))],
        },
        Candidate {
            class: Class::PageCache,
            share: file / growth,
            grade: grade_of(file / growth),
            evidence: vec![format!("pages of files {}", part_of(file, growth))],
        },
        Candidate {
            class: Class::Shmem,
            share: shared / growth,
            grade: grade_of(shared / growth),
            evidence: vec![format!("shared memory {}", part_of(shared, growth))],
        },
    ]
}

/// Leak or cache: by the sites, or by the whole where it is spread over many.
fn outstanding(context: &Context, growth: f64, live: f64, sites: &[JudgedSite]) -> Vec<Candidate> {
    if live / growth < REPORTED {
        return vec![];
    }
    let host = || sites.iter().filter(|site| site.is_of_host());
    let of = |class: Class| {
        let sites = host().filter(move |site| site.verdict.class == class);
        sites
            .map(|site| site.resident.min(live))
            .sum::<f64>()
            .min(live)
    };
    let worst = |class: Class| {
        let sites = host().filter(|site| site.verdict.class == class);
        sites
            .map(|site| site.verdict.grade)
            .min()
            .unwrap_or(Grade::C)
    };
    let mut candidates = Vec::new();
    for class in [
        Class::Leak,
        Class::Cache,
        Class::Undetermined,
        Class::MappingLeak,
    ] {
        let bytes = of(class);
        if bytes > 0.0 {
            candidates.push(Candidate {
                class,
                share: bytes / growth,
                grade: grade_of(bytes / growth).max(worst(class)),
                evidence: vec![format!(
                    "sites called {} grew {}",
                    class.name(),
                    part_of(bytes, growth)
                )],
            });
        }
    }
    if candidates
        .iter()
        .any(|candidate| candidate.share >= REPORTED)
    {
        return candidates;
    }
    // No site by itself: many that grow a little each.
    let series = context.series;
    let mut all = series.live();
    for (sum, mapped) in all.iter_mut().zip(series.mapped(Use::Program)) {
        *sum += mapped;
    }
    let shape = Judged::of(&series.times, &all, context.window.from, SITE_FLOOR)
        .map_or(Shape::Flat, |judged| judged.shape());
    let class = match shape {
        Shape::Steady => Class::Leak,
        Shape::Slowing => Class::Cache,
        Shape::Between | Shape::Flat => Class::Undetermined,
    };
    vec![Candidate {
        class,
        share: live / growth,
        grade: if class == Class::Undetermined {
            Grade::D
        } else {
            Grade::C
        },
        evidence: vec![format!(
            "what is outstanding grew {}, spread over sites that each grow too little to be judged",
            part_of(live, growth)
        )],
    }]
}

/// What grows though nothing live does.
fn not_outstanding(context: &Context, growth: f64, residual: f64) -> Vec<Candidate> {
    if residual / growth < REPORTED {
        return vec![];
    }
    let Context { series, window, .. } = context;
    let anonymous = series
        .figure(Figure::Anon)
        .map_or(0.0, |values| window.change(values));
    let of_anonymous = |figure| {
        let share = series.share(figure, Figure::Anon, *window).unwrap_or(0.0);
        share.clamp(0.0, 1.0) * anonymous
    };
    let (lazy, huge) = (
        of_anonymous(Figure::LazyFree),
        of_anonymous(Figure::HugePages),
    );
    let candidate = |class, bytes: f64, grade, words: String| Candidate {
        class,
        share: bytes / growth,
        grade,
        evidence: vec![words],
    };
    if lazy >= OF_RESIDUAL * residual {
        let words = format!("freed lazily (LazyFree) {}", part_of(lazy, growth));
        return vec![candidate(
            Class::MadvFree,
            lazy.min(residual),
            grade_of(lazy / growth),
            words,
        )];
    }
    if huge >= OF_RESIDUAL * residual {
        let words = format!(
            "huge pages (AnonHugePages) {}, while nothing outstanding explains {}",
            part_of(huge, growth),
            part_of(residual, growth)
        );
        return vec![candidate(
            Class::Thp,
            huge.min(residual),
            grade_of(huge / growth),
            words,
        )];
    }
    let churn = series.figure(Figure::ThreadsCreated).and_then(|made| {
        let judged = Judged::of(&series.times, made, window.from, 20.0).ok()?;
        judged.is_material().then(|| window.change(made))
    });
    if let Some(made) = churn {
        let words = format!(
            "{made:.0} threads made, while nothing outstanding explains {}",
            part_of(residual, growth)
        );
        return vec![candidate(Class::ThreadChurn, residual, Grade::C, words)];
    }
    let retained = accounts(series, *window)
        .first()
        .map_or(0.0, |account| account.of(Term::Retained));
    let judge = |values: &[f64]| Judged::of(&series.times, values, window.from, PROCESS_FLOOR);
    let live = judge(&series.live());
    let live = live.map_or_else(|short| short.to_string(), |judged| rate(&judged.trend));
    if retained >= OF_RESIDUAL * residual {
        let blocks = window.change(&series.live_blocks);
        if judge(&series.heap).is_ok_and(|heap| heap.shape() == Shape::Steady)
            && blocks * PAGE >= retained
        {
            let words = format!(
                "the allocator has {} between {blocks:.0} new live blocks, each of which can keep a page: live memory {live}",
                part_of(retained, growth)
            );
            return vec![candidate(Class::Leak, residual, Grade::C, words)];
        }
        let words = format!(
            "the allocator has up to {} that is not live; live memory {live}",
            part_of(retained, growth)
        );
        return vec![candidate(
            Class::Retention,
            residual,
            grade_of(retained / growth),
            words,
        )];
    }
    let words = format!(
        "nothing outstanding explains {}: first use of memory taken before, or what memtrace does not see; live memory {live}",
        part_of(residual, growth)
    );
    vec![candidate(Class::Undetermined, residual, Grade::D, words)]
}
