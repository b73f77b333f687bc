//! C++ exceptions through probed functions. A return probe replaces the return address on the
//! stack, and an unwinder that meets the replacement ends the process. So where an exception
//! begins, the original addresses are put back.

use aya_ebpf::{helpers::bpf_probe_write_user, macros::uprobe, programs::ProbeContext};
use memtrace_common::{loss::Reason, unwind::Memory};

use crate::{
    calls::stack_pointer,
    emit::lost,
    kernel::{MAX_PENDING_RETURNS, PendingReturns},
    maps::recording,
    memory::UserMemory,
    thread::{Thread, current_ids},
};

/// An exception is about to be thrown, or the thread to be unwound for another reason.
#[uprobe]
pub fn unwinding(context: ProbeContext) -> u32 {
    // SAFETY: the context of a uprobe is the thread's registers.
    let sp = stack_pointer(unsafe { &*context.regs });
    if let Some(outermost) = leave_throwing(sp) {
        restore(outermost);
    }
    0
}

/// Forgets the calls that the exception may leave, and those within them. Gives where the return
/// address of the outermost one is; without recording nothing is known of calls, so that of any.
#[inline(always)]
fn leave_throwing(sp: u64) -> Option<u64> {
    if !recording() {
        return Some(u64::MAX);
    }
    let (_, tid) = current_ids();
    Thread::find(tid)?.leave_throwing(sp)
}

/// Puts back the return addresses up to that at `outermost`.
#[inline(always)]
fn restore(outermost: u64) {
    let returns = PendingReturns::current();
    let trampoline = returns.trampoline();
    let mut instance = returns.first();
    for _ in 0..MAX_PENDING_RETURNS {
        if instance == 0 || trampoline == 0 {
            return;
        }
        let (entry, next) = PendingReturns::entry(instance);
        // An entry that a longjmp left behind is of memory that holds something else by now.
        if entry.slot <= outermost && UserMemory.read(entry.slot) == Some(trampoline) {
            // SAFETY: the helper checks the address. It holds the kernel's replacement of this value.
            let restored = unsafe { bpf_probe_write_user(entry.slot as *mut u64, &entry.original) };
            if restored.is_err() {
                lost(Reason::ReturnNotRestored);
            }
        }
        instance = next;
    }
}
