//! System calls that a stop of ptrace(2) interrupts visibly to the program.

use super::ptrace;
use crate::arch::{self, SystemCall, ThreadRegisters};

/// System calls that a stop ends with EINTR, with [`arch::RETURN_EINTR`]; the kernel restarts others by itself (signal(7),
/// "Interruption of system calls and library functions by stop signals").
const RETURN_EINTR: [libc::c_long; 18] = [
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
    libc::SYS_io_uring_enter,
    // Of sockets with a time limit (SO_RCVTIMEO, SO_SNDTIMEO).
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
];

/// Hides the stop of a thread from its program.
pub(crate) fn hide(tid: u32) {
    if let Ok(registers) = ptrace::registers(tid) {
        repeat(tid, registers);
    }
}

/// Makes a stopped thread with these registers repeat such a call when it continues.
pub(crate) fn repeat(tid: u32, registers: ThreadRegisters) {
    if is_interrupted(&registers) {
        let _ = ptrace::repeat_unless_handled(tid, registers);
    }
}

/// Whether the thread's system call would reveal the stop to the program.
fn is_interrupted(registers: &ThreadRegisters) -> bool {
    let call = SystemCall::made(registers);
    let mut calls = RETURN_EINTR.iter().chain(&arch::RETURN_EINTR);
    call.result == -i64::from(libc::EINTR)
        && calls.any(|&number| number.cast_unsigned() == call.number)
}
