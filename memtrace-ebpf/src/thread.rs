//! The calls that each thread has in flight.
//!
//! Calls nest (calloc → malloc, a hook → mmap), so the calls in flight are a small stack per thread, each call known by
//! its stack pointer: a return belongs to the call whose stack pointer it restores. Calls that were left by other means
//! (longjmp) are below any later caller's stack pointer and go when seen. A call counts unless another one of its layer
//! is in flight: within a layer only the outermost call counts, and no layer hides another.

use aya_ebpf::{macros::map, maps::HashMap};
use memtrace_common::{
    Layer,
    device::Current,
    function::{Cookie, NESTED},
    limits::MAX_IN_FLIGHT,
    loss::Reason,
};

use crate::emit::lost;

/// The calls in flight of each thread of a traced process, by tid. Filled when a thread first
/// allocates, emptied when it ends.
#[map]
pub(crate) static THREADS: HashMap<u32, Thread> = HashMap::with_max_entries(32_768, 0);

/// A probed function that has been entered and has not returned.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Call {
    /// Stack pointer at entry, where the return address is.
    pub(crate) sp: u64,
    /// The probe's cookie; [`NESTED`] is set if another call of its layer was in flight.
    pub(crate) cookie: u64,
    pub(crate) size: u64,
    /// Block to take, or address of the out-pointer.
    pub(crate) pointer: u64,
    /// The rest is of devices' functions. Address of a word that multiplies the size, or 0; other
    /// operations keep an argument here.
    pub(crate) factor: u64,
    /// The factor of the size if that word is never written, because the call failed.
    pub(crate) row: u64,
    /// Layers in flight, a bit each: those of the calls before and, where it gives memory, its own.
    pub(crate) inside: u32,
    /// The device, if it is in the arguments; else 0.
    pub(crate) device: Current,
}

impl Call {
    pub(crate) const EMPTY: Call = Call {
        sp: 0,
        cookie: 0,
        size: 0,
        pointer: 0,
        factor: 0,
        row: 0,
        inside: 0,
        device: 0,
    };
}

/// A release.
#[derive(Clone, Copy)]
#[repr(C)]
struct Freed {
    addr: u64,
    sp: u64,
    cookie: u64,
}

/// A system call that has been entered. A thread is in one at a time.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Syscall {
    pub(crate) args: [u64; 6],
    /// Of an mmap of code: the file's inode and device, else 0.
    pub(crate) ino: u64,
    pub(crate) dev: u64,
}

impl Syscall {
    const EMPTY: Syscall = Syscall {
        args: [0; 6],
        ino: 0,
        dev: 0,
    };
}

/// Value of the THREADS map.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Thread {
    pub(crate) calls: [Call; MAX_IN_FLIGHT],
    pub(crate) depth: u64,
    pub(crate) syscall: Syscall,
    /// The last release of the heap, and of anything else, by which one releasing function
    /// implemented by another (free_sized → free) is recognised.
    freed: [Freed; 2],
    /// [`Current`] device of each context of the thread, 8 bits each, the topmost in the lowest.
    pub(crate) devices: u64,
}

static EMPTY: Thread = Thread {
    calls: [Call::EMPTY; MAX_IN_FLIGHT],
    depth: 0,
    syscall: Syscall::EMPTY,
    freed: [Freed {
        addr: 0,
        sp: 0,
        cookie: 0,
    }; 2],
    devices: 0,
};

