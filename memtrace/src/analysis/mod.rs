//! What the figures of a recording mean: series over time, statistics, and the
//! verdicts drawn from them. Pure: reads a [`crate::recording::Recording`] and
//! nothing else, prints nothing. `docs/verdicts.md` has the rules and why they
//! are so.

pub mod account;
#[cfg(test)]
mod fixture;
pub mod series;
pub mod statistics;
pub mod suppressions;
pub mod system;
pub mod verdict;
mod window;
