//! The data that a process's sites and devices are judged by.

use super::quality::Quality;
use crate::{
    analysis::{
        series::{Place, ProcessSeries, SiteSeries},
        window::Window,
    },
    frames::mappings::Use,
    recording::Stacks,
};

/// Context for judging the sites of a process.
pub(super) struct Context<'a> {
    pub(super) series: &'a ProcessSeries,
    pub(super) stacks: &'a Stacks,
    pub(super) window: Window,
    pub(super) quality: &'a Quality,
    /// The share of the mapped memory that became resident, for the program's mappings and for
    /// stacks.
    pub(super) touched: [(Use, Option<f64>); 2],
}

impl Context<'_> {
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
