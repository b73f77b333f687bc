//! The types of Python's objects that became more and more.

use crate::recording::{Census, GrowingType};

/// What was counted of the objects of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Types {
    pub(crate) census: Census,
    /// The one that took the most memory first.
    pub(crate) growing: Vec<GrowingType>,
}

impl Types {
    /// Bytes per second by which their objects grew.
    pub(crate) fn rate(&self) -> f64 {
        let types = self.growing.iter();
        types.map(|of| of.per_s() * of.size() as f64).sum()
    }
}
