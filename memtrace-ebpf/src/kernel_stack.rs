//! The stack that a program runs on.

use aya_ebpf::{EbpfContext, bindings::pt_regs};
#[cfg(not(feature = "legacy"))]
use aya_ebpf::{macros::map, maps::ProgramArray};

#[cfg(not(feature = "legacy"))]
use crate::arch::stack_pointer;

/// An empty array, so a tail call through it never jumps.
#[cfg(not(feature = "legacy"))]
#[map]
static NO_PROGRAMS: ProgramArray = ProgramArray::with_max_entries(1, 0);

/// The same for programs of sessions: all users of an array must be attached in the same way (Linux 6.18).
#[cfg(not(feature = "legacy"))]
#[map]
static NO_SESSIONS: ProgramArray = ProgramArray::with_max_entries(1, 0);

/// Keeps this program on the thread's own kernel stack. Linux 6.13 and later otherwise give it a private stack for each
/// CPU, although uprobe programs can be preempted. Two threads then overwrite each other's variables, some of which are
/// kernel pointers. A program with a tail call gets no private stack (`check_max_stack_depth`, kernel/bpf/verifier.c).
#[cfg(not(feature = "legacy"))]
#[inline(always)]
pub(crate) fn use_own<C: EbpfContext>(context: &C, registers: &pt_regs) {
    keep_off_private(&NO_PROGRAMS, context, registers);
}

/// Older kernels do that anyway.
#[cfg(feature = "legacy")]
#[inline(always)]
pub(crate) fn use_own<C: EbpfContext>(_context: &C, _registers: &pt_regs) {}

/// As [`use_own`], for a program of a session.
#[cfg(not(feature = "legacy"))]
#[inline(always)]
pub(crate) fn use_own_in_session<C: EbpfContext>(context: &C, registers: &pt_regs) {
    keep_off_private(&NO_SESSIONS, context, registers);
}

#[cfg(not(feature = "legacy"))]
#[inline(always)]
fn keep_off_private<C: EbpfContext>(programs: &ProgramArray, context: &C, registers: &pt_regs) {
    // This is never true, but the verifier cannot know that.
    if stack_pointer(registers) == 0 {
        // SAFETY: there is no program to jump to, so the call returns.
        unsafe { programs.tail_call(context, 0) };
    }
}