impl Thread {
    /// The thread's entry, if it has one.
    #[inline(always)]
    pub(crate) fn find(tid: u32) -> Option<&'static mut Thread> {
        // SAFETY: only the thread itself uses its entry, and only its end removes it.
        THREADS
            .get_ptr_mut(&tid)
            .map(|thread| unsafe { &mut *thread })
    }

    /// The thread's entry, made if it has none. `None` (counted) if the table is full.
    #[inline(always)]
    pub(crate) fn find_or_make(tid: u32) -> Option<&'static mut Thread> {
        if let Some(thread) = Self::find(tid) {
            return Some(thread);
        }
        if THREADS.insert(&tid, &EMPTY, 0).is_err() {
            lost(Reason::ThreadTableFull);
            return None;
        }
        Self::find(tid)
    }

    /// Forgets calls that can no longer return: those deeper than `sp`, and one
    /// at `sp` of the same function (at `sp` of another one it is a tail call).
    #[inline(always)]
    pub(crate) fn drop_stale(&mut self, sp: u64, cookie: u64) {
        // A bounded loop, so that kernels without unbounded ones verify it.
        for _ in 0..MAX_IN_FLIGHT {
            let Some(top) = self.top() else { return };
            if top.sp > sp || (top.sp == sp && (top.cookie & !NESTED) != cookie) {
                return;
            }
            if top.cookie & NESTED == 0 {
                lost(Reason::NoReturn);
            }
            self.depth -= 1;
        }
    }

    /// Layers in flight, a bit each.
    #[inline(always)]
    pub(crate) fn inside(&self) -> u32 {
        self.top().map_or(0, |call| call.inside)
    }

    /// Records an entered call. False if too many are in flight, which is counted where it is the
    /// outermost of its layer.
    #[inline(always)]
    pub(crate) fn push(&mut self, call: Call) -> bool {
        let depth = self.depth as usize;
        if depth >= MAX_IN_FLIGHT {
            if call.cookie & NESTED == 0 {
                lost(Reason::NestingTooDeep);
            }
            return false;
        }
        self.calls[depth & (MAX_IN_FLIGHT - 1)] = call;
        self.depth += 1;
        true
    }

    /// Takes the call that was entered with stack pointer `sp`, dropping any deeper ones. It stays
    /// where it is until the thread enters the next one.
    #[inline(always)]
    pub(crate) fn pop(&mut self, sp: u64) -> Option<&'static Call> {
        for _ in 0..MAX_IN_FLIGHT {
            // SAFETY: part of a live map value that only this thread uses.
            let top = unsafe { &*core::ptr::from_ref(self.top()?) };
            if top.sp > sp {
                return None;
            }
            self.depth -= 1;
            if top.sp == sp {
                return Some(top);
            }
            if top.cookie & NESTED == 0 {
                lost(Reason::NoReturn);
            }
        }
        None
    }

    /// Forgets the calls from the outermost one on that a C++ exception may leave; gives where its
    /// return address is. Calls deeper than `sp` ended before, without a return.
    #[inline(always)]
    pub(crate) fn leave_throwing(&mut self, sp: u64) -> Option<u64> {
        for depth in 0..MAX_IN_FLIGHT {
            if depth as u64 >= self.depth {
                return None;
            }
            let call = &self.calls[depth];
            if call.sp >= sp && Cookie(call.cookie).may_throw() {
                self.depth = depth as u64;
                return Some(call.sp);
            }
        }
        None
    }

    /// Whether this thread's last act of the kind was to release the same block by another
    /// function that called (or jumped to) this one.
    #[inline(always)]
    pub(crate) fn released_already(&mut self, block: u64, sp: u64, packed: u64) -> bool {
        let freed = self.freed(packed);
        if freed.addr == block && freed.cookie != packed && sp <= freed.sp {
            return true;
        }
        *freed = Freed {
            addr: block,
            sp,
            cookie: packed,
        };
        false
    }

    /// A block may be given whose address was just released.
    #[inline(always)]
    pub(crate) fn forget_released(&mut self, packed: u64) {
        self.freed(packed).addr = 0;
    }

    #[inline(always)]
    fn freed(&mut self, packed: u64) -> &mut Freed {
        let heap = Cookie(packed).layer() == Layer::Heap as u8;
        let [of_heap, other] = &mut self.freed;
        if heap { of_heap } else { other }
    }

    #[inline(always)]
    fn top(&self) -> Option<&Call> {
        let depth = self.depth as usize;
        (depth != 0).then(|| &self.calls[(depth.wrapping_sub(1)) & (MAX_IN_FLIGHT - 1)])
    }
}

const _: () = assert!(MAX_IN_FLIGHT.is_power_of_two());
