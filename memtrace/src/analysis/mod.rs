//! Meaning of a recording's figures: series over time, statistics, and the verdicts drawn from
//! them. Pure: reads a [`crate::recording::Recording`] and nothing else, prints nothing.
//! `docs/reference/verdict-rules.md` has the rules and the reasons for them.

pub(crate) mod account;
pub(crate) mod courses;
pub(crate) mod failures;
#[cfg(test)]
mod fixture;
pub(crate) mod kin;
pub(crate) mod rounds;
pub(crate) mod series;
pub(crate) mod statistics;
pub(crate) mod suppressions;
pub(crate) mod system;
pub(crate) mod verdict;
mod window;
