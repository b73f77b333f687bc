//! The result of malloc before the call: glibc takes the first block of a list that belongs to the thread alone
//! ([`memtrace_common::thread_cache`]).

use memtrace_common::thread_cache::list;

use crate::{kernel::CurrentTask, maps::THREAD_CACHES, memory::word_or_zero as word};

/// What is known of a thread's cache.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct CacheState {
    /// Address of the probe whose function uses it; 0: its place is not known.
    probe: u64,
    /// The thread pointer then.
    thread_pointer: u64,
    /// Address of the pointer to it.
    pointer: u64,
    /// Results that were predicted.
    predicted: u64,
}

/// The results of a thread's first predicted calls are compared, and later one of so many, a power of two.
const FIRST: u64 = 64;
const ONE_OF: u64 = 256;

impl CacheState {
    pub(crate) const UNKNOWN: CacheState = CacheState {
        probe: 0,
        thread_pointer: 0,
        pointer: 0,
        predicted: 0,
    };

    /// Another library may be where the last one was.
    #[inline(always)]
    pub(crate) fn forget_place(&mut self) {
        self.probe = 0;
    }

    /// The block that the function with this number, probed at `probe`, is about to give; 0 if that is not known.
    #[inline(always)]
    pub(crate) fn next_block(
        &mut self,
        task: CurrentTask,
        function: u32,
        probe: u64,
        size: u64,
    ) -> u64 {
        let (Some(cache), Some(list)) = (THREAD_CACHES.get(function), list(size)) else {
            return 0;
        };
        if cache.slot == 0 {
            return 0;
        }
        // A program may give a thread other variables (arch_prctl).
        let thread_pointer = task.thread_pointer();
        if self.probe != probe || self.thread_pointer != thread_pointer {
            let offset = word(probe.wrapping_add_signed(cache.slot));
            if offset == 0 {
                return 0;
            }
            self.pointer = thread_pointer.wrapping_add(offset);
            self.thread_pointer = thread_pointer;
            self.probe = probe;
        }
        match word(self.pointer) {
            0 => 0,
            start => word(start.wrapping_add(cache.lists + list * 8)),
        }
    }

    /// Whether the result of this call, which was predicted, is to be compared.
    #[inline(always)]
    pub(crate) fn is_due(&mut self) -> bool {
        self.predicted += 1;
        self.predicted <= FIRST || self.predicted & (ONE_OF - 1) == 0
    }
}

/// Results of the function with this number are not predicted any more.
#[inline(always)]
pub(crate) fn distrust(function: u32) {
    if let Some(cache) = THREAD_CACHES.get_ptr_mut(function) {
        // SAFETY: a live map value; any of the writers may win.
        unsafe { (*cache).slot = 0 };
    }
}

const _: () = assert!(ONE_OF.is_power_of_two());
