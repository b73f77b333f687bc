//! The data that a process's sites and devices are judged by.

use super::{
    keepers::{How, Keeper, keeper_of},
    quality::Quality,
    shape::{Judged, Shape},
    thresholds::{OF_RESIDUAL, PROCESS_FLOOR},
    types::Types,
};
use crate::{
    analysis::{
        series::{Figure, Place, ProcessSeries, SiteSeries},
        window::Window,
    },
    frames::{
        Frame, library_call,
        mappings::{self, Requester, Use},
    },
    hash::FastMap,
    ledger::SiteKey,
    recording::{Holders, Stacks},
};

/// Context for judging the sites of a process.
pub(super) struct Context<'a> {
    pub(super) series: &'a ProcessSeries,
    pub(super) stacks: &'a Stacks,
    pub(super) window: Window,
    pub(super) quality: &'a Quality,
    /// Holders seen in memory.
    pub(super) holders: &'a FastMap<SiteKey, Holders>,
    /// The types of Python's objects that became more.
    pub(super) types: Option<&'a Types>,
    /// The share of the mapped memory that became resident, for the program's mappings, for stacks and for the heap of
    /// a runtime.
    pub(super) touched: [(Use, Option<f64>); 3],
}

impl Context<'_> {
    /// Whether most of the threads have ended whose stacks a site has mapped, and still has.
    pub(super) fn threads_ended(&self, stacks: &SiteSeries) -> bool {
        let threads = self.series.figure(Figure::Threads);
        let running = threads.map_or(0.0, |threads| self.window.change(threads));
        running < OF_RESIDUAL * self.window.change(&stacks.live_count)
    }

    /// Whether nothing points to the blocks of a site.
    pub(super) fn is_lost(&self, site: &SiteKey) -> bool {
        let found = self.holders.get(site);
        let found = found.and_then(|holders| keeper_of(holders, self.stacks));
        found.is_some_and(|(keeper, _)| {
            matches!(keeper.how, How::Nothing { .. } | How::LostWith { .. })
        })
    }

    /// The same of one that the program requested by a library of the system.
    pub(super) fn is_lost_by_program(&self, site: &SiteKey) -> bool {
        let frames: Vec<&Frame> = self.stacks.get(site.stack).of_caller().collect();
        self.is_lost(site) && library_call(&frames).is_some()
    }

    /// The code that requested a mapping.
    pub(super) fn requester(&self, site: &SiteKey) -> Requester {
        let frames: Vec<&Frame> = self.stacks.get(site.stack).of_caller().collect();
        mappings::requester(&frames)
    }

    /// What certainly keeps the blocks of a site.
    fn certain_keeper(&self, site: &SiteKey) -> Option<Keeper> {
        let (keeper, _) = keeper_of(self.holders.get(site)?, self.stacks)?;
        Some(keeper).filter(Keeper::is_certain)
    }

    /// Items of the container that certainly keeps the blocks of a site, and its limit, if it drops what is beyond.
    pub(super) fn limited(&self, site: &SiteKey) -> Option<(u64, u64)> {
        let keeper = self.certain_keeper(site)?;
        let container = keeper.container()?;
        Some((container.length?, container.limit?))
    }

    /// Whether a container certainly keeps the blocks of a site.
    pub(super) fn is_in_container(&self, site: &SiteKey) -> bool {
        let keeper = self.certain_keeper(site);
        keeper.is_some_and(|of| of.container().is_some())
    }

    /// Whether a container without a limit certainly keeps the blocks of a site and gets this many elements at least for each
    /// block of the site, and the memory of the process rises steadily.
    pub(super) fn grows_with_container(&self, site: &SiteSeries, elements: f64) -> bool {
        let of_site = self.window.rate(&site.live_count, &self.series.times);
        let growth = self.filling(&site.key);
        let grows = growth.is_some_and(|(_, growth)| growth >= elements * of_site);
        of_site > 0.0 && grows && self.is_steady()
    }

    /// Items of the container without a limit that certainly keeps the blocks of a site, and how many it gets per second.
    pub(super) fn filling(&self, site: &SiteKey) -> Option<(u64, f64)> {
        let keeper = self.certain_keeper(site).filter(|of| !of.has_limit())?;
        let container = keeper.container()?;
        let (items, growth) = container.length.zip(container.growth_per_s)?;
        (items > 0 && growth > 0.0).then_some((items, growth))
    }

    /// Growth of Python's objects in the window, bytes, that a container keeps which certainly got more, or references that
    /// were certainly leaked. A container with a limit fills up.
    pub(super) fn kept_objects(&self) -> Option<f64> {
        let types = self.types?;
        let keeper = types.keeper.as_ref()?;
        let is_growing = keeper.has_growing() && !keeper.has_limit();
        let is_kept = is_growing || matches!(keeper.how, How::Surplus { .. });
        let seconds = self.window.change(&self.series.times);
        is_kept.then_some(types.kept * seconds)
    }

    /// Whether the memory of the process rises steadily.
    pub(super) fn is_steady(&self) -> bool {
        let whole = self.whole();
        whole.is_some_and(|whole| whole.shape() == Shape::Steady)
    }

    /// Whether it rises.
    pub(super) fn rises(&self) -> bool {
        self.whole().is_some_and(|whole| whole.is_material())
    }

    fn whole(&self) -> Option<Judged> {
        let all = self.series.footprint()?;
        Judged::of(&self.series.times, &all, self.window.from, PROCESS_FLOOR).ok()
    }

    /// The window for memory of this place: the start of a device may be later than that of the process.
    pub(super) fn window_of(&self, place: Place) -> Window {
        let mut devices = self.series.devices.iter();
        let device = devices.find(|device| place == Place::Device(device.index));
        let start = device.map_or(0, |device| device.window().from);
        Window {
            from: self.window.from.max(start),
            ..self.window
        }
    }

    /// The share of the site's mappings that became resident; `None` if it is unknown, or all of it
    /// did.
    pub(super) fn touched(&self, site: &SiteSeries) -> Option<f64> {
        let mut known = self.touched.iter();
        known.find(|(what, _)| Some(*what) == site.mapping)?.1
    }
}
