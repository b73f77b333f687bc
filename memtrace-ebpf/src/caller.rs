//! Which thread is running, and whether its process is traced.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use memtrace_common::process::{Process, process_flags};

use crate::maps::{PROCESSES, recording};

/// A thread of a traced process.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Caller {
    pub(crate) tgid: u32,
    pub(crate) tid: u32,
    /// The tgid whose memory it runs in.
    pub(crate) space: u32,
    /// Older verifiers refuse copies of room that was not written.
    #[cfg(feature = "legacy")]
    pad: u32,
    pub(crate) epoch: u64,
    pub(crate) image: u64,
}

impl Caller {
    /// The current thread, if its process is traced and events are wanted.
    #[inline(always)]
    pub(crate) fn current() -> Option<Self> {
        if recording() { Self::traced() } else { None }
    }

    /// The current thread, if its process is traced, whether or not events are wanted.
    #[inline(always)]
    pub(crate) fn traced() -> Option<Self> {
        let (tgid, tid) = current_ids();
        // SAFETY: the value is read before anything could remove it; a stale copy does no harm.
        let process: &Process = unsafe { PROCESSES.get(&tgid) }?;
        (process.flags & process_flags::ACTIVE != 0).then_some(Self::new(
            tgid,
            tid,
            process.space,
            process.epoch,
            process.image,
        ))
    }

    #[inline(always)]
    pub(crate) fn new(tgid: u32, tid: u32, space: u32, epoch: u64, image: u64) -> Self {
        Self {
            tgid,
            tid,
            space,
            #[cfg(feature = "legacy")]
            pad: 0,
            epoch,
            image,
        }
    }
}

/// (tgid, tid) of the current thread.
#[inline(always)]
pub(crate) fn current_ids() -> (u32, u32) {
    let both = bpf_get_current_pid_tgid();
    ((both >> 32) as u32, both as u32)
}
