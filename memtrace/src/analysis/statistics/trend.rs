//! The trend of a series: how much it grows, how sure that is.

use fastrand::Rng;

use super::{bootstrap, mann_kendall, mean, median, median_deviation, slope, theil_sen};

/// Blocks that a series is averaged into. Ten are the fewest with which the significance test keeps
/// its level; more show more of the shape but are less independent (measurements are in
/// `docs/reference/verdict-rules.md`).
pub(super) const BLOCKS: usize = 12;

/// Points (after the start of the program) that a trend takes: two a block of ten.
pub(crate) const MIN_POINTS: usize = 20;

/// Largest p-value with which a trend counts. At 5 %, a tenth of the series of 128 strongly
/// autocorrelated points (0.9 from one to the next) was called growing; at 1 %, a twenty-fifth.
pub(super) const SIGNIFICANCE: f64 = 0.01;

/// Resamples for an interval: the 2.5 % points then rest on ten values each.
const RESAMPLES: usize = 400;

/// The series has fewer points than a trend takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found} points after the start of the program, expected at least {MIN_POINTS}")]
pub(crate) struct TooShort {
    pub found: usize,
}

/// The trend of a series after the start of the program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Trend {
    /// Theil–Sen slope of the block means, units of `y` per unit of `x`.
    pub slope: f64,
    /// 95 % interval of `slope`: moving-block bootstrap around the trend.
    pub interval: (f64, f64),
    /// Two-sided Mann–Kendall with Hamed and Rao's correction, over the block means.
    pub p_value: f64,
    /// Median of the block means.
    pub level: f64,
    /// Median deviation of the block means from the trend line.
    pub noise: f64,
    /// End of the start-up: `x` of the first point that counts.
    pub from: f64,
    /// `x` of the last point.
    pub to: f64,
    /// Mean `x` and mean `y` of each block.
    pub blocks: Vec<(f64, f64)>,
}

impl Trend {
    /// Growth from `from` to `to` along the slope, units of `y`.
    pub(crate) fn growth(&self) -> f64 {
        self.slope * (self.to - self.from)
    }

    /// Measured growth: the mean of the last block less that of the first, and the distance between
    /// them, units of `x`.
    pub(crate) fn measured(&self) -> (f64, f64) {
        let ends = self.blocks.first().zip(self.blocks.last());
        ends.map_or((0.0, 0.0), |(first, last)| {
            (last.1 - first.1, last.0 - first.0)
        })
    }

    /// Whether the whole interval is above 0 and the test's gate, [`SIGNIFICANCE`], is open. For one
    /// series of many, give its own p-value to [`super::benjamini_hochberg`] too.
    pub(crate) fn is_rising(&self) -> bool {
        self.interval.0 > 0.0 && self.p_value <= SIGNIFICANCE
    }

    /// Slope of the last third of the blocks over that of the first third; `None` if the first
    /// third does not rise.
    pub(crate) fn late_to_early(&self) -> Option<f64> {
        late_to_early(&self.blocks)
    }

    /// The same for growth per unit of `clock`, which has a value for each point of the trend: if a
    /// program works faster at one time than at another, growth per unit of work is steadier than
    /// growth over time.
    pub(crate) fn late_to_early_per(&self, clock: &[f64]) -> Option<f64> {
        let means = means(clock, &bounds(clock.len()));
        let values = self.blocks.iter().map(|(_, y)| *y);
        let blocks: Vec<(f64, f64)> = means.into_iter().zip(values).collect();
        late_to_early(&blocks)
    }

    /// In how many of the last `n` blocks (or as many as there are) the mean is above that of the
    /// block before.
    pub(crate) fn rising_of_last(&self, n: usize) -> usize {
        let steps = self.blocks.windows(2).rev().take(n);
        steps.filter(|pair| pair[1].1 > pair[0].1).count()
    }

    /// The typical rise from one block's mean to the next where it rises, and the rise over the last third of the
    /// blocks, units of `y`.
    pub(crate) fn steps(&self) -> (f64, f64) {
        let rises = self.blocks.windows(2).map(|pair| pair[1].1 - pair[0].1);
        let rises: Vec<f64> = rises.filter(|rise| *rise > 0.0).collect();
        let third = self.blocks.len() / 3;
        let late = &self.blocks[self.blocks.len() - third..];
        let late = late.first().zip(late.last());
        let late = late.map_or(0.0, |(first, last)| last.1 - first.1);
        (median(&rises).unwrap_or(0.0), late)
    }

