//! A site as the rules see it, and its verdict.

use crate::{
    analysis::{
        series::{Place, SiteSeries, place},
        verdict::{
            class::{Class, Grade},
            context::Context,
            diagnosis::Verdict,
            evidence::{Evidence, Statement},
            shape::{Judged, Shape},
            survival::{self, Survival},
            thresholds::{LAST_BLOCKS, MAJORITY, PROCESS_FLOOR, RISING_BLOCKS, STEADY},
        },
    },
    event::{Device, Layer},
    recording::Origin,
};

pub(in super::super) static LIVE: Statement = Statement {
    name: "site_grows",
    sentence: "live bytes {growth} in {length}, {rate}",
};

/// A site's verdict, and its growth in the window, bytes.
pub(in super::super) struct JudgedSite {
    pub(in super::super) verdict: Verdict,
    pub(in super::super) growth: f64,
    /// The part of `growth` that became resident, bytes.
    pub(in super::super) resident: f64,
    /// Free space that its blocks hold open, bytes.
    pub(in super::super) holes: f64,
    pub(in super::super) place: Place,
}

impl JudgedSite {
    /// Whether it is memory of this device.
    pub(in super::super) fn is_on(&self, device: Device) -> bool {
        self.place == Place::Device(device)
    }

    /// Whether it is part of the process's own memory.
    pub(in super::super) fn is_of_host(&self) -> bool {
        self.place == Place::Host
    }
}

/// For each block that a queue gained, the least number of older ones that were freed.
const FREED: f64 = 0.05;

/// Elements that a container gets for each block that a site gained, if neither slows down.
const AS_FAST: f64 = 0.8;

/// Each part of the time differs from the mean by at most this share, if what happens in them is even.
const EVEN: f64 = 0.5;

/// A site as the rules see it.
pub(in super::super) struct Grown<'a> {
    pub(in super::super) context: &'a Context<'a>,
    pub(in super::super) site: &'a SiteSeries,
    pub(in super::super) judged: &'a Judged,
    /// By time, or by the work that others did meanwhile.
    pub(in super::super) shape: Shape,
    pub(in super::super) survival: Survival,
    /// Evidence that its blocks took the place of others.
    pub(in super::super) replaced: Option<&'a Evidence>,
}

impl Grown<'_> {
    /// The grade of any kind of leak; `None`: it is not a leak.
    pub(in super::super) fn leaks(&self) -> Option<Grade> {
        match self.shape {
            Shape::Steady => self.survival.grade(),
            // A few steps are less than a trend: that the blocks stay must be known.
            Shape::Stepped => self
                .survival
                .grade()
                .filter(|grade| *grade == Grade::B)
                .map(|_| Grade::C),
            _ => None,
        }
    }

    /// Whether it is a queue that is filled faster than it is emptied, the oldest block first. At first those from before
    /// the recording are freed, so that its growth seems to slow down, but resident memory rises in a straight line.
    pub(in super::super) fn is_backlog(&self) -> bool {
        let Context {
            series,
            window,
            quality,
            ..
        } = self.context;
        let gained = window.change(&self.site.live_count);
        // Those of other processes are counted, too.
        let is_alone = quality.processes == 1 && series.row.origin == Origin::Attached;
        let frees_older = is_alone && quality.unknown_frees >= FREED * gained;
        let most_stay = matches!(self.survival, Survival::Share(share) if share >= MAJORITY);
        self.shape != Shape::Slowing && frees_older && most_stay && self.rises() && self.is_most()
    }

    /// Whether resident memory rises in a straight line, and most of that is the site's growth.
    fn is_most(&self) -> bool {
        let is_most = |whole: Judged| self.judged.trend.growth() >= MAJORITY * whole.trend.growth();
        self.whole().is_some_and(is_most)
    }

    /// Whether it is most of the growth and does not slow down by time, and what certainly keeps the blocks grows with them.
    pub(in super::super) fn grows_with_container(&self) -> bool {
        let late_to_early = self.judged.trend.late_to_early();
        let goes_on = late_to_early.is_some_and(|ratio| ratio >= STEADY);
        let fills = self.context.grows_with_container(self.site, AS_FAST);
        goes_on && self.is_most() && fills
    }

    /// Whether it is such a queue that frees blocks of the recording, although it allocates evenly and grows in a straight
    /// line.
    pub(in super::super) fn is_steady_backlog(&self) -> bool {
        let window = self.context.window;
        let length = window.to.saturating_sub(window.from + 1);
        let ends = (0..=LAST_BLOCKS).map(|part| window.from + length * part / LAST_BLOCKS);
        let ends: Vec<usize> = ends.collect();
        let is_even = |counts: &[f64]| {
            let parts = ends
                .windows(2)
                .map(|part| counts[part[1]] - counts[part[0]]);
            let parts: Vec<f64> = parts.collect();
            let mean = parts.iter().sum::<f64>() / parts.len() as f64;
            let even = (1.0 - EVEN) * mean..=(1.0 + EVEN) * mean;
            mean > 0.0 && parts.iter().all(|part| even.contains(part))
        };
        self.site.key.layer == Layer::Heap
            && self.shape == Shape::Steady
            && self.rises()
            && self.whole().is_some()
            && is_even(&self.site.alloc_count)
            && is_even(&self.site.live_count)
            && survival::live_longer(self.context, self.site)
    }

    fn rises(&self) -> bool {
        self.judged.trend.rising_of_last(LAST_BLOCKS) >= RISING_BLOCKS
    }

    /// Resident memory of the process, if it rises in a straight line.
    fn whole(&self) -> Option<Judged> {
        let Context { series, window, .. } = self.context;
        let whole = Judged::of(
            &series.times,
            &series.footprint()?,
            window.from,
            PROCESS_FLOOR,
        );
        whole.ok().filter(|whole| whole.shape() == Shape::Steady)
    }

    pub(in super::super) fn place(&self) -> Place {
        place(&self.site.key)
    }

    /// A leak of any kind of memory; it may be a cache without a limit in sight.
    pub(in super::super) fn leak(&self, grade: Grade) -> SiteFinding {
        SiteFinding {
            grade,
            runner_up: Class::Cache,
            ..SiteFinding::of(self.judged)
        }
    }
}

/// A finding on a site before it becomes a verdict.
pub(in super::super) struct SiteFinding {
    pub(in super::super) grade: Grade,
    pub(in super::super) evidence: Vec<Evidence>,
    pub(in super::super) runner_up: Class,
    /// Bytes per second; `None` if it is not growing.
    pub(in super::super) rate: Option<f64>,
    /// Bytes.
    pub(in super::super) growth: f64,
}

impl SiteFinding {
    /// A finding that it grows, and nothing else.
    pub(in super::super) fn of(judged: &Judged) -> SiteFinding {
        SiteFinding {
            grade: Grade::D,
            evidence: vec![],
            runner_up: Class::Leak,
            rate: Some(judged.trend.slope),
            growth: judged.trend.growth(),
        }
    }
}
