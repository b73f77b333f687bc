//! The verdicts on a process as a whole: one for each device of which it holds more and more, and
//! one on its own memory, in this order: are the figures good
//! enough; does what it holds grow; which part of it; if nothing grows, does
//! something else (descriptors, mappings), or is what it holds not live, or the machine's doing.

mod beside;
mod part;
mod state;

use super::{
    Class, Grade, Quality, Scope, Verdict, advice,
    evidence::{bytes, percent, rate, signed},
    shape::{Judged, Shape},
    site::{self, Context, JudgedSite},
    thresholds::{LOST, MAJORITY, PROCESS_FLOOR},
};
use crate::{
    analysis::{
        account::{Account, Window, accounts, touched},
        machine::Machine,
        series::{Figure, ProcessSeries},
        statistics::MIN_POINTS,
    },
    frames::mappings::Use,
    recording::Origin,
    units::plural,
};

/// A process's verdict with its sites' and its tables.
pub(super) struct JudgedProcess {
    /// At least one: of its devices that grow, and of its own memory.
    pub(super) verdicts: Vec<Verdict>,
    pub(super) sites: Vec<Verdict>,
    pub(super) window: Window,
    pub(super) accounts: Vec<Account>,
}

/// What is found before it becomes a verdict.
struct Finding {
    class: Class,
    grade: Grade,
    evidence: Vec<String>,
    runner_up: Option<Class>,
    rate: Option<f64>,
}

/// Judges a process; `None` for a child that ended before anything could be told.
pub(super) fn judge(
    series: &ProcessSeries,
    quality: &Quality,
    machine: &Machine,
) -> Option<JudgedProcess> {
    let n = series.times.len();
    if n < MIN_POINTS && series.row.origin == Origin::Child {
        return None;
    }
    let footprint = series.footprint();
    let held = footprint.clone().unwrap_or_else(|| series.live());
    let window = Window::after_start(&held);
    let context = Context {
        series,
        window,
        quality,
        touched: [Use::Program, Use::Stack].map(|what| (what, touched(series, window, what))),
    };
    let judged = Judged::of(&series.times, &held, window.from, PROCESS_FLOOR);
    let sites = match judged {
        Ok(_) => site::judge(&context),
        Err(_) => vec![],
    };
    let (finding, window) = match judged {
        Err(short) => {
            let evidence = vec![format!(
                "{} intervals of this process, expected at least {MIN_POINTS} after its start",
                short.found + window.from
            )];
            (Finding::undetermined(evidence, None), window)
        }
        Ok(_) if quality.lost > LOST => {
            let evidence = vec![format!(
                "{:.1} % of the records were lost: no figure of the ledger can be relied on",
                quality.lost * 100.0
            )];
            (Finding::undetermined(evidence, None), window)
        }
        Ok(judged) => find(&context, &judged, &sites, machine),
    };
    let reliable = quality.lost <= LOST;
    let devices = series.devices.iter().filter(|_| reliable);
    let mut findings: Vec<Finding> = devices
        .filter_map(|device| beside::device(&context, device, &sites))
        .collect();
    // That nothing else grows need not be said beside what does.
    if finding.class != Class::None || findings.is_empty() {
        findings.push(finding);
    }
    let next = |class| {
        if !reliable {
            vec![
                "lose less: `memtrace record --ring-buffer 512m …`, or attach after the start"
                    .into(),
            ]
        } else if n < 2 * MIN_POINTS && class == Class::Undetermined {
            vec![advice::enough(quality.interval)]
        } else {
            advice::process(class, &context)
        }
    };
    let verdicts = findings.into_iter().map(|finding| Verdict {
        process: series.row.id,
        tgid: series.row.tgid,
        scope: Scope::Process,
        class: finding.class,
        grade: finding.grade,
        evidence: finding.evidence,
        runner_up: finding.runner_up,
        next: next(finding.class),
        rate: finding.rate,
    });
    Some(JudgedProcess {
        verdicts: verdicts.collect(),
        sites: sites.into_iter().map(|site| site.verdict).collect(),
        window,
        accounts: accounts(series, window),
    })
}

fn find(
    context: &Context,
    judged: &Judged,
    sites: &[JudgedSite],
    machine: &Machine,
) -> (Finding, Window) {
    let Context { series, window, .. } = context;
    let whole = Window {
        from: 0,
        to: window.to,
    };
    if let Some(finding) = state::copy_on_write(series, whole) {
        return (finding, whole);
    }
    if judged.is_material() {
        return (part::largest(context, judged, sites), *window);
    }
    let finding = beside::pinned(context)
        .or_else(|| counted(context))
        .or_else(|| unseen(context, judged, sites));
    if let Some(finding) = finding {
        return (finding, *window);
    }
    // What can be said of the process itself before what others may do.
    if let Some(finding) = state::held(series).or_else(|| filled(sites)) {
        return (finding, whole);
    }
    if let Some(finding) = beside::machine(machine) {
        return (finding, *window);
    }
    (Finding::none(judged), *window)
}

