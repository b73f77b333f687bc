//! The difference of a site between two sides.

use std::sync::Arc;

use super::{Growth, Level, Stack, workload::SAME_WORKLOAD};
use crate::{event::Layer, frames::Frame};

/// A site of one or both sides.
#[derive(Clone, Debug)]
pub(crate) struct SiteDifference {
    pub layer: Layer,
    pub is_space: bool,
    /// `None`: on one side only.
    pub level: Option<Level>,
    /// Bytes per unit.
    pub baseline: Growth,
    pub new: Growth,
    pub delta: Growth,
    /// Live bytes at the moment that reports show; the sum of several baselines.
    pub baseline_bytes: u64,
    pub new_bytes: u64,
    /// `None`: the site is not on that side.
    pub baseline_stack: Option<Arc<Stack>>,
    pub new_stack: Option<Arc<Stack>>,
}

impl SiteDifference {
    /// The new side's stack, or the baseline's if it has none.
    pub(crate) fn stack(&self) -> Option<&Stack> {
        let stack = self.new_stack.as_ref().or(self.baseline_stack.as_ref());
        stack.map(Arc::as_ref)
    }

    /// The frames of that stack, leaf first.
    pub(crate) fn frames(&self) -> &[Arc<Frame>] {
        self.stack().map_or(&[], |stack| &stack.frames)
    }

    /// Growth differs by more than the load of comparable recordings may.
    pub(crate) fn is_beyond_load(&self) -> bool {
        let larger = self.baseline.rate.abs().max(self.new.rate.abs());
        self.delta.rate.abs() > SAME_WORKLOAD * larger
    }

    /// Worth reporting: growth differs, or one side does not have the site.
    pub(super) fn differs(&self) -> bool {
        self.delta.rate != 0.0 || (self.level.is_none() && self.baseline_bytes + self.new_bytes > 0)
    }

    /// For an order that does not depend on chance.
    pub(super) fn place(&self) -> impl Iterator<Item = (Option<&str>, Option<u64>)> {
        let frames = self.frames().iter();
        frames.map(|frame| (frame.function.as_deref(), frame.file_offset))
    }
}
