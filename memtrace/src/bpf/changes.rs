//! The count by which the kernel side sees that what it knows of processes has changed.

use std::{
    os::fd::AsFd,
    sync::atomic::{AtomicU64, Ordering},
};

use aya::Ebpf;

use super::{error::TracerError, maps::descriptor, raw::Shared};

/// The CHANGES map, in which both sides count.
pub(super) struct Changes(Shared<u64>);

impl Changes {
    pub(super) fn of(ebpf: &Ebpf) -> Result<Self, TracerError> {
        let count = Shared::map(descriptor(ebpf, "CHANGES")?.as_fd(), 1);
        Ok(Self(count.map_err(TracerError::State)?))
    }

    /// To be called after each change of PROCESSES, LOGS, SNAPSHOTS, INTERPRETER_OF, IMPORTS or CODE_ENDS.
    pub(super) fn announce(&mut self) {
        if let Some(count) = self.0.first_mut() {
            // SAFETY: aligned, and nothing on this side refers to it otherwise; the kernel side uses atomic
            // instructions too.
            unsafe { AtomicU64::from_ptr(count) }.fetch_add(1, Ordering::SeqCst);
        }
    }
}
