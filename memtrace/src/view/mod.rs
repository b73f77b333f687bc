//! The contents of a report, independent of its format: the sites, their order and groups, and the
//! completeness of their stacks. Pure; `render` turns it into text, JSON and graphs.

pub(crate) mod fail_on;
pub(crate) mod findings;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod group;
pub(crate) mod health;
mod metric;
mod select;

pub(crate) use group::By;
pub(crate) use metric::Metric;
pub(crate) use select::{Filter, Selection, Shown, is_indirect};

/// Why there is nothing to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "ages are known only at the end of a recording, and this one has none; leave out `--older` or `--at`"
    )]
    NoAges,
    #[error(
        "groups have no peak, because sites need not peak at the same time; choose another `--sort`, or leave out `--by`"
    )]
    NoPeakOfGroups,
}
