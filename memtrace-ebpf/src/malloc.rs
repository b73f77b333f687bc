//! glibc's malloc on kernels that let a program decide at each call whether the return is probed as well (uprobe
//! sessions, Linux 6.13). If the thread's cache of free blocks tells the result, the return is left alone.

use core::ffi::c_void;

use aya_ebpf::{
    EbpfContext,
    bindings::pt_regs,
    helpers::generated::{bpf_get_attach_cookie, bpf_get_func_ip},
    programs::ProbeContext,
};
use memtrace_common::{function::Cookie, loss::Reason};

use crate::{
    arch::{
        self, after_return, at_entry, entry_stack_pointer, first_argument, instruction_pointer,
        return_value, stack_pointer,
    },
    calls::{Given, report},
    emit::lost,
    kernel::CurrentTask,
    kernel_stack,
    maps::recording,
    thread::{Call, Thread},
    thread_cache::distrust,
};

/// Result of the program at an entry: the return is to be probed.
const PROBE_RETURN: u32 = 0;
/// It is not. At a return, the result has no meaning.
const LEAVE_ALONE: u32 = 1;

/// What a call's entry or return leads to.
enum Step {
    /// The block is reported, and the return left alone.
    Report(Block),
    /// The program ends with this result.
    End(u32),
}

/// A block that malloc gives.
struct Block {
    addr: u64,
    size: u64,
    /// Of the call; 0: the call has returned.
    return_address: u64,
}

/// malloc was entered, or has returned. Not by the macro `uprobe`, which drops the result.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
extern "C" fn malloc_session(context: *mut c_void) -> u32 {
    let context = ProbeContext::new(context);
    // SAFETY: the context of a uprobe is the thread's registers.
    let registers = unsafe { &*context.regs };
    kernel_stack::use_own_in_session(&context, registers);
    // SAFETY: the context is the program's own.
    let (cookie, function) = unsafe {
        (
            Cookie(bpf_get_attach_cookie(context.as_ptr())),
            bpf_get_func_ip(context.as_ptr()),
        )
    };
    // At a return, it is in the caller.
    let is_entry = instruction_pointer(registers) == function;
    let task = CurrentTask::get();
    let found = match recording() {
        true => Thread::of(task),
        false => Err(Reason::NotTraced),
    };
    let (caller, thread) = match found {
        Ok(found) => found,
        Err(reason) => {
            if is_entry {
                lost(reason);
            }
            return LEAVE_ALONE;
        }
    };
    let step = match is_entry {
        true => enter(registers, cookie, task, thread),
        false => leave(registers, cookie, thread),
    };
    let block = match step {
        Step::Report(block) => block,
        Step::End(result) => return result,
    };
    let given = Given {
        cookie,
        addr: block.addr,
        size: block.size,
        realloc: false,
    };
    report(&context, task, &caller, thread, &given, |at| {
        *at = match block.return_address {
            0 => after_return(registers),
            address => at_entry(registers, address),
        };
    });
    LEAVE_ALONE
}

/// The call has begun. Its block is reported at once if it is known.
#[inline(always)]
fn enter(registers: &pt_regs, cookie: Cookie, task: CurrentTask, thread: &mut Thread) -> Step {
    let sp = stack_pointer(registers);
    thread.drop_stale(sp, cookie.0);
    let (inside, own) = (thread.inside(), 1u32 << cookie.layer());
    if inside & own != 0 {
        return Step::End(LEAVE_ALONE);
    }
    thread.forget_released(cookie.0);
    let size = first_argument(registers);
    // If a return is pending, of this or another tool's probe, the return address may be a replaced one.
    let return_address = match task.has_pending_returns() {
        true => 0,
        false => arch::return_address(registers),
    };
    let addr = if return_address != 0 {
        let probe = instruction_pointer(registers);
        thread.cache.next_block(task, cookie.index(), probe, size)
    } else {
        0
    };
    if addr != 0 && !thread.cache.is_due() {
        return Step::Report(Block {
            addr,
            size,
            return_address,
        });
    }
    let pushed = thread.push(Call {
        sp,
        cookie: cookie.0,
        size,
        pointer: addr,
        inside: inside | own,
        ..Call::EMPTY
    });
    Step::End(if pushed { PROBE_RETURN } else { LEAVE_ALONE })
}

/// The call has returned.
#[inline(always)]
fn leave(registers: &pt_regs, cookie: Cookie, thread: &mut Thread) -> Step {
    let Some(call) = thread.pop(entry_stack_pointer(registers)) else {
        lost(Reason::BeganBeforeAttach);
        return Step::End(LEAVE_ALONE);
    };
    let addr = return_value(registers);
    if call.pointer != 0 && call.pointer != addr {
        lost(Reason::ResultMispredicted);
        distrust(cookie.index());
    }
    if addr == 0 {
        return Step::End(LEAVE_ALONE);
    }
    Step::Report(Block {
        addr,
        size: call.size,
        return_address: 0,
    })
}
