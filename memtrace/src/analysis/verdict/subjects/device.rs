//! A process's memory on a device (GPU), as the rules see it.

use crate::analysis::{
    series::{DeviceSeries, Place, place},
    verdict::{
        class::{Class, Grade},
        context::Context,
        evidence::{Amount, Evidence, Statement, grown},
        finding::Finding,
        shape::{Judged, Shape},
        thresholds::{MAJORITY, REPORTED},
    },
};

/// Least growth of a GPU's memory, bytes: the unit in which caching allocators take memory from the
/// driver.
const DEVICE_FLOOR: f64 = 2.0 * 1024.0 * 1024.0;

static ALLOCATED: Statement = Statement {
    name: "device_allocated",
    sentence: "{device}: allocated {growth} in {length}, {rate}",
};

static HELD: Statement = Statement {
    name: "device_held",
    sentence: "{device}: including memory cached by {cache}'s allocator {growth} in {length}, {rate}",
};

static FREE: Statement = Statement {
    name: "device_largest_free",
    sentence: "at the end {kept} was cached; the largest free block was {largest}",
};

/// A device of a process, with its live and reserved memory judged.
pub(in super::super) struct OnDevice<'a> {
    pub(in super::super) context: &'a Context<'a>,
    pub(in super::super) device: &'a DeviceSeries,
    pub(in super::super) outstanding: Judged,
    pub(in super::super) held: Judged,
    /// Growth of its sites, and of those that leak, bytes.
    pub(in super::super) seen: f64,
    pub(in super::super) leaking: f64,
}

impl OnDevice<'_> {
    /// The course of memory on a device, after its own start.
    pub(in super::super) fn course(
        context: &Context,
        device: &DeviceSeries,
        values: &[f64],
    ) -> Option<Judged> {
        let from = device.window().from;
        Judged::of(&context.series.times, values, from, DEVICE_FLOOR).ok()
    }

    /// The same for other memory on this device, or another.
    pub(in super::super) fn judged(&self, values: &[f64]) -> Option<Judged> {
        Self::course(self.context, self.device, values)
    }

    /// The shapes of live and of held memory.
    pub(in super::super) fn shapes(&self) -> (Shape, Shape) {
        (self.outstanding.shape(), self.held.shape())
    }

    /// Its sites grow as it does, but hardly any passes the leak tests. They are judged from the
    /// end of the process's start-up, and may have grown more since then than the device's course
    /// shows since its own start-up: a longer recording decides.
    pub(in super::super) fn is_unblamed(&self) -> bool {
        let growth = self.outstanding.trend.growth();
        self.outstanding.shape() == Shape::Steady
            && self.seen >= MAJORITY * growth
            && self.leaking < REPORTED * growth
    }

    /// The grade of a leak; `None`: it is not a leak.
    pub(in super::super) fn leaks(&self) -> Option<Grade> {
        let growth = self.outstanding.trend.growth();
        match self.outstanding.shape() {
            Shape::Steady => Some(Grade::B),
            // Blocks that live for one step of the program blur the course of the whole, not that of
            // a site.
            Shape::Stepped | Shape::Between if self.leaking >= MAJORITY * growth => Some(Grade::C),
            _ => None,
        }
    }

    /// Number of blocks that its sites have allocated since a point.
    pub(in super::super) fn allocated_since(&self, point: usize) -> f64 {
        let sites = self.context.series.sites.iter();
        let sites = sites.filter(|site| place(&site.key) == Place::Device(self.device.index));
        let since = sites.filter_map(|site| {
            let before = site.alloc_count.get(point)?;
            Some(site.alloc_count.last()? - before)
        });
        since.sum()
    }

    pub(in super::super) fn name(&self) -> (&'static str, Amount) {
        ("device", Amount::Device(self.device.index))
    }

    /// A finding with the device's measurements, and `more`.
    pub(in super::super) fn finding(
        &self,
        class: Class,
        grade: Grade,
        rate: Option<f64>,
        more: Option<Evidence>,
    ) -> Finding {
        let figures = |statement: &'static Statement, judged: &Judged| {
            let [growth, length, rate] = grown(&judged.trend);
            statement.with([self.name(), growth, length, rate])
        };
        let mut held = figures(&HELD, &self.held);
        let cache = self.context.series.caching_allocator().name;
        held.values.push(("cache", Amount::Word(cache)));
        let mut evidence = vec![figures(&ALLOCATED, &self.outstanding), held];
        evidence.extend(more);
        let at_end = self.device.totals.last().copied().unwrap_or_default();
        if let Some(largest) = at_end.cache.and_then(|cache| cache.largest_free) {
            let kept = at_end.known() - at_end.outstanding();
            evidence.push(FREE.with([
                ("kept", Amount::Bytes(kept as f64)),
                ("largest", Amount::Bytes(largest as f64)),
            ]));
        }
        Finding {
            class,
            grade,
            evidence,
            runner_up: Some(match class {
                Class::GpuLeak => Class::GpuCache,
                _ => Class::GpuLeak,
            }),
            rate,
        }
    }
}
