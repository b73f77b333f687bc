//! The verdicts on a process as a whole: one for each device on which its memory grows, and one on
//! its own memory.

use super::{
    Advice, Class, Grade, Quality, Scope, Verdict, advice,
    detectors::{none, rules, undetermined},
    device,
    evidence::{Amount, Rate, Statement},
    growth,
    rule::{Finding, OfProcess, Unreliable},
    shape::{Judged, Shape},
    site::{self, Context, JudgedSite},
    thresholds::{LOST, PROCESS_FLOOR, STATE_FLOOR},
};
use crate::{
    analysis::{
        account::{Account, accounts, touched},
        series::{Figure, ProcessSeries},
        statistics::{MIN_POINTS, warm_up},
        system::SystemSeries,
        window::Window,
    },
    frames::mappings::Use,
};

/// Least growth of the machine's own memory, bytes: it drifts by more than a process does.
const MACHINE_FLOOR: f64 = 32.0 * 1024.0 * 1024.0;

/// The same as a share of the machine's memory: on a large machine other programs alone account for
/// more.
const OF_MACHINE: f64 = 0.01;

/// Least growth of a count.
pub(super) const COUNT_FLOOR: f64 = 20.0;

/// The process's own resident memory does not grow, though something else does.
pub(super) static NOT_ITS_OWN: Statement = Statement {
    name: "process_is_flat",
    sentence: "the process's own resident memory does not grow",
};

static TOO_SMALL: Statement = Statement {
    name: "sites_go_on",
    sentence: "{sites} grew by {growth} in {length} without slowing down",
};

static NOT_YET: Statement = Statement {
    name: "not_resident_yet",
    sentence: "resident memory does not show it yet: {rate}; {visible} would be visible",
};

/// A process's verdict with its sites' and its tables.
pub(super) struct JudgedProcess {
    /// At least one: of its devices that grow, and of its own memory.
    pub(super) verdicts: Vec<Verdict>,
    pub(super) sites: Vec<Verdict>,
    pub(super) window: Window,
    pub(super) accounts: Vec<Account>,
}

/// A process with reliable figures.
pub(super) struct Judging<'a> {
    pub(super) context: &'a Context<'a>,
    /// The judged series.
    pub(super) judged: &'a Judged,
    pub(super) sites: &'a [JudgedSite],
    pub(super) machine: &'a SystemSeries,
    /// Its whole course, the start included.
    pub(super) whole: Window,
}

