//! Which stack a program has.

use aya_ebpf::{EbpfContext, bindings::pt_regs, macros::map, maps::ProgramArray};

use crate::arch::stack_pointer;

/// Empty.
#[map]
static NO_PROGRAMS: ProgramArray = ProgramArray::with_max_entries(1, 0);

/// Has the kernel run this program on the thread's own stack. Without it, Linux 6.13 and later give it one for each CPU
/// (private stacks), although uprobe programs can be preempted: two threads then overwrite each other's variables, some
/// of which are kernel pointers. A program with a tail call has no such stack (`check_max_stack_depth`,
/// kernel/bpf/verifier.c).
#[inline(always)]
pub(crate) fn use_own<C: EbpfContext>(context: &C, registers: &pt_regs) {
    // Never, which the verifier cannot know.
    if stack_pointer(registers) == 0 {
        // SAFETY: there is no program to jump to, so the call returns.
        unsafe { NO_PROGRAMS.tail_call(context, 0) };
    }
}