    /// Total by which the means fell from one block to the next.
    pub(crate) fn fallen(&self) -> f64 {
        let steps = self.blocks.windows(2);
        steps.map(|pair| (pair[0].1 - pair[1].1).max(0.0)).sum()
    }
}

/// As [`trend_after`], without the start of the program ([`super::warm_up`]).
#[cfg(test)]
pub(crate) fn trend(x: &[f64], y: &[f64], seed: u64) -> Result<Trend, TooShort> {
    trend_after(super::warm_up(&y[..x.len().min(y.len())]), x, y, seed)
}

/// The trend of `y` over `x`, without the first `skip` points: the start of the program, which series
/// of one process must share to be compared. `x` rises in about equal steps. The same arguments give
/// the same trend.
///
/// # Errors
///
/// When too few points are left.
pub(crate) fn trend_after(skip: usize, x: &[f64], y: &[f64], seed: u64) -> Result<Trend, TooShort> {
    let n = x.len().min(y.len());
    let found = n.saturating_sub(skip);
    if found < MIN_POINTS {
        return Err(TooShort { found });
    }
    let (x, y) = (&x[skip..n], &y[skip..n]);
    let bounds = bounds(found);
    let (block_x, block_y) = (means(x, &bounds), means(y, &bounds));
    let (slope, base) = theil_sen(&block_x, &block_y).ok_or(TooShort { found: 1 })?;
    let line = |x: f64| base + slope * x;
    let off: Vec<f64> = block_x
        .iter()
        .zip(&block_y)
        .map(|(x, y)| y - line(*x))
        .collect();
    let rests: Vec<f64> = x.iter().zip(y).map(|(x, y)| y - line(*x)).collect();
    Ok(Trend {
        slope,
        interval: interval(slope, &rests, &block_x, &bounds, seed),
        p_value: mann_kendall(&block_y).p_value,
        level: median(&block_y).unwrap_or(0.0),
        noise: median_deviation(&off).unwrap_or(0.0),
        from: x[0],
        to: x[found - 1],
        blocks: block_x.into_iter().zip(block_y).collect(),
    })
}

fn late_to_early(blocks: &[(f64, f64)]) -> Option<f64> {
    let third = blocks.len() / 3;
    let slope = |blocks: &[(f64, f64)]| {
        let (x, y): (Vec<f64>, Vec<f64>) = blocks.iter().copied().unzip();
        theil_sen(&x, &y).map(|(slope, _)| slope)
    };
    let early = slope(blocks.get(..third)?)?;
    let late = slope(&blocks[blocks.len() - third..])?;
    (early > 0.0).then_some(late / early)
}

/// Block boundaries, including the end: blocks of two points or more, of nearly equal length.
fn bounds(n: usize) -> Vec<usize> {
    let blocks = BLOCKS.min(n / 2);
    (0..=blocks).map(|i| i * n / blocks).collect()
}

fn means(values: &[f64], bounds: &[usize]) -> Vec<f64> {
    bounds
        .windows(2)
        .filter_map(|pair| mean(&values[pair[0]..pair[1]]))
        .collect()
}

/// Spread of the slope when the residuals are resampled.
fn interval(slope: f64, rests: &[f64], block_x: &[f64], bounds: &[usize], seed: u64) -> (f64, f64) {
    // Many sites do not change at all.
    if rests.iter().all(|rest| *rest == 0.0) {
        return (slope, slope);
    }
    let mut rng = Rng::with_seed(seed);
    let length = bootstrap::run_length(rests);
    let mut drawn = Vec::with_capacity(rests.len());
    let mut between = Vec::new();
    let mut slopes: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| {
            bootstrap::resample(rests, length, &mut rng, &mut drawn);
            let moved = slope::slope(block_x, &means(&drawn, bounds), &mut between);
            moved.map(|moved| slope + moved)
        })
        .collect();
    slopes.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| {
        let index = (share * slopes.len() as f64) as usize;
        slopes.get(index.min(slopes.len().saturating_sub(1)))
    };
    match (at(0.025), at(0.975)) {
        (Some(low), Some(high)) => (*low, *high),
        _ => (f64::NEG_INFINITY, f64::INFINITY),
    }
}