/// Judges a process; `None` for a child that ended too early.
pub(super) fn judge(
    series: &ProcessSeries,
    quality: &Quality,
    machine: &SystemSeries,
) -> Option<JudgedProcess> {
    let n = series.times.len();
    let ends = series.times.first().zip(series.times.last());
    let lived = ends.map_or(0.0, |(first, last)| last - first + quality.interval);
    let is_short = lived < quality.least_life;
    if (n < MIN_POINTS || is_short) && series.is_child && series.row.ended_ns.is_some() {
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
    let sites = match &judged {
        Ok(judged) if !is_short => site::judge(&context, judged.is_material()),
        _ => vec![],
    };
    let too_few = judged.as_ref().err();
    let unreliable = unreliable(&Unreliable {
        too_few: too_few.map(|short| short.found + window.from),
        too_short: is_short.then_some((lived, quality.least_life)),
        lost: quality.lost,
    });
    let (finding, window) = match (unreliable, &judged) {
        (None, Ok(judged)) => find(&Judging {
            context: &context,
            judged,
            sites: &sites,
            machine,
            whole: Window {
                from: 0,
                to: window.to,
            },
        }),
        (found, _) => (
            found.unwrap_or_else(|| undetermined::finding(vec![])),
            window,
        ),
    };
    let reliable = quality.lost <= LOST;
    let devices = series.devices.iter().filter(|_| reliable && !is_short);
    let mut findings: Vec<Finding> = devices
        .filter_map(|of| device::judge(&context, of, &sites))
        .collect();
    let on_devices = findings.len();
    // If something grows, "nothing else grows" is not worth a verdict.
    let grows = findings.iter().any(|of| of.class != Class::GpuUnused);
    if finding.class != Class::None || !grows {
        findings.push(finding);
    }
    let blamed: Vec<Class> = sites.iter().map(|site| site.verdict.class).collect();
    let next = |class, on_device| {
        if !reliable {
            vec![Advice::LoseLess]
        } else if (n < 2 * MIN_POINTS || is_short) && class == Class::Undetermined {
            vec![advice::enough(quality)]
        } else {
            advice::process(class, blamed.contains(&class), on_device, &context)
        }
    };
    let verdicts = findings
        .into_iter()
        .enumerate()
        .map(|(nth, finding)| Verdict {
            process: series.row.id,
            tgid: series.row.tgid,
            scope: Scope::Process,
            class: finding.class,
            grade: finding.grade,
            next: next(finding.class, nth < on_devices),
            evidence: finding.evidence,
            runner_up: finding.runner_up,
            rate: finding.rate,
            blocks: None,
            kept_by: None,
        });
    Some(JudgedProcess {
        verdicts: verdicts.collect(),
        sites: sites.into_iter().map(|site| site.verdict).collect(),
        window,
        accounts: accounts(series, window),
    })
}

fn unreliable(figures: &Unreliable) -> Option<Finding> {
    rules().find_map(|rule| match rule.find {
        OfProcess::Unreliable(find) => find(figures),
        _ => None,
    })
}

/// The first rule that applies, and the part of the course that it is about.
fn find(judging: &Judging) -> (Finding, Window) {
    let (window, whole) = (judging.context.window, judging.whole);
    let always = rules().find_map(|rule| match rule.find {
        OfProcess::Always(find) => find(judging),
        _ => None,
    });
    if let Some(found) = always {
        return (found, whole);
    }
    if judging.judged.is_material() {
        return (growth::largest(judging), window);
    }
    let flat = rules().find_map(|rule| match rule.find {
        OfProcess::Flat(find) => find(judging).map(|found| (found, window)),
        OfProcess::State(find) => find(judging).map(|found| (found, whole)),
        OfProcess::Otherwise(find) => Some((find(judging), window)),
        _ => None,
    });
    flat.unwrap_or_else(|| (none::finding(judging), window))
}

impl Judging<'_> {
    /// Anonymous memory at the end, bytes, if there is enough of it to judge its state.
    pub(super) fn anonymous(&self) -> Option<f64> {
        let anonymous = self.at_end(Figure::Anon) + self.at_end(Figure::Swap);
        (anonymous >= STATE_FLOOR).then_some(anonymous)
    }

    pub(super) fn at_end(&self, figure: Figure) -> f64 {
        let values = self.context.series.figure(figure);
        values
            .and_then(|values| values.last())
            .copied()
            .unwrap_or(0.0)
    }

    /// A count (not bytes) that keeps rising.
    pub(super) fn rising(&self, figure: Figure) -> Option<Judged> {
        let Context { series, window, .. } = self.context;
        let values = series.figure(figure)?;
        let judged = Judged::of(&series.times, values, window.from, COUNT_FLOOR).ok()?;
        (judged.is_material() && judged.shape() != Shape::Slowing).then_some(judged)
    }

    /// Growth that the ledger sees but resident memory does not show: too small, or not touched.
    /// Measured by the growth of a class's sites, bytes.
    pub(super) fn unseen(&self, class: Class) -> Finding {
        let of_class = || self.sites.iter().filter(|site| site.verdict.class == class);
        let growth = self.growth_of(class);
        let length = self.judged.trend.to - self.judged.trend.from;
        let all_good = of_class().all(|site| site.verdict.grade == Grade::B);
        let visible = self.judged.detectable() * length;
        Finding {
            class,
            grade: if all_good { Grade::B } else { Grade::C },
            evidence: vec![
                TOO_SMALL.with([
                    ("sites", Amount::Sites(of_class().count() as u64)),
                    ("growth", Amount::Bytes(growth)),
                    ("length", Amount::Seconds(length)),
                ]),
                NOT_YET
                    .with([("rate", Amount::ByteRate((&self.judged.trend).into()))])
                    .against([("visible", Amount::Bytes(visible))]),
            ],
            runner_up: None,
            rate: Some(growth / length.max(f64::MIN_POSITIVE)),
        }
    }

    /// Growth of the sites of a class, bytes.
    pub(super) fn growth_of(&self, class: Class) -> f64 {
        let sites = self.sites.iter().filter(|site| site.verdict.class == class);
        sites.map(|site| site.growth).sum()
    }

    /// Memory of the machine that rises steadily. Others on it may do it.
    pub(super) fn machine_grows(
        &self,
        values: &[f64],
        class: Class,
        statement: &'static Statement,
    ) -> Option<Finding> {
        let floor = MACHINE_FLOOR.max(OF_MACHINE * self.machine.total);
        let judged = Judged::of(&self.machine.times, values, warm_up(values), floor).ok()?;
        steady(&judged, class, statement, Class::None, &NOT_ITS_OWN)
    }
}

/// A steady rise, although the process's resident memory (`own`) does not grow.
pub(super) fn steady(
    judged: &Judged,
    class: Class,
    statement: &'static Statement,
    runner_up: Class,
    own: &'static Statement,
) -> Option<Finding> {
    (judged.shape() == Shape::Steady).then(|| Finding {
        class,
        grade: Grade::C,
        evidence: vec![statement.of(&judged.trend), own.with([])],
        runner_up: Some(runner_up),
        rate: Some(judged.trend.slope),
    })
}

/// A count that rises, whose statement has `{growth}`, `{length}` and `{rate}`.
pub(super) fn counted(class: Class, statement: &'static Statement, judged: &Judged) -> Finding {
    let (growth, seconds) = judged.trend.measured();
    Finding {
        class,
        grade: Grade::B,
        evidence: vec![statement.with([
            ("growth", Amount::CountChange(growth)),
            ("length", Amount::Seconds(seconds)),
            ("rate", Amount::CountRate(Rate::from(&judged.trend))),
        ])],
        runner_up: None,
        rate: None,
    }
}
