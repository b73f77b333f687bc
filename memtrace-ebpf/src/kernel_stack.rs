//! The stack that a program runs on.

use aya_ebpf::{EbpfContext, bindings::pt_regs, macros::map, maps::ProgramArray};

use crate::arch::stack_pointer;

/// An empty array, so a tail call through it never jumps.
#[map]
static NO_PROGRAMS: ProgramArray = ProgramArray::with_max_entries(1, 0);

/// Keeps this program on the thread's own kernel stack. Linux 6.13 and later otherwise give it a private stack for each
/// CPU, although uprobe programs can be preempted. Two threads then overwrite each other's variables, some of which are
/// kernel pointers. A program with a tail call gets no private stack (`check_max_stack_depth`, kernel/bpf/verifier.c).
#[inline(always)]
pub(crate) fn use_own<C: EbpfContext>(context: &C, registers: &pt_regs) {
    // This is never true, but the verifier cannot know that.
    if stack_pointer(registers) == 0 {
        // SAFETY: there is no program to jump to, so the call returns.
        unsafe { NO_PROGRAMS.tail_call(context, 0) };
    }
}
