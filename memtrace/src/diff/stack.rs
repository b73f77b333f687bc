//! A stack as a comparison needs it.

use std::sync::Arc;

use crate::frames::{Fold, Frame, Wrappers};

/// The frames of a stack, and how many of them belong to the allocator according to its recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stack {
    /// Leaf first. Stacks share frames.
    pub frames: Box<[Arc<Frame>]>,
    wrappers: usize,
}

impl Stack {
    pub(crate) fn new(frames: impl IntoIterator<Item = Arc<Frame>>, wrappers: &Wrappers) -> Stack {
        let frames: Box<[Arc<Frame>]> = frames.into_iter().collect();
        let wrappers = wrappers.leading(frames.iter().map(Arc::as_ref));
        Stack { frames, wrappers }
    }

    /// Without the allocator's and the interpreter's own frames, as reports show it.
    pub(crate) fn shown(&self) -> Vec<&Frame> {
        let frames = self.frames.iter().map(Arc::as_ref).collect();
        Fold::ALL.of(frames, self.wrappers)
    }
}
