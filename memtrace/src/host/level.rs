//! The level of a limited amount of memory: of a control group, or of the machine.

/// How full a limited amount of memory is, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// Without file pages, which the kernel can drop.
    pub(crate) used: u64,
    pub(crate) limit: u64,
}

impl Level {
    /// The part that is left.
    pub(crate) fn room(self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}
