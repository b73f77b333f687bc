//! What a rule finds on a process.

use super::{
    class::{Class, Grade},
    evidence::Evidence,
};

/// A finding on a process before it becomes a verdict.
pub(super) struct Finding {
    pub(super) class: Class,
    pub(super) grade: Grade,
    pub(super) evidence: Vec<Evidence>,
    pub(super) runner_up: Option<Class>,
    /// Bytes per second; `None` if it is not about bytes.
    pub(super) rate: Option<f64>,
}
