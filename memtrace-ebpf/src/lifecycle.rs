//! Fork, exec and exit of processes, and the stops that keep a new one from
//! running before its probes are in place.
//!
//! Each tracepoint has two programs, of which the collector attaches one. A raw tracepoint's program can be preempted
//! since Linux 7.0, and the kernel then skips it in every other task of the CPU (kernel/trace/bpf_trace.c,
//! `__bpf_trace_run`). A program of perf's tracepoint cannot be preempted, but is skipped while another task of the CPU
//! is preempted in bpf(2) (`trace_call_bpf`).
//!
//! Stops are those of ptrace, which only the tracer sees (`memtrace/src/hold/`).

use aya_ebpf::{
    EbpfContext,
    helpers::{bpf_get_current_comm, bpf_get_current_uid_gid, generated::bpf_send_signal_thread},
    macros::{raw_tracepoint, tracepoint},
    programs::{RawTracePointContext, TracePointContext},
};
use aya_log_ebpf::warn;
use memtrace_common::{
    event::{Kind, Lifecycle, Stop, flags},
    kernel::HOLDER_COMM,
    loss::Reason,
    process::Process,
};

use crate::{
    atomic::increment,
    caller::{Caller, current_ids},
    code,
    emit::{Wake, emit, emit_after, header, lost},
    kernel::Task,
    maps::{
        HOLDER, OFFSETS, PROCESSES, SETTINGS, STOPPED, THREAD_STATES, THREADS_CREATED, UNWINDING,
        changed, loaded, recording,
    },
    thread::Thread,
    tracepoint,
};

const SIGSTOP: u32 = 19;

/// `BPF_NOEXIST`, include/uapi/linux/bpf.h: an element that is there stays as it is.
const BPF_NOEXIST: u64 = 1;

// Flags of clone(2) (include/uapi/linux/sched.h).
const CLONE_VM: u64 = 0x100;
const CLONE_THREAD: u64 = 0x1_0000;
/// Set for the kernel's own threads, of io_uring for example, and by programs that examine themselves.
const CLONE_UNTRACED: u64 = 0x80_0000;

/// `task_newtask(task, clone_flags)`: a thread or process was made, in the parent's context, before
/// the child runs.
#[raw_tracepoint]
pub fn process_fork_raw(context: RawTracePointContext) -> i32 {
    forked(&context, Task::at(context.arg(0)).tid(), context.arg(1));
    0
}

/// As [`process_fork_raw`].
#[tracepoint]
pub fn process_fork(context: TracePointContext) -> u32 {
    let tid = tracepoint::field(&context, &OFFSETS.newtask_pid);
    let clone_flags = tracepoint::field(&context, &OFFSETS.newtask_clone_flags);
    forked(&context, tid, clone_flags);
    0
}

#[inline(always)]
fn forked<C: EbpfContext>(context: &C, tid: u32, clone_flags: u64) -> Option<()> {
    let caller = Caller::current()?;
    if clone_flags & CLONE_THREAD != 0 {
        if clone_flags & CLONE_UNTRACED == 0 {
            count_thread(caller.tgid);
        }
        return None;
    }
    // A child that escapes every tracer is about to be one itself: LeakSanitizer, Breakpad and gperftools make one to
    // inspect their own threads. The holder gives way before the program learns of its child.
    if clone_flags & CLONE_UNTRACED != 0 && is_held() && !stop_for_holder() {
        lost(Reason::StopFailed);
    }
    if loaded(&SETTINGS.follow) == 0 {
        return None;
    }
    // It is its process's first thread.
    let tgid = tid;
    let shared = clone_flags & CLONE_VM != 0;
    // SAFETY: copied before anything could remove it.
    let process: Process = *unsafe { PROCESSES.get(&caller.tgid) }?;
    let space = if shared { process.space } else { tgid };
    // Code generated from now on is its own.
    let epoch = code::next_epoch(&process, tgid);
    let mut header = header(Kind::Fork, &caller);
    header.tgid = tgid;
    header.flags = if shared { flags::SHARED_VM } else { 0 };
    let record = Lifecycle {
        header,
        value: 0,
        other: caller.space,
        pad: 0,
    };
    let mut known = false;
    emit_after(&record, Reason::RingFullLifecycle, Wake::Now, || {
        known = PROCESSES
            .insert(
                &tgid,
                &Process {
                    space,
                    epoch,
                    ..process
                },
                0,
            )
            .is_ok();
        if !known {
            lost(Reason::ProcessTableFull);
        } else if !shared {
            code::forked(caller.space, tgid);
        }
        known
    });
    if known && !shared {
        let child = Caller::new(tgid, tgid, space, epoch, process.image);
        // The child has a tracer only if its parent had one when the fork began. The holder checks that.
        let stopping = clone_flags & CLONE_UNTRACED == 0 && is_held();
        stop_if(stopping, context, &child, Stop::Fork);
    }
    None
}

