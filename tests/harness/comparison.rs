//! The JSON of `memtrace diff`, with checks.

use crate::{record, report::Frame, running::Finished};
use serde::Deserialize;
use std::{ffi::OsStr, path::Path};

#[derive(Debug, Deserialize)]
pub struct Comparison {
    pub fingerprint: Vec<Difference>,
    pub sites: Vec<Site>,
    pub matched_bytes: u64,
    pub unmatched_bytes: u64,
    pub baseline_total_bytes: u64,
    pub new_total_bytes: u64,
    pub workload: Option<Workload>,
}

#[derive(Debug, Deserialize)]
pub struct Difference {
    pub field: String,
    pub baseline: Option<String>,
    pub new: Option<String>,
    /// Why one side has no value.
    pub absence: Option<String>,
    pub related_sites: Vec<usize>,
}

#[derive(Debug, Deserialize)]
pub struct Site {
    pub baseline_bytes_per_s: f64,
    pub new_bytes_per_s: f64,
    pub delta_bytes_per_s: f64,
    pub interval: Option<(f64, f64)>,
    pub match_level: String,
    /// Leaf first.
    pub frames: Vec<Frame>,
    /// Where they are others.
    pub baseline_frames: Option<Vec<Frame>>,
}

#[derive(Debug, Deserialize)]
pub struct Workload {
    pub different: bool,
}

impl Site {
    /// Whether a frame of either side is of this function.
    pub fn is_in(&self, function: &str) -> bool {
        let frames = self
            .frames
            .iter()
            .chain(self.baseline_frames.iter().flatten());
        let mut functions = frames.filter_map(|frame| frame.function.as_deref());
        functions.any(|found| found == function)
    }

    /// Whether growth differs for sure, and with this sign.
    #[track_caller]
    pub fn expect_sure(&self, sign: f64) {
        let (low, high) = self.interval.expect("an interval");
        assert!(low * sign > 0.0 && high * sign > 0.0, "{self:#?}");
        assert!((low..=high).contains(&self.delta_bytes_per_s), "{self:#?}");
        let difference = self.new_bytes_per_s - self.baseline_bytes_per_s;
        assert!(
            (self.delta_bytes_per_s - difference).abs() < 1e-6,
            "{self:#?}"
        );
    }
}

impl Comparison {
    /// Compares two recordings.
    ///
    /// # Panics
    /// Unless memtrace succeeds, and accounts for every byte.
    #[track_caller]
    pub fn of(baseline: &Path, new: &Path) -> Self {
        let arguments = [baseline.as_os_str(), new.as_os_str()];
        Self::with(arguments)
    }

    /// As [`Comparison::of`], with all arguments.
    #[track_caller]
    pub fn with<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Self {
        let Finished { stdout, .. } = diff(arguments).expect_code(0);
        let comparison: Self =
            serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"));
        assert_eq!(
            comparison.matched_bytes + comparison.unmatched_bytes,
            comparison.baseline_total_bytes + comparison.new_total_bytes,
            "bytes are conserved"
        );
        comparison
    }

    /// Where a fact comes among the differences; 0 is the first.
    pub fn rank(&self, field: &str) -> Option<usize> {
        self.fingerprint.iter().position(|fact| fact.field == field)
    }
}

/// Runs `memtrace diff --format json` with more arguments.
#[track_caller]
pub fn diff<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Finished {
    let mut command = record::command(["diff", "--format", "json"]);
    crate::running::Running::start(command.args(arguments)).wait()
}
