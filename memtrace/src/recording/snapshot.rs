//! Live memory at one moment, and the choice of that moment. Pure: the rows come from
//! [`super::read`], nothing is read here.

use super::{DeviceSnapshot, Holders, LibraryRow, Meta, ProcessRow, Stacks};
use crate::{
    event::Layer,
    hash::FastMap,
    ledger::{Births, Failure, FailureKey, LayerTotals, ProcessId, SiteKey, SiteTotals, Totals},
};
use memtrace_common::loss::Reason;

/// The moment to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum At {
    /// The end if a process still ran when recording stopped, its peak if it exited by itself:
    /// memory freed at exit is rarely of interest.
    #[default]
    Default,
    End,
    /// The peak of each layer of each process, exactly.
    Peak,
    /// Nanoseconds since the start: the last interval not after it.
    Time(u64),
}

/// The moment of a process's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The end of the process, or of the recording if that came first.
    End,
    /// The moment at which each layer had its largest `live_bytes`, see `Totals::peak_ns`.
    Peak,
    /// The interval that ended then (CLOCK_MONOTONIC ns).
    Time(u64),
}

/// Live allocations at one moment.
///
/// `live_*` figures are those at the moment. Cumulative and peak figures are those of the whole
/// recording, except at [`Moment::Time`], where they count up to that moment; at [`Moment::Peak`]
/// `inherited_*` are those at the end, because the ledger keeps no others.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub at: At,
    pub meta: Meta,
    /// By id.
    pub processes: Vec<ProcessSnapshot>,
    /// Processes that were folded and are left out: nothing is known about them at a past time.
    pub left_out: u64,
    /// By process and layer.
    pub layers: Vec<LayerSnapshot>,
    /// By process, layer and stack. Sites without live blocks are included.
    pub sites: Vec<SiteSnapshot>,
    /// Devices on which processes had memory, by process and index: at the requested moment, or at
    /// the end if that is a peak.
    pub devices: Vec<DeviceSnapshot>,
    /// Allocations that failed on devices, in order of time.
    pub failures: Vec<FailureSnapshot>,
    /// Libraries of devices, by file.
    pub libraries: Vec<LibraryRow>,
    /// Holders of the blocks of sites, as seen at the end; empty at a past time.
    pub(crate) holders: FastMap<SiteKey, Holders>,
    /// Stacks of all sites, and others.
    pub stacks: Stacks,
    /// Every reason, zero included.
    pub losses: Vec<(Reason, u64)>,
    pub emitted: u64,
    pub received: u64,
    /// Last interval taken into account, CLOCK_MONOTONIC ns; `None` before the first one.
    pub time_ns: Option<u64>,
    /// When the recording ended normally; `None`: it was cut off, or it is still being written.
    pub finished_ns: Option<u64>,
}

/// A process and the moment its figures are from.
#[derive(Clone, Debug)]
pub(crate) struct ProcessSnapshot {
    pub row: ProcessRow,
    pub moment: Moment,
    /// Processes that the kernel killed for lack of memory about when this one ended by SIGKILL.
    pub(crate) oom_kills: u64,
}

/// A layer of a process at the moment of its process.
#[derive(Clone, Debug)]
pub(crate) struct LayerSnapshot {
    pub process: ProcessId,
    pub layer: Layer,
    pub totals: LayerTotals,
}

/// Allocations that failed on a device.
#[derive(Clone, Debug)]
pub(crate) struct FailureSnapshot {
    pub key: FailureKey,
    pub failure: Failure,
}

/// A site at the moment of its process.
#[derive(Clone, Debug)]
pub(crate) struct SiteSnapshot {
    pub key: SiteKey,
    pub totals: Totals,
    /// First allocation, CLOCK_MONOTONIC ns.
    pub first_ns: u64,
    /// Last allocation; `None` at a past time, for which only the figures are kept.
    pub last_ns: Option<u64>,
    /// See [`crate::ledger::SiteTotals::lifetimes`], without zeros at the end; `None` at a past time.
    pub lifetimes: Option<Box<[u64]>>,
    /// `None`: nothing was live here at the last scan, or the moment is not the end.
    pub births: Option<Box<BirthsAt>>,
}

/// Birth times of a site's live blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BirthsAt {
    /// When the blocks were scanned, CLOCK_MONOTONIC ns.
    pub time_ns: u64,
    pub births: Births,
}

/// A site as it is stored.
pub(super) struct StoredSite {
    pub(super) key: SiteKey,
    pub(super) current: SiteTotals,
    /// Figures at a past interval, if one was requested and the site existed.
    pub(super) past: Option<Totals>,
    pub(super) births: Option<Box<BirthsAt>>,
}

/// All inputs of a snapshot, read in one transaction.
pub(super) struct Stored {
    pub(super) meta: Meta,
    pub(super) finished_ns: Option<u64>,
    pub(super) processes: Vec<ProcessRow>,
    /// See [`ProcessSnapshot::oom_kills`].
    pub(super) oom_kills: FastMap<ProcessId, u64>,
    pub(super) layers: Vec<LayerSnapshot>,
    pub(super) devices: Vec<DeviceSnapshot>,
    pub(super) failures: Vec<(FailureKey, Failure)>,
    pub(super) libraries: Vec<LibraryRow>,
    pub(super) holders: Vec<Holders>,
    pub(super) stacks: Stacks,
    pub(super) losses: Vec<(Reason, u64)>,
    pub(super) emitted: u64,
    pub(super) received: u64,
    pub(super) time_ns: Option<u64>,
    /// The interval of `time_ns` is not the last one.
    pub(super) past: bool,
}

