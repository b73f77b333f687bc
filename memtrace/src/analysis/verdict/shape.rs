//! The shape of a growing series: does it continue, or come to an end?

use super::thresholds::{
    LAST_BLOCKS, OF_LEVEL, OF_NOISE, RISING_BLOCKS, SLOWING, STEADY, STEEPENING, STEPS,
};
use crate::analysis::statistics::{TooShort, Trend, trend_after};

/// Stepwise growth falls by at most this share of its growth, in total.
const FALLEN: f64 = 0.05;

/// The course of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// As before: no end in sight.
    Steady,
    /// As before, but in a few steps.
    Stepped,
    /// Slower and slower.
    Slowing,
    /// Neither is clear.
    Between,
    /// It does not grow, or not enough to matter.
    Flat,
}

/// A trend, and the thresholds that make it material.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    pub(super) trend: Trend,
    /// Least growth that counts, in the unit of the series.
    pub(super) threshold: f64,
    /// The same of growth without an end in sight.
    pub(super) visible: f64,
}

impl Judged {
    /// The trend of `values` over `times` without the first `skip`; growth below `floor` does not
    /// count.
    pub(super) fn of(
        times: &[f64],
        values: &[f64],
        skip: usize,
        floor: f64,
    ) -> Result<Judged, TooShort> {
        // Any fixed seed: the same recording must give the same verdict.
        let trend = trend_after(skip, times, values, 1)?;
        let visible = floor.max(OF_NOISE * trend.noise);
        Ok(Judged {
            threshold: visible.max(OF_LEVEL * trend.level.abs()),
            visible,
            trend,
        })
    }

    /// Whether it grows, and enough to matter.
    pub(super) fn is_material(&self) -> bool {
        self.trend.is_rising() && (self.trend.growth() >= self.threshold || self.is_slow())
    }

    /// Whether it grows without an end in sight, but so slowly that it was little of the level.
    pub(super) fn is_slow(&self) -> bool {
        let is_visible = (self.visible..self.threshold).contains(&self.trend.growth());
        is_visible && self.course(self.trend.late_to_early(), STEADY) == Shape::Steady
    }

    /// By time.
    pub(super) fn shape(&self) -> Shape {
        self.shape_of(self.trend.late_to_early(), STEADY)
    }

    /// The shape for this slope of the late part over that of the early part, which is at least
    /// `steady` and at most [`STEEPENING`] if growth continues.
    pub(super) fn shape_of(&self, late_to_early: Option<f64>, steady: f64) -> Shape {
        match self.is_material() {
            true => self.course(late_to_early, steady),
            false => Shape::Flat,
        }
    }

    fn course(&self, late_to_early: Option<f64>, steady: f64) -> Shape {
        match late_to_early {
            Some(ratio) if ratio <= SLOWING => Shape::Slowing,
            Some(ratio) if ratio < steady => Shape::Between,
            _ if steepens(late_to_early.map(|ratio| ratio * self.without_a_step())) => {
                Shape::Between
            }
            _ if self.trend.rising_of_last(LAST_BLOCKS) >= RISING_BLOCKS => Shape::Steady,
            _ if self.trend.rising_of_last(LAST_BLOCKS) >= STEPS
                && self.trend.fallen() <= FALLEN * self.trend.growth() =>
            {
                Shape::Stepped
            }
            _ => Shape::Between,
        }
    }

    /// The part of the late growth that is left if one of its steps had not been in the recording: where few steps make
    /// up the growth, one more or less is chance. All of it, unless the growth stands still in between.
    fn without_a_step(&self) -> f64 {
        let (step, late) = self.trend.steps();
        let has_steps = self.trend.rising_of_last(LAST_BLOCKS) <= RISING_BLOCKS;
        match has_steps && late > 0.0 {
            true => (1.0 - step / late).max(0.0),
            false => 1.0,
        }
    }

    /// Whether most of its growth came late, by time.
    pub(super) fn steepens(&self) -> bool {
        steepens(self.trend.late_to_early())
    }

    /// Growth per second that would have been seen.
    pub(super) fn detectable(&self) -> f64 {
        let length = (self.trend.to - self.trend.from).max(f64::MIN_POSITIVE);
        self.visible.max(self.trend.interval.1 * length) / length
    }
}

/// Growth that has only begun, or a fluctuating load. `None`: there was no early growth at all.
fn steepens(late_to_early: Option<f64>) -> bool {
    late_to_early.is_none_or(|ratio| ratio > STEEPENING)
}
