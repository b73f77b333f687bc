//! The calls that each thread has in flight.
//!
//! Calls nest (calloc → malloc, a hook → mmap), so the calls in flight are a small stack per thread, each call known by
//! its stack pointer: a return belongs to the call whose stack pointer it restores. Calls that were left by other means
//! (longjmp) are below any later caller's stack pointer and go when seen. A call counts unless another one of its layer
//! is in flight: within a layer only the outermost call counts, and no layer hides another.

use aya_ebpf::{helpers::generated::bpf_jiffies64, macros::map, maps::Array};
use memtrace_common::{
    Layer,
    device::Current,
    function::{Cookie, NESTED},
    limits::MAX_IN_FLIGHT,
    loss::Reason,
};

use crate::{
    arch::publish,
    atomic::{claim_for, word},
    caller::Caller,
    emit::{self, lost},
    kernel::CurrentTask,
    maps::{changes, changes_before, recording},
    subject::Subject,
    thread_cache::CacheState,
};

/// Threads of traced processes. A thread takes the place that its tid gives, or the next free one, when it first
/// allocates, and leaves it when it ends. No hash map: its look-up would take more of an event's time than all else.
#[map]
static THREADS: Array<Thread> = Array::with_max_entries(PLACES, 0);

/// A power of two: the least `pid_max` that is usual.
const PLACES: u32 = 32_768;

/// How many places a thread may try, beginning with its own.
const REACH: u32 = 16;

/// From one to the next, odd. The threads of a pool have tids in a row: a neighbour's place is likely taken.
const STRIDE: u64 = 2053;

/// Walks are numbered from somewhere among these, so that a thread's numbers are not those of an earlier one with its
/// tid.
const FIRST_WALKS: u64 = 0x7fff_ffff;

/// No place: the process is not traced.
const NOWHERE: u64 = u64::MAX;

/// No place: all that the thread may try are taken.
const FULL: u64 = u64::MAX - 1;

/// A probed function that has been entered and has not returned.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Call {
    /// Stack pointer at entry, where the return address is.
    pub(crate) sp: u64,
    /// The probe's cookie; [`NESTED`] is set if another call of its layer was in flight.
    pub(crate) cookie: u64,
    pub(crate) size: u64,
    /// Block to take, address of the out-pointer or, of `malloc_session`, the block that is expected (0: none).
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

impl Freed {
    const NONE: Freed = Freed {
        addr: 0,
        sp: 0,
        cookie: 0,
    };
}

/// A system call that has been entered. A thread is in one at a time.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Syscall {
    /// Its number plus one; 0: none, or its exit was seen. If the kernel skips the entry of another call, the exit of that
    /// one must not use these arguments.
    pub(crate) entered: u64,
    pub(crate) args: [u64; 6],
    /// Of an mmap of code: the file's inode and device, else 0.
    pub(crate) ino: u64,
    pub(crate) dev: u64,
}

impl Syscall {
    const EMPTY: Syscall = Syscall {
        entered: 0,
        args: [0; 6],
        ino: 0,
        dev: 0,
    };
}

/// Cached process facts; valid while [`changes`] has the same value.
#[derive(Clone, Copy)]
#[repr(C)]
struct Known {
    as_of: u64,
    image: u64,
    subject: Subject,
}

/// The time of a thread's last calls. Calls that follow each other closely share it: reading the clock takes about as long
/// as the rest of a release.
#[derive(Clone, Copy)]
#[repr(C)]
struct Clock {
    time_ns: u64,
    /// The kernel's tick in which the clock was read.
    tick: u64,
    /// Calls that have this time.
    calls: u64,
}

impl Clock {
    const NEVER: Clock = Clock {
        time_ns: 0,
        tick: 0,
        calls: CALLS_PER_TIME,
    };
}

/// Most calls of a thread that share a time.
const CALLS_PER_TIME: u64 = 16;

/// Value of the THREADS map.
#[repr(C)]
pub(crate) struct Thread {
    /// Its tgid and tid; 0: the place is free.
    owner: u64,
    known: Known,
    pub(crate) calls: [Call; MAX_IN_FLIGHT],
    pub(crate) depth: u64,
    walks: u64,
    clock: Clock,
    pub(crate) cache: CacheState,
    pub(crate) syscall: Syscall,
    /// The last release of the heap, and of anything else, by which one releasing function
    /// implemented by another (free_sized → free) is recognised.
    freed: [Freed; 2],
    /// The stack pointer of the last call that returned, until the next one begins.
    returned: u64,
    /// [`Current`] device of each context of the thread, 8 bits each, the topmost in the lowest.
    pub(crate) devices: u64,
}

impl Thread {
    /// The current thread, and its place.
    ///
    /// # Errors
    /// The reason why its calls are lost: its process is not traced, no events are wanted, or there is no free place.
    #[inline(always)]
    pub(crate) fn current() -> Result<(Caller, &'static mut Thread), Reason> {
        if !recording() {
            return Err(Reason::NotTraced);
        }
        Self::of(CurrentTask::get())
    }

    /// Like [`Thread::current`], of a task that the caller has. The caller has checked [`recording`].
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub(crate) fn of(task: CurrentTask) -> Result<(Caller, &'static mut Thread), Reason> {
        let owner = task.ids();
        let now = changes();
        let own = own_place(owner);
        let known = THREADS.get(own).ok_or(Reason::NotTraced)?;
        let place = if known.owner == owner && known.known.as_of == now {
            u64::from(own)
        } else {
            admit(owner)
        };
        let thread = match place {
            FULL => return Err(Reason::ThreadTableFull),
            place => at(place).ok_or(Reason::NotTraced)?,
        };
        let known = &thread.known;
        let subject = &known.subject;
        let (tgid, tid) = ((owner >> 32) as u32, owner as u32);
        let caller = Caller::new(tgid, tid, subject.space, subject.epoch, known.image);
        Ok((caller, thread))
    }