/// Inputs of the sites' figures: millions of sites are turned into snapshots one by one.
pub(super) struct Moments {
    /// The processes shown.
    processes: FastMap<ProcessId, Moment>,
    /// Groups that are unknown at this moment.
    left_out: Vec<ProcessId>,
    epochs: FastMap<(ProcessId, Layer), u64>,
    past: bool,
    /// Blocks at the peak, by layer.
    counts: FastMap<(ProcessId, Layer), u64>,
}

impl Moments {
    /// The site at the moment of its process; `None`: it did not exist, or is left out.
    pub(super) fn site(&mut self, stored: StoredSite) -> Option<SiteSnapshot> {
        let StoredSite {
            key,
            current: site,
            past,
            births,
        } = stored;
        if self.left_out.contains(&key.process) {
            return None;
        }
        let mut totals = match self.past {
            false => site.totals,
            true => past?,
        };
        let peak = self.processes.get(&key.process) == Some(&Moment::Peak);
        if peak {
            let at = (key.process, key.layer);
            let live = live_at_peak(&site, self.epochs.get(&at).copied());
            (totals.live_bytes, totals.live_count) = live;
            *self.counts.entry(at).or_default() += totals.live_count;
        }
        Some(SiteSnapshot {
            key,
            totals,
            first_ns: site.first_ns,
            last_ns: (!self.past).then_some(site.last_ns),
            lifetimes: (!self.past).then_some(site.lifetimes),
            births: births.filter(|_| !self.past && !peak),
        })
    }
}

impl Stored {
    /// The processes shown, and the moment of each.
    pub(super) fn moments(&self, at: At) -> Moments {
        let now = self.time_ns.unwrap_or(self.meta.started_ns);
        let is_past = matches!(at, At::Time(_));
        let groups = self.processes.iter().filter(|row| row.is_group());
        let left_out: Vec<ProcessId> = groups.filter(|_| is_past).map(|row| row.id).collect();
        let processes = self
            .processes
            .iter()
            .filter(|row| !is_past || row.started_ns <= now && !row.is_group());
        let epochs = self.layers.iter();
        Moments {
            processes: processes
                .map(|row| (row.id, moment(at, row, now)))
                .collect(),
            epochs: epochs
                .map(|layer| ((layer.process, layer.layer), layer.totals.peak_epoch))
                .collect(),
            left_out,
            past: self.past,
            counts: FastMap::default(),
        }
    }

    pub(super) fn snapshot(
        self,
        at: At,
        moments: &Moments,
        mut sites: Vec<SiteSnapshot>,
    ) -> Snapshot {
        // In place: there may be millions.
        sites.sort_unstable_by_key(|site| site.key);
        let mut layers = self.layers;
        layers.retain(|layer| !moments.left_out.contains(&layer.process));
        for layer in &mut layers {
            if moments.processes.get(&layer.process) == Some(&Moment::Peak) {
                let count = moments.counts.get(&(layer.process, layer.layer));
                layer.totals.totals.live_bytes = layer.totals.totals.peak_bytes;
                layer.totals.totals.live_count = count.copied().unwrap_or(0);
            }
        }
        let (mut processes, mut left_out) = (Vec::new(), 0);
        for row in self.processes {
            match moments.processes.get(&row.id) {
                Some(moment) => processes.push(ProcessSnapshot {
                    moment: *moment,
                    oom_kills: self.oom_kills.get(&row.id).copied().unwrap_or(0),
                    row,
                }),
                None => left_out += row.folded.unwrap_or(0),
            }
        }
        let failures = self.failures.into_iter();
        let failures = failures.map(|(key, failure)| FailureSnapshot { key, failure });
        Snapshot {
            at,
            meta: self.meta,
            processes,
            left_out,
            layers,
            sites,
            devices: self.devices,
            failures: failures.collect(),
            libraries: self.libraries,
            holders: self.holders.into_iter().map(|of| (of.site, of)).collect(),
            stacks: self.stacks,
            losses: self.losses,
            emitted: self.emitted,
            received: self.received,
            time_ns: self.time_ns,
            finished_ns: self.finished_ns,
        }
    }
}

fn moment(at: At, row: &ProcessRow, now: u64) -> Moment {
    match at {
        At::End => Moment::End,
        At::Peak => Moment::Peak,
        At::Time(_) => Moment::Time(now),
        At::Default if row.ended_ns.is_some() => Moment::Peak,
        At::Default => Moment::End,
    }
}

/// A site that was not touched since the layer's last peak has its live figures of then; any other
/// noted them when it was first touched after.
fn live_at_peak(site: &SiteTotals, layer_epoch: Option<u64>) -> (u64, u64) {
    if layer_epoch.is_some_and(|epoch| epoch > site.peak_epoch) {
        (site.totals.live_bytes, site.totals.live_count)
    } else {
        (site.at_peak_bytes, site.at_peak_count)
    }
}
