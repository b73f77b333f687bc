//! Metrics by which sites are sorted, drawn and summed.

use std::{fmt, str::FromStr};

use crate::ledger::Totals;

/// A metric to sort or draw sites by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Metric {
    #[default]
    LiveBytes,
    LiveCount,
    AllocBytes,
    AllocCount,
    /// Each site's own largest live bytes; sites need not have peaked together.
    Peak,
}

impl Metric {
    /// Every metric, in the order of the documentation.
    pub(crate) const ALL: [Metric; 5] = [
        Metric::LiveBytes,
        Metric::LiveCount,
        Metric::AllocBytes,
        Metric::AllocCount,
        Metric::Peak,
    ];

    /// The metric's name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Metric::LiveBytes => "live-bytes",
            Metric::LiveCount => "live-count",
            Metric::AllocBytes => "alloc-bytes",
            Metric::AllocCount => "alloc-count",
            Metric::Peak => "peak",
        }
    }

    /// The unit of a value, for a legend.
    pub(crate) const fn unit(self) -> &'static str {
        match self {
            Metric::LiveCount => "blocks",
            Metric::AllocCount => "allocations",
            Metric::LiveBytes | Metric::AllocBytes | Metric::Peak => "bytes",
        }
    }

    /// The metric's value.
    pub(crate) fn of(self, totals: &Totals) -> u64 {
        match self {
            Metric::LiveBytes => totals.live_bytes,
            Metric::LiveCount => totals.live_count,
            Metric::AllocBytes => totals.alloc_bytes,
            Metric::AllocCount => totals.alloc_count,
            Metric::Peak => totals.peak_bytes,
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Metric::ALL.into_iter().find(|metric| metric.name() == text);
        known.ok_or_else(|| {
            let names = Metric::ALL.map(Metric::name).join(", ");
            format!("`{text}` is not a metric; give one of {names}")
        })
    }
}
