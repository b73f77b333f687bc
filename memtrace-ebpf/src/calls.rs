//! Probes on allocation functions of memory: one program for entries, one for returns. The cookie says how to read the
//! function at hand. Those of devices are in [`crate::device`].

use aya_ebpf::{
    EbpfContext,
    bindings::pt_regs,
    helpers::{bpf_get_current_pid_tgid, bpf_probe_read_user},
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use memtrace_common::{
    event::{Alloc, Free, Kind, flags},
    function::{Cookie, NESTED, NO_ARGUMENT, Operation, Outcome},
    loss::Reason,
    unwind::Registers,
};

use crate::{
    arch::{
        after_return, argument, arguments, at_entry, entry_stack_pointer, return_address,
        return_value, stack_pointer,
    },
    caller::Caller,
    cookie::cookie,
    emit::{Wake, emit_here, header_at, lost},
    kernel::CurrentTask,
    kernel_stack,
    maps::{CALLED, recording},
    stack,
    thread::{Call, Thread},
};

/// An allocation function was entered.
#[uprobe]
pub fn call_entry(context: ProbeContext) -> u32 {
    // SAFETY: the context of a uprobe is the thread's registers.
    let registers = unsafe { &*context.regs };
    kernel_stack::use_own(&context, registers);
    if let Some(cookie) = cookie(&context) {
        enter(registers, cookie);
    }
    0
}

#[inline(always)]
fn enter(registers: &pt_regs, packed: u64) -> Option<()> {
    let (caller, thread) = Thread::current().map_err(lost).ok()?;
    let cookie = Cookie(packed);
    let sp = stack_pointer(registers);
    let arguments = arguments(registers);
    thread.drop_stale(sp, packed);
    let (inside, own) = (thread.inside(), 1u32 << cookie.layer());
    let nested = inside & own != 0;
    let block = argument(&arguments, cookie.block());

    if cookie.operation() == Operation::Free as u8 {
        if block != 0 && !nested {
            let repeated = thread.released_already(block, sp, packed);
            let record = release(Kind::Free, &caller, thread.now(), cookie, block, repeated);
            emit_here(&record, Reason::RingFullFree, Wake::Lazily);
        }
        return None;
    }

    thread.forget_released(packed);
    let mut size = argument(&arguments, cookie.size());
    if cookie.count() != NO_ARGUMENT {
        size = product(size, argument(&arguments, cookie.count()));
    }
    let pointer = if cookie.outcome() == Outcome::ErrorAndOutPointer as u8 {
        argument(&arguments, 0)
    } else {
        block
    };
    let flag = if nested { NESTED } else { 0 };
    if thread.push(Call {
        sp,
        cookie: packed | flag,
        size,
        pointer,
        inside: inside | own,
        ..Call::EMPTY
    }) && !nested
        && cookie.operation() == Operation::Realloc as u8
        && block != 0
    {
        let record = release(
            Kind::ReallocBegin,
            &caller,
            thread.now(),
            cookie,
            block,
            false,
        );
        emit_here(&record, Reason::RingFullFree, Wake::Lazily);
    }
    None
}

/// `size * count`, or the largest size where that overflows: a call that must fail. In halves, because the compiler
/// makes a 128-bit multiplication of anything shorter, which BPF lacks.
#[inline(always)]
pub(crate) fn product(size: u64, count: u64) -> u64 {
    let (large, small) = if size < count {
        (count, size)
    } else {
        (size, count)
    };
    if small >> 32 != 0 {
        return u64::MAX;
    }
    let low = (large & 0xffff_ffff) * small;
    let high = (large >> 32) * small + (low >> 32);
    if high >> 32 != 0 {
        u64::MAX
    } else {
        high << 32 | low & 0xffff_ffff
    }
}

/// The record of a release.
#[inline(always)]
pub(crate) fn release(
    kind: Kind,
    caller: &Caller,
    time_ns: u64,
    cookie: Cookie,
    addr: u64,
    repeated: bool,
) -> Free {
    let mut header = header_at(kind, caller, time_ns);
    header.flags = if repeated { flags::REPEATED } else { 0 };
    header.layer = cookie.layer();
    Free { header, addr }
}

/// An allocation function returned.
#[uretprobe]
pub fn call_return(context: RetProbeContext) -> u32 {
    // SAFETY: the context of a uprobe is the thread's registers.
    let registers = unsafe { &*context.regs };
    kernel_stack::use_own(&context, registers);
    leave(&context, registers, entry_stack_pointer(registers), |at| {
        *at = after_return(registers);
    });
    0
}

/// An allocation function that reads its own return address is about to return: the kernel does not replace that address.
#[uprobe]
pub fn call_end(context: ProbeContext) -> u32 {
    // SAFETY: the context of a uprobe is the thread's registers.
    let registers = unsafe { &*context.regs };
    kernel_stack::use_own(&context, registers);
    let sp = stack_pointer(registers);
    leave(&context, registers, sp, |at| {
        *at = at_entry(registers, return_address(registers));
    });
    0
}

/// `sp` is the stack pointer that the entry saw; `at` fills in the caller's registers.
#[inline(always)]
fn leave(
    context: &impl EbpfContext,
    registers: &pt_regs,
    sp: u64,
    at: impl FnOnce(&mut Registers),
) -> Option<()> {
    if !recording() {
        return None;
    }
    let task = CurrentTask::get();
    let (caller, thread) = Thread::of(task).ok()?;
    let Some(call) = thread.pop(sp) else {
        thread.lost_call(sp);
        return None;
    };
    if call.cookie & NESTED != 0 {
        return None;
    }
    let cookie = Cookie(call.cookie);
    let result = return_value(registers);
    let realloc = cookie.operation() == Operation::Realloc as u8 && call.pointer != 0;
    let addr = if cookie.outcome() == Outcome::Pointer as u8 {
        result
    } else if cookie.outcome() == Outcome::Block as u8 {
        call.pointer
    } else if result as u32 != 0 {
        0
    } else {
        // SAFETY: the helper checks the address and fails on a bad one.
        match unsafe { bpf_probe_read_user(call.pointer as *const u64) } {
            Ok(addr) => addr,
            Err(_) => {
                lost(Reason::OutPointerUnreadable);
                return None;
            }
        }
    };
    if addr == 0 && !realloc {
        return None;
    }
    let given = Given {
        cookie,
        addr,
        size: call.size,
        realloc,
    };
    report(context, task, &caller, thread, &given, at);
    None
}

/// The outcome of a call.
pub(crate) struct Given {
    pub(crate) cookie: Cookie,
    /// 0: none.
    pub(crate) addr: u64,
    /// Bytes.
    pub(crate) size: u64,
    /// It replaces another block.
    pub(crate) realloc: bool,
}

/// Reports a block that was given. `at` fills in the caller's registers.
#[inline(always)]
pub(crate) fn report(
    context: &impl EbpfContext,
    task: CurrentTask,
    caller: &Caller,
    thread: &mut Thread,
    given: &Given,
    at: impl FnOnce(&mut Registers),
) {
    let stack = if given.addr == 0 {
        0
    } else {
        stack::take_here(context.as_ptr(), task, caller, thread, at)
    };
    let kind = if given.realloc {
        Kind::ReallocEnd
    } else {
        Kind::Alloc
    };
    let mut header = header_at(kind, caller, thread.now());
    header.layer = given.cookie.layer();
    let record = Alloc {
        header,
        addr: given.addr,
        size: given.size,
        stack,
    };
    emit_here(&record, Reason::RingFullAlloc, Wake::Lazily);
}

/// On functions that a recording waits for (`memtrace record --start-after FUNCTION`).
#[uprobe]
pub fn awaited_call(_context: ProbeContext) -> u32 {
    if let Some(called) = CALLED.get_ptr_mut(0) {
        // SAFETY: an array's elements live as long as its map, and any of the writers may win.
        unsafe { called.write((bpf_get_current_pid_tgid() >> 32) as u32) };
    }
    0
}

/// On the same sites as [`call_entry`], to measure the cost of a probe itself.
#[uprobe]
pub fn empty_entry(_context: ProbeContext) -> u32 {
    0
}

/// On the same sites as [`call_return`], to measure the cost of a probe itself.
#[uretprobe]
pub fn empty_return(_context: RetProbeContext) -> u32 {
    0
}
