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
    /// Makes the function of an `lru_cache` one step with the dict that is the cache.
    pub(super) fn be_cache(&mut self, dict: Self) {
        self.node = dict.node;
        self.step.type_name = Some("lru_cache".to_owned());
        self.step.length = dict.step.length;
        self.step.growth_per_s = dict.step.growth_per_s;
        self.step.buffer = dict.step.buffer;
    }

    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.step.kind == other.step.kind
            && self.general == other.general
            && self.step.type_name == other.step.type_name
    }
}
