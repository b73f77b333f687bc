//! C++ exceptions through probed functions. A return probe replaces the return address on the
//! stack, and an unwinder that meets the replacement ends the process. So where unwinding begins,
//! the thread is stopped for the holder to put the original addresses back.

use aya_ebpf::{macros::uprobe, programs::ProbeContext};
use memtrace_common::{
    event::{PendingReturn, UNWOUND, Unwinding},
    loss::Reason,
};

use crate::{
    arch::{return_slot, stack_pointer},
    caller::Caller,
    emit::lost,
    kernel::{MAX_PENDING_RETURNS, PendingReturns},
    kernel_stack, lifecycle,
    loops::{BREAK, CONTINUE, repeat},
    maps::{UNWINDING, recording},
    thread::Thread,
};

static NONE: Unwinding = Unwinding {
    tgid: 0,
    n: 0,
    returns: [PendingReturn {
        slot: 0,
        original: 0,
    }; UNWOUND],
};

/// An exception is about to be thrown, or the thread to be unwound for another reason.
#[uprobe]
pub fn unwinding(context: ProbeContext) -> u32 {
    unwind(&context);
    0
}

#[inline(always)]
fn unwind(context: &ProbeContext) -> Option<()> {
    // SAFETY: the context of a uprobe is the thread's registers.
    let registers = unsafe { &*context.regs };
    kernel_stack::use_own(context, registers);
    // The return addresses are replaced before recording begins, and until the probes are gone.
    let caller = Caller::traced()?;
    let sp = stack_pointer(registers);
    let outermost = match Thread::find(&caller) {
        Some(thread) if recording() && thread.depth != 0 => thread.leave_throwing(sp)?,
        // Nothing is known of calls: they began before recording did.
        _ => u64::MAX,
    };
    if UNWINDING.insert(&caller.tid, &NONE, 0).is_err() {
        lost(Reason::ReturnNotRestored);
        return None;
    }
    let unwinding = UNWINDING.get_ptr_mut(&caller.tid)?;
    // SAFETY: a live map value, which the holder does not look at before the thread is stopped.
    let unwinding = unsafe { &mut *unwinding };
    collect(unwinding, outermost);
    if unwinding.n == 0 {
        let _ = UNWINDING.remove(&caller.tid);
        return None;
    }
    unwinding.tgid = caller.tgid;
    if !lifecycle::stop_for_holder() {
        let _ = UNWINDING.remove(&caller.tid);
        lost(Reason::ReturnNotRestored);
    }
    None
}

/// A search among the return addresses that were replaced.
struct Search {
    unwinding: *mut Unwinding,
    instance: u64,
    trampoline: u64,
    outermost: u64,
}

/// The return addresses that were replaced, up to that at `outermost`.
#[inline(always)]
fn collect(unwinding: &mut Unwinding, outermost: u64) {
    let returns = PendingReturns::current();
    let mut search = Search {
        unwinding,
        instance: returns.first(),
        trampoline: returns.trampoline(),
        outermost,
    };
    if search.trampoline == 0 {
        return;
    }
    repeat(MAX_PENDING_RETURNS, next_return, &mut search);
}

/// Callback of [`repeat`].
unsafe extern "C" fn next_return(_index: u64, search: *mut Search) -> u64 {
    // SAFETY: the pointers are those that `collect` passed.
    let (search, unwinding) = unsafe { (&mut *search, &mut *(*search).unwinding) };
    if search.instance == 0 {
        return BREAK;
    }
    let (mut entry, next) = PendingReturns::entry(search.instance);
    search.instance = next;
    if entry.slot > search.outermost {
        return CONTINUE;
    }
    // An entry that a longjmp left behind is of memory that holds something else by now.
    entry.slot = return_slot(entry.slot, search.trampoline);
    if entry.slot == 0 {
        return CONTINUE;
    }
    let n = unwinding.n as usize;
    if n >= UNWOUND {
        lost(Reason::ReturnNotRestored);
        return BREAK;
    }
    unwinding.returns[n & (UNWOUND - 1)] = entry;
    unwinding.n = n as u32 + 1;
    CONTINUE
}

const _: () = assert!(UNWOUND.is_power_of_two());
