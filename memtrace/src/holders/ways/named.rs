//! A step of a path with its name.

use crate::{holders::graph::NodeId, recording::Step};

/// A step, before similar ones are merged.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) step: Step,
    /// As the step's name, with `[i]` for whatever index or key.
    pub(super) general: String,
    /// `None` for the root.
    pub(super) node: Option<NodeId>,
    pub(super) is_expression: bool,
}

impl Named {
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.step.kind == other.step.kind
            && self.general == other.general
            && self.step.type_name == other.step.type_name
    }
}