/// One more thread of the process. Samples of /proc would miss those that end between two of them.
#[inline(always)]
fn count_thread(tgid: u32) {
    if THREADS_CREATED.get_ptr_mut(&tgid).is_none() {
        // Another thread may be doing the same; a full table leaves the process without a count.
        let _ = THREADS_CREATED.insert(&tgid, &0, BPF_NOEXIST);
    }
    if let Some(count) = THREADS_CREATED.get_ptr_mut(&tgid) {
        // SAFETY: a live map value.
        unsafe { increment(count) };
    }
}

/// `sched_process_exec(task, old_pid, binprm)`: an exec that can no longer fail.
/// The old pid differs where a thread other than the leader called exec: the
/// probes' scope ended with the old leader then.
#[raw_tracepoint]
pub fn process_exec_raw(context: RawTracePointContext) -> i32 {
    executed(&context, context.arg(1));
    0
}

/// As [`process_exec_raw`].
#[tracepoint]
pub fn process_exec(context: TracePointContext) -> u32 {
    executed(&context, tracepoint::field(&context, &OFFSETS.exec_old_pid));
    0
}

#[inline(always)]
fn executed<C: EbpfContext>(context: &C, old_tid: u32) -> Option<()> {
    let mut caller = Caller::current()?;
    let process = PROCESSES.get_ptr_mut(&caller.tgid)?;
    // SAFETY: a live map value; the process has one thread now.
    unsafe {
        (*process).epoch = code::next_epoch(&*process, caller.tgid);
        (*process).image = (*process).epoch;
        (*process).space = caller.tgid;
    }
    caller.space = caller.tgid;
    code::executed(caller.tgid);
    changed();
    // Calls in flight in the old program are gone with it.
    Thread::remove(caller.tgid, caller.tid);
    Thread::remove(caller.tgid, old_tid);
    let header = header(Kind::Exec, &caller);
    emit(
        &Lifecycle {
            header,
            value: 0,
            other: old_tid,
            pad: 0,
        },
        Reason::RingFullLifecycle,
        Wake::Now,
    );
    // The kernel stops a traced task a few lines further on (fs/exec.c, `exec_binprm`).
    stop(context, &caller, Stop::Exec);
    None
}

/// Whether the holder traces the current thread, so that it can be stopped: every thread, but with
/// `--no-stop`, or where another debugger traces the process.
#[inline(always)]
fn is_held() -> bool {
    let holder = HOLDER.get(0).copied().unwrap_or(0);
    holder != 0 && Task::current().is_traced_by(holder)
}

/// Stops the current thread before it returns to user code, and reports that to the collector,
/// which has it continued. Without room for the record it is not stopped. A thread that cannot be
/// stopped is counted, and reported all the same.
// VERIFIER: a function of its own, lest its stack counts where stacks are walked.
#[inline(never)]
pub(crate) fn stop<C: EbpfContext>(context: &C, caller: &Caller, why: Stop) {
    stop_if(is_held(), context, caller, why);
}

/// Like [`stop`], for the current thread or a child that it has just forked. The caller knows whether it can be stopped.
#[inline(always)]
fn stop_if<C: EbpfContext>(stopping: bool, context: &C, caller: &Caller, why: Stop) {
    let mut header = header(Kind::Stopped, caller);
    header.tgid = caller.tgid;
    if !stopping {
        header.flags = flags::FAILED;
    }
    let record = Lifecycle {
        header,
        value: why as u64,
        other: 0,
        pad: 0,
    };
    emit_after(&record, Reason::RingFullLifecycle, Wake::Now, || {
        if !stopping {
            lost(Reason::NotStopped);
            return true;
        }
        // Known to the holder before it stops.
        let _ = STOPPED.insert(&caller.tid, &(why as u32), 0);
        // The kernel itself stops a traced task that was forked or has called exec.
        if matches!(why, Stop::Fork | Stop::Exec) {
            return true;
        }
        let error = send_sigstop();
        if error != 0 {
            let _ = STOPPED.remove(&caller.tid);
            lost(Reason::StopFailed);
            warn!(
                context,
                "thread {} could not be stopped: error {}", caller.tid, error
            );
        }
        error == 0
    });
}

