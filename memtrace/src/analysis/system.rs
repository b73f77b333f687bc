//! The machine around the processes. All of it is optional: a recording contains whatever could be
//! read when it was made.

use super::series::MAX_POINTS;
use crate::recording::{Error, Recording, SystemSample};

/// The machine over time. Series have a value for each of `times`; empty if it was not read.
#[derive(Clone, Debug, Default)]
pub(crate) struct SystemSeries {
    /// Seconds since the start of the recording.
    pub times: Vec<f64>,
    /// Total memory, bytes; 0: not known.
    pub total: f64,
    /// Memory that no process has and no cache: slab that cannot be reclaimed, drivers. Bytes.
    pub kernel: Vec<f64>,
    /// Shared memory and tmpfs, mapped or not. Bytes.
    pub shared: Vec<f64>,
    /// Seconds so far in which some task waited for memory (PSI).
    pub stalled: Vec<f64>,
    /// Bytes swapped out so far.
    pub swapped_out: Vec<f64>,
}

impl SystemSeries {
    /// Reads the machine's series from the recording.
    pub(crate) fn read(recording: &Recording) -> Result<SystemSeries, Error> {
        let samples = recording.system()?;
        Ok(SystemSeries::of(&samples, recording.meta().started_ns))
    }

    fn of(samples: &[(u64, SystemSample)], started_ns: u64) -> SystemSeries {
        let every = samples.len().div_ceil(MAX_POINTS).max(1);
        let chosen = || samples.iter().step_by(every);
        // A figure that was not read once is not known as a series.
        let series = |read: &dyn Fn(&SystemSample) -> Option<f64>| -> Vec<f64> {
            let values: Option<Vec<f64>> = chosen().map(|(_, sample)| read(sample)).collect();
            values.unwrap_or_default()
        };
        let float = |value: Option<u64>| value.map(|value| value as f64);
        SystemSeries {
            times: chosen()
                .map(|(time, _)| time.saturating_sub(started_ns) as f64 / 1e9)
                .collect(),
            total: samples
                .iter()
                .find_map(|(_, sample)| sample.mem_total)
                .map_or(0.0, |bytes| bytes as f64),
            kernel: series(&|sample| {
                let processes = sample.anon_pages?.saturating_add(sample.shmem?);
                float(Some(sample.used?.saturating_sub(processes)))
            }),
            shared: series(&|sample| float(sample.shmem)),
            stalled: series(&|sample| float(sample.psi_some_total_us).map(|us| us / 1e6)),
            swapped_out: series(&|sample| float(sample.swapped_out)),
        }
    }
}
