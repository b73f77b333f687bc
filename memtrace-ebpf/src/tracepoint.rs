//! Records of tracepoints. In those of system calls the number is at 8, arguments or the result from 16
//! (include/trace/events/syscalls.h, struct syscall_trace_enter).

use aya_ebpf::programs::TracePointContext;

use crate::maps::loaded;

const NUMBER: usize = 8;
const FIRST: usize = 16;

/// The system call's number.
#[inline(always)]
pub(crate) fn number(context: &TracePointContext) -> u32 {
    // SAFETY: every such record has it.
    unsafe { context.read_at(NUMBER) }.unwrap_or(u32::MAX)
}

/// An argument, at the entry.
#[inline(always)]
pub(crate) fn argument(context: &TracePointContext, index: usize) -> u64 {
    // SAFETY: a sys_enter record holds six arguments.
    unsafe { context.read_at(FIRST + index * 8) }.unwrap_or(0)
}

/// The result, at the exit, or `None` for an error.
#[inline(always)]
pub(crate) fn result(context: &TracePointContext) -> Option<u64> {
    // SAFETY: a sys_exit record holds the result.
    let result: i64 = unsafe { context.read_at(FIRST) }.unwrap_or(-1);
    // Errors are -MAX_ERRNO to -1 (include/linux/err.h); addresses may look negative too.
    (!(-4095..0).contains(&result)).then_some(result as u64)
}

/// A field at an offset that the collector has set; 0 if it cannot be read.
#[inline(always)]
pub(crate) fn field<T: Copy + Default>(context: &TracePointContext, offset: &'static u32) -> T {
    // SAFETY: the kernel's types have a field of that size there.
    unsafe { context.read_at(loaded(offset) as usize) }.unwrap_or_default()
}
