//! A part of a choice: whether a process matches it, and which names would choose that process.

use super::candidate::Candidate;

/// A part of a choice.
pub(super) trait Criterion {
    fn matches(&self, process: &Candidate) -> bool;

    /// The names that would choose this process.
    fn names(&self, process: &Candidate) -> Vec<String>;
}
