//! A process with reliable figures, as the rules see it.

use super::site::JudgedSite;
use crate::analysis::{
    series::Figure,
    statistics::warm_up,
    system::SystemSeries,
    verdict::{
        class::{Class, Grade},
        context::Context,
        evidence::{Amount, Rate, Statement},
        finding::Finding,
        shape::{Judged, Shape},
        thresholds::STATE_FLOOR,
    },
    window::Window,
};

/// Least growth of the machine's own memory, bytes: it drifts by more than a process does.
const MACHINE_FLOOR: f64 = 32.0 * 1024.0 * 1024.0;

/// Least growth of the machine's shared memory that is mentioned, bytes.
const SHARED_FLOOR: f64 = 4.0 * 1024.0 * 1024.0;

/// The same as a share of the machine's memory: on a large machine other programs alone account for
/// more.
const OF_MACHINE: f64 = 0.01;

/// Least growth of a count.
pub(in super::super) const COUNT_FLOOR: f64 = 20.0;

/// The share of a count's growth that its lows have at least: two thirds if it rises along a line, none if it comes and goes.
const OF_LOWS: f64 = 0.4;

/// The process's own resident memory does not grow, though something else does.
pub(in super::super) static NOT_ITS_OWN: Statement = Statement {
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

/// A process with reliable figures.
pub(in super::super) struct Judging<'a> {
    pub(in super::super) context: &'a Context<'a>,
    /// The judged series.
    pub(in super::super) judged: &'a Judged,
    pub(in super::super) sites: &'a [JudgedSite],
    pub(in super::super) machine: &'a SystemSeries,
    /// Its whole course, the start included.
    pub(in super::super) whole: Window,
}

impl Judging<'_> {
    /// Anonymous memory at the end, bytes, if there is enough of it to judge its state.
    pub(in super::super) fn anonymous(&self) -> Option<f64> {
        let anonymous = self.at_end(Figure::Anon) + self.at_end(Figure::Swap);
        (anonymous >= STATE_FLOOR).then_some(anonymous)
    }

    pub(in super::super) fn at_end(&self, figure: Figure) -> f64 {
        let values = self.context.series.figure(figure);
        values
            .and_then(|values| values.last())
            .copied()
            .unwrap_or(0.0)
    }

    /// A count (not bytes) that keeps rising, by `floor` or more, and its lows with it: a load that comes and goes returns to
    /// where it was.
    pub(in super::super) fn rising(&self, figure: Figure, floor: f64) -> Option<Judged> {
        let Context { series, window, .. } = self.context;
        let values = series.figure(figure)?;
        let judged = Judged::of(&series.times, values, window.from, floor).ok()?;
        let keeps_rising = matches!(judged.shape(), Shape::Steady | Shape::Stepped);
        let rise_of_lows = window.rise_of_lows(values);
        (keeps_rising && rise_of_lows >= OF_LOWS * judged.trend.growth()).then_some(judged)
    }

    /// Growth that the ledger sees but resident memory does not show, or hardly: too small, or not touched.
    pub(in super::super) fn unseen(&self, class: Class) -> Finding {
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
            rate: Some(self.judged.trend.slope).filter(|_| self.judged.trend.is_rising()),
        }
    }

    /// Growth of the sites of a class, bytes.
    pub(in super::super) fn growth_of(&self, class: Class) -> f64 {
        let sites = self.sites.iter().filter(|site| site.verdict.class == class);
        sites.map(|site| site.growth).sum()
    }

    /// Growth of the sites of a class, blocks.
    pub(in super::super) fn blocks_of(&self, class: Class) -> f64 {
        let sites = self.sites.iter().filter(|site| site.verdict.class == class);
        let rates = sites.filter_map(|site| site.verdict.blocks);
        let Context { series, window, .. } = self.context;
        rates.sum::<f64>() * window.change(&series.times)
    }

    /// Memory of the machine that rises steadily. Others on it may do it.
    pub(in super::super) fn machine_grows(
        &self,
        values: &[f64],
        class: Class,
        statement: &'static Statement,
    ) -> Option<Finding> {
        let floor = MACHINE_FLOOR.max(OF_MACHINE * self.machine.total);
        let judged = self.of_machine(values, floor)?;
        steady(&judged, class, statement, Class::None, &NOT_ITS_OWN)
    }

    /// The course of the machine's memory; growth below `floor` does not count.
    fn of_machine(&self, values: &[f64], floor: f64) -> Option<Judged> {
        Judged::of(&self.machine.times, values, warm_up(values), floor).ok()
    }

    /// The course of the machine's shared memory, if that rises steadily and enough to be mentioned.
    pub(in super::super) fn shared_rise(&self) -> Option<Judged> {
        let judged = self.of_machine(&self.machine.shared, SHARED_FLOOR);
        judged.filter(|of| of.shape() == Shape::Steady)
    }
}

/// A steady rise, although the process's resident memory (`own`) does not grow.
pub(in super::super) fn steady(
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
pub(in super::super) fn counted(
    class: Class,
    statement: &'static Statement,
    judged: &Judged,
) -> Finding {
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