impl Finding {
    fn undetermined(evidence: Vec<String>, runner_up: Option<Class>) -> Finding {
        Finding {
            class: Class::Undetermined,
            grade: Grade::D,
            evidence,
            runner_up,
            rate: None,
        }
    }

    fn none(judged: &Judged) -> Finding {
        let trend = &judged.trend;
        Finding {
            class: Class::None,
            grade: Grade::B,
            evidence: vec![
                format!(
                    "no material growth in {:.1} s: {} at a level of {}",
                    trend.to - trend.from,
                    rate(trend),
                    bytes(trend.level)
                ),
                format!(
                    "growth of {}/s would have been seen",
                    bytes(judged.detectable())
                ),
            ],
            runner_up: None,
            rate: Some(trend.slope),
        }
    }
}

/// What is counted and not measured in bytes: descriptors, mappings, threads made.
fn counted(context: &Context) -> Option<Finding> {
    /// Least growth of a count.
    const FLOOR: f64 = 20.0;
    let Context { series, window, .. } = context;
    let rising = |figure| {
        let values = series.figure(figure)?;
        let judged = Judged::of(&series.times, values, window.from, FLOOR).ok()?;
        (judged.is_material() && judged.shape() != Shape::Slowing).then_some(judged)
    };
    let found = |class, what: &str, judged: &Judged| {
        let trend = &judged.trend;
        let (growth, seconds) = trend.measured();
        Finding {
            class,
            grade: Grade::B,
            evidence: vec![format!(
                "{what}: {growth:+.0} in {seconds:.1} s, {:+.1}/s (95 %: {:+.1} to {:+.1}/s)",
                trend.slope, trend.interval.0, trend.interval.1
            )],
            runner_up: None,
            rate: None,
        }
    };
    if let Some(judged) = rising(Figure::Descriptors) {
        return Some(found(Class::FdLeak, "open descriptors", &judged));
    }
    if let Some(judged) = rising(Figure::Mappings) {
        return Some(found(Class::MappingLeak, "mappings", &judged));
    }
    let judged = rising(Figure::ThreadsCreated)?;
    let mut finding = found(Class::ThreadChurn, "threads made", &judged);
    finding.grade = Grade::C;
    finding
        .evidence
        .push("resident memory does not grow by them".into());
    Some(finding)
}

/// What the ledger sees and resident memory does not: too small, or not touched.
fn unseen(context: &Context, judged: &Judged, sites: &[JudgedSite]) -> Option<Finding> {
    let leaking = |class| {
        let sites = sites.iter().filter(move |site| site.verdict.class == class);
        sites.map(|site| site.growth).sum::<f64>()
    };
    let (leaks, mapped) = (leaking(Class::Leak), leaking(Class::MappingLeak));
    let class = match (leaks > 0.0, mapped > leaks) {
        (_, true) => Class::MappingLeak,
        (true, false) => Class::Leak,
        (false, false) => return None,
    };
    let of_class = || sites.iter().filter(|site| site.verdict.class == class);
    let growth = leaks.max(mapped);
    let length = judged.trend.to - judged.trend.from;
    let all_good = of_class().all(|site| site.verdict.grade == Grade::B);
    Some(Finding {
        class,
        grade: if all_good { Grade::B } else { Grade::C },
        evidence: vec![
            format!(
                "{} grew by {} in {length:.1} s and go on",
                plural(of_class().count() as u64, "site"),
                bytes(growth)
            ),
            format!(
                "resident memory does not show it yet: {}, {} would be seen",
                rate(&judged.trend),
                bytes(judged.detectable() * length)
            ),
        ],
        runner_up: None,
        rate: Some(growth / context_length(context).max(f64::MIN_POSITIVE)),
    })
}

fn context_length(context: &Context) -> f64 {
    let Context { series, window, .. } = context;
    let points = series.times.get(window.from..window.to).unwrap_or_default();
    points
        .last()
        .zip(points.first())
        .map_or(0.0, |(last, first)| last - first)
}

/// Caches that filled up while they were watched.
fn filled(sites: &[JudgedSite]) -> Option<Finding> {
    let caches = sites
        .iter()
        .filter(|site| site.is_of_host() && site.verdict.class == Class::Cache);
    let count = caches.clone().count();
    let first = caches.clone().next()?;
    let mut evidence = vec![format!(
        "{count} sites grew and then stopped; the first of them:"
    )];
    evidence.extend(first.verdict.evidence.iter().cloned());
    Some(Finding {
        class: Class::Cache,
        grade: Grade::C,
        evidence,
        runner_up: Some(Class::None),
        rate: None,
    })
}

/// Grade by how much of the growth a class explains.
fn grade_of(share: f64) -> Grade {
    if share >= MAJORITY {
        Grade::B
    } else {
        Grade::C
    }
}

/// `+1.5 MiB (60 %)`.
fn part_of(growth: f64, whole: f64) -> String {
    format!("{} ({})", signed(growth), percent(growth / whole))
}