    /// The thread of a process that is traced, if it has a place.
    #[inline(always)]
    pub(crate) fn find(caller: &Caller) -> Option<&'static mut Thread> {
        at(place_of(id(caller.tgid, caller.tid)))
    }

    /// A thread has ended, or is another one from now on.
    #[inline(always)]
    pub(crate) fn remove(tgid: u32, tid: u32) {
        if let Some(thread) = at(place_of(id(tgid, tid))) {
            // SAFETY: a live map value.
            unsafe { publish(&raw mut thread.owner, 0) };
        }
    }

    /// What its stacks' meaning depends on, and the number of changes as of which that is right.
    #[inline(always)]
    pub(crate) fn subject(&self) -> (&Subject, u64) {
        (&self.known.subject, self.known.as_of)
    }

    /// A number for a walk that begins now: one more than that of the thread's walk before. No other thread has it.
    #[inline(always)]
    pub(crate) fn next_walk(&mut self) -> u64 {
        self.walks = self.walks.wrapping_add(1);
        self.walks
    }

    /// The time now, or that of an earlier call in the same tick of the kernel (1 to 10 ms): up to 16 calls share it.
    #[inline(always)]
    pub(crate) fn now(&mut self) -> u64 {
        // SAFETY: the helper has no preconditions.
        let tick = unsafe { bpf_jiffies64() };
        let clock = &mut self.clock;
        if clock.tick != tick || clock.calls >= CALLS_PER_TIME {
            clock.time_ns = emit::now();
            clock.tick = tick;
            clock.calls = 0;
        }
        clock.calls += 1;
        clock.time_ns
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
        self.returned = 0;
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
                self.returned = sp;
                return Some(top);
            }
            if top.cookie & NESTED == 0 {
                lost(Reason::NoReturn);
            }
        }
        None
    }

    /// Counts a return whose call is not known, once: where each process has perf events of its own, the kernel runs all
    /// their return programs at each return (`uretprobe_dispatcher`, kernel/trace/trace_uprobe.c). `sp`: as for
    /// [`Thread::pop`].
    #[inline(always)]
    pub(crate) fn lost_call(&mut self, sp: u64) {
        if self.returned != sp {
            self.returned = sp;
            lost(Reason::BeganBeforeAttach);
        }
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

/// The place at an index.
#[inline(always)]
fn at(place: u64) -> Option<&'static mut Thread> {
    // SAFETY: only the thread itself uses its place, and only its end gives it up.
    THREADS
        .get_ptr_mut(place as u32)
        .map(|thread| unsafe { &mut *thread })
}

#[inline(always)]
fn id(tgid: u32, tid: u32) -> u64 {
    u64::from(tgid) << 32 | u64::from(tid)
}

/// The place that a thread's tid gives.
#[inline(always)]
fn own_place(owner: u64) -> u32 {
    owner as u32 & (PLACES - 1)
}

/// The place of the current thread, with what is known of its process now, if that is traced; else [`NOWHERE`].
#[inline(always)]
fn admit(owner: u64) -> u64 {
    let mut place = place_of(owner);
    if place == NOWHERE {
        place = settle(owner);
    }
    if place == FULL {
        return FULL;
    }
    match at(place) {
        // Not at its own place, so that this is not seen at once.
        Some(thread) if thread.known.as_of == changes() => place,
        _ => learn(place),
    }
}

// VERIFIER: global functions, these three: the programs that call them are verified without them, and their stacks do
// not add up.
/// The place of a thread, if it has one.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn place_of(owner: u64) -> u64 {
    for distance in 0..REACH {
        let place = reachable(owner, distance);
        if at(place).is_some_and(|thread| thread.owner == owner) {
            return place;
        }
    }
    NOWHERE
}

/// Gives the current thread a place if its process is traced; [`FULL`] if none is free.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn settle(owner: u64) -> u64 {
    if Caller::traced().is_none() {
        return NOWHERE;
    }
    for distance in 0..REACH {
        let place = reachable(owner, distance);
        let Some(thread) = at(place) else {
            break;
        };
        // A thread of the same tid in another process has ended.
        let is_left = thread.owner as u32 == owner as u32;
        // SAFETY: a live map value.
        if is_left || unsafe { claim_for(&raw mut thread.owner, owner, word::PLACE | place) } {
            thread.owner = owner;
            thread.depth = 0;
            thread.known.as_of = 0;
            thread.syscall = Syscall::EMPTY;
            thread.devices = 0;
            thread.clock = Clock::NEVER;
            thread.cache = CacheState::UNKNOWN;
            thread.walks = owner << 32 | emit::now() & FIRST_WALKS;
            thread.freed = [Freed::NONE; 2];
            thread.returned = 0;
            return place;
        }
    }
    FULL
}

/// Keeps at the place of the current thread what is known of its process.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn learn(place: u64) -> u64 {
    // Before the rest, which may change meanwhile.
    let as_of = changes_before();
    let (Some(thread), Some(caller)) = (at(place), Caller::traced()) else {
        return NOWHERE;
    };
    if thread.known.image == caller.image {
        thread.cache.forget_place();
    } else {
        thread.cache = CacheState::UNKNOWN;
    }
    thread.known = Known {
        as_of,
        image: caller.image,
        subject: Subject::of(&caller),
    };
    place
}

#[inline(always)]
fn reachable(owner: u64, distance: u32) -> u64 {
    own_place(owner.wrapping_add(u64::from(distance) * STRIDE)).into()
}

const _: () = assert!(MAX_IN_FLIGHT.is_power_of_two());
const _: () = assert!(PLACES.is_power_of_two());