/// Stops the current thread for the holder alone. False if it cannot be stopped.
#[inline(always)]
pub(crate) fn stop_for_holder() -> bool {
    is_held() && send_sigstop() == 0
}

/// Sends SIGSTOP to the current thread, not to its process: another thread might take that while
/// this one returns to user code. Its tracer takes the signal away.
#[inline(always)]
fn send_sigstop() -> i64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_send_signal_thread(SIGSTOP) }
}

/// Requests that make a tracer (include/uapi/linux/ptrace.h). A task has one at most.
const PTRACE_TRACEME: u64 = 0;
const PTRACE_ATTACH: u64 = 16;
const PTRACE_SEIZE: u64 = 0x4206;

/// Entry of ptrace: if the caller, or its target, is held, the holder must give way.
#[tracepoint]
pub fn ptrace_enter(context: TracePointContext) -> u32 {
    let request = tracepoint::argument(&context, 0);
    if !matches!(request, PTRACE_TRACEME | PTRACE_ATTACH | PTRACE_SEIZE) {
        return 0;
    }
    // The holder finds the request in the registers, gives way, and has the call repeated.
    if is_held() {
        if !stop_for_holder() {
            lost(Reason::StopFailed);
        }
    } else if request != PTRACE_TRACEME && may_trace() {
        report_tracer(tracepoint::argument(&context, 1) as u32);
    }
    0
}

/// Whether the current process, judging by its user and namespace, may trace any other. The holder of another recording
/// gives way instead.
#[inline(always)]
fn may_trace() -> bool {
    bpf_get_current_uid_gid() as u32 == 0
        && Task::current().is_in_host_namespace()
        && bpf_get_current_comm() != Ok(HOLDER_COMM)
}

/// Reports that a process which is not traced by memtrace tries to trace the process `tgid`.
#[inline(always)]
fn report_tracer(tgid: u32) -> Option<()> {
    // SAFETY: not kept.
    unsafe { PROCESSES.get(&tgid) }?;
    let (by, tid) = current_ids();
    let caller = Caller::new(tgid, tid, tgid, 0, 0);
    let mut header = header(Kind::Stopped, &caller);
    header.flags = flags::FAILED;
    let record = Lifecycle {
        header,
        value: Stop::Tracer as u64,
        other: by,
        pad: 0,
    };
    emit(&record, Reason::RingFullLifecycle, Wake::Now);
    Some(())
}

/// `sched_process_exit(task)`: a thread ends.
#[raw_tracepoint]
pub fn process_exit_raw(_context: RawTracePointContext) -> i32 {
    exited();
    0
}

/// As [`process_exit_raw`].
#[tracepoint]
pub fn process_exit(_context: TracePointContext) -> u32 {
    exited();
    0
}

#[inline(always)]
fn exited() -> Option<()> {
    let (tgid, tid) = current_ids();
    // Whether traced or not: the tid may come back as another thread's.
    Thread::remove(tgid, tid);
    let _ = THREAD_STATES.remove(&tid);
    let _ = STOPPED.remove(&tid);
    let _ = UNWINDING.remove(&tid);
    // SAFETY: copied before anything could remove it.
    let process: Process = *unsafe { PROCESSES.get(&tgid) }?;
    let task = Task::current();
    if task.live_threads() != 0 {
        return None;
    }
    let _ = THREADS_CREATED.remove(&tgid);
    code::exited(tgid);
    let was_traced = PROCESSES.remove(&tgid).is_ok();
    changed();
    if !was_traced || !recording() {
        return None;
    }
    let caller = Caller::new(tgid, tid, tgid, process.epoch, process.image);
    let header = header(Kind::Exit, &caller);
    emit(
        &Lifecycle {
            header,
            value: u64::from(task.exit_code()),
            other: 0,
            pad: 0,
        },
        Reason::RingFullLifecycle,
        Wake::Now,
    );
    None
}
