//! Address space requested from the kernel: system call tracepoints. Arguments are kept at the entry, the outcome is
//! reported at the exit; releases are announced at the entry as well (see `memtrace_common::event`).

use aya_ebpf::{EbpfContext, macros::tracepoint, programs::TracePointContext};
use memtrace_common::{
    code_map::{Mapping, mapping_kind},
    event::{Kind, Map, Stop, Unmap, flags},
    loss::Reason,
};

use crate::{
    arch::{SYSCALL_BRK, SYSCALL_MMAP, SYSCALL_MREMAP, SYSCALL_SHMAT},
    caller::Caller,
    code,
    emit::{Wake, emit, emit_in_place, header, lost},
    kernel::{Task, user_registers},
    lifecycle,
    maps::{FILES, PROCESSES, changed},
    stack,
    thread::{Syscall, Thread},
    tracepoint::{argument, number, result},
};

// include/uapi/asm-generic/mman-common.h
const PROT_EXEC: u64 = 4;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
// include/uapi/linux/mman.h
const MREMAP_FIXED: u64 = 2;

/// Keeps `n` arguments for the exit.
#[inline(always)]
fn enter(context: &TracePointContext, n: usize) -> Option<(Caller, [u64; 6])> {
    let (caller, thread) = match Thread::current() {
        Ok(current) => current,
        Err(reason) => {
            if reason == Reason::ThreadTableFull {
                lost(reason);
            }
            return None;
        }
    };
    let mut args = [0; 6];
    for (index, arg) in args.iter_mut().enumerate() {
        if index < n {
            *arg = argument(context, index);
        }
    }
    thread.syscall.entered = u64::from(number(context)) + 1;
    thread.syscall.args = args;
    Some((caller, args))
}

/// The arguments kept by the entry, and whether an allocator made the call. `None` if the entry was not seen.
#[inline(always)]
fn exit(context: &TracePointContext) -> Option<(Caller, &'static mut Syscall, u16)> {
    let (caller, thread) = Thread::current().ok()?;
    if thread.syscall.entered != u64::from(number(context)) + 1 {
        return None;
    }
    thread.syscall.entered = 0;
    let flags = if thread.depth == 0 {
        0
    } else {
        flags::BY_ALLOCATOR
    };
    Some((caller, &mut thread.syscall, flags))
}

#[inline(always)]
fn unmap(kind: Kind, caller: &Caller, addr: u64, len: u64, flags: u16) {
    let mut header = header(kind, caller);
    header.flags = flags;
    emit(
        &Unmap { header, addr, len },
        Reason::RingFullFree,
        Wake::Lazily,
    );
}

/// The stack of the current system call.
#[inline(always)]
fn call_stack(context: &TracePointContext, caller: &Caller) -> u64 {
    stack::take(context.as_ptr(), caller, None, |at| {
        user_registers(at);
    })
}

/// A mapping that now exists. Code is reported to the collector at once: its tables may be missing.
#[inline(always)]
fn map(kind: Kind, caller: &Caller, flags: u16, record: Map) {
    let mut header = header(kind, caller);
    header.flags = flags;
    let wake = if u64::from(record.prot) & PROT_EXEC == 0 {
        Wake::Lazily
    } else {
        Wake::Now
    };
    emit_in_place(Some(Reason::RingFullAlloc), wake, |to: *mut Map| {
        // SAFETY: the pointer is to room for one.
        unsafe { to.write(Map { header, ..record }) };
    });
}

#[tracepoint]
pub fn mmap_enter(context: TracePointContext) -> u32 {
    enter(&context, 6);
    0
}

// VERIFIER: one program: the stack walk is verified once for all of them.
/// Exit of mmap, mremap, brk and shmat.
#[tracepoint]
pub fn map_exit(context: TracePointContext) -> u32 {
    if let Some((caller, syscall, by)) = exit(&context) {
        match number(&context) {
            SYSCALL_MMAP => mmap_done(&context, &caller, syscall, by),
            SYSCALL_MREMAP => mremap_done(&context, &caller, syscall, by),
            SYSCALL_BRK => brk_done(&context, &caller, syscall, by),
            SYSCALL_SHMAT => shmat_done(&context, &caller, by),
            _ => None,
        };
    }
    0
}

#[inline(always)]
fn mmap_done(
    context: &TracePointContext,
    caller: &Caller,
    syscall: &mut Syscall,
    by: u16,
) -> Option<()> {
    let addr = result(context)?;
    let [_, len, prot, map_flags, ..] = syscall.args;
    syscall.ino = 0;
    syscall.dev = 0;
    let mut must_wait = 0;
    if prot & PROT_EXEC != 0 {
        must_wait = map_code(syscall, addr, caller.tgid, caller.space);
    } else if map_flags & MAP_FIXED != 0 {
        code::unmapping(caller.space, addr, len);
    }
    let stack = call_stack(context, caller);
    // Read again: a value kept across calls would take stack.
    let [_, len, prot, map_flags, _, file_offset] = syscall.args;
    let record = Map {
        addr,
        len,
        stack,
        prot: prot as u32,
        map_flags: map_flags as u32,
        ino: syscall.ino,
        file_offset,
        dev: syscall.dev as u32,
        ..Map::default()
    };
    map(Kind::Mmap, caller, by, record);
    if must_wait == Stop::Map as u64 {
        lifecycle::stop(context, caller, Stop::Map);
    } else if must_wait != 0 {
        lifecycle::stop(context, caller, Stop::Behind);
    }
    None
}

// VERIFIER: a global function: the programs that call it are verified without it.
/// New code: addresses may mean something else from now on. The result, unless it is 0, is why the process has to wait for
/// the collector: that has not seen the file, or is about to lose track of the process's code.
#[cfg_attr(not(feature = "legacy"), unsafe(no_mangle))]
#[inline(never)]
extern "C" fn map_code(syscall: *mut Syscall, addr: u64, tgid: u32, space: u32) -> u64 {
    // SAFETY: null, or part of the thread's map value.
    let Some(syscall) = (unsafe { syscall.as_mut() }) else {
        return 0;
    };
    if let Some(process) = PROCESSES.get_ptr_mut(&tgid) {
        // SAFETY: a live map value; a racing bump by another thread bumps as well.
        unsafe { (*process).epoch = code::next_epoch(&*process, tgid) };
        changed();
    }
    let [_, len, _, map_flags, fd, file_offset] = syscall.args;
    let mut mapping = Mapping {
        start: addr,
        end: addr.wrapping_add(code::whole_pages(len)),
        ..Mapping::default()
    };
    if map_flags & MAP_ANONYMOUS != 0 {
        mapping.kind = mapping_kind::ANONYMOUS;
        code::mapped(space, mapping);
        return 0;
    }
    let file = Task::current().file(fd);
    // SAFETY: copied before anything could remove it.
    let known = file.and_then(|key| unsafe { FILES.get(&key) }.copied());
    if let Some(known) = known {
        mapping.bias = addr.wrapping_sub(file_offset.wrapping_add(known.delta));
        mapping.exec = known.exec;
        mapping.kind = known.kind;
    }
    code::mapped(space, mapping);
    let Some(key) = file else {
        return 0;
    };
    syscall.ino = key.ino;
    syscall.dev = u64::from(key.dev);
    if known.is_none() {
        return Stop::Map as u64;
    }
    match code::is_far_behind(space) {
        true => Stop::Behind as u64,
        false => 0,
    }
}

#[tracepoint]
pub fn munmap_enter(context: TracePointContext) -> u32 {
    if let Some((caller, args)) = enter(&context, 2) {
        code::unmapping(caller.space, args[0], args[1]);
        unmap(Kind::UnmapBegin, &caller, args[0], args[1], 0);
    }
    0
}

#[tracepoint]
pub fn shmdt_enter(context: TracePointContext) -> u32 {
    if let Some((caller, args)) = enter(&context, 1) {
        unmap(Kind::UnmapBegin, &caller, args[0], 0, flags::SHMDT);
    }
    0
}

/// Exit of munmap and shmdt.
#[tracepoint]
pub fn unmap_exit(context: TracePointContext) -> u32 {
    if let Some((caller, syscall, _)) = exit(&context) {
        let args = syscall.args;
        let flags = if result(&context).is_some() {
            code::unmapped(caller.space, args[0], args[1]);
            0
        } else {
            flags::FAILED
        };
        unmap(Kind::UnmapEnd, &caller, args[0], args[1], flags);
    }
    0
}

#[tracepoint]
pub fn mremap_enter(context: TracePointContext) -> u32 {
    if let Some((caller, args)) = enter(&context, 5) {
        code::unmapping(caller.space, args[0], args[1]);
        if args[3] & MREMAP_FIXED != 0 {
            code::unmapping(caller.space, args[4], args[2]);
        }
        unmap(Kind::RemapBegin, &caller, args[0], args[1], 0);
    }
    0
}

#[inline(always)]
fn mremap_done(
    context: &TracePointContext,
    caller: &Caller,
    syscall: &Syscall,
    mut by: u16,
) -> Option<()> {
    let [old, old_len, ..] = syscall.args;
    code::unmapped(caller.space, old, old_len);
    let (mut addr, mut stack) = (0, 0);
    match result(context) {
        Some(new) => {
            addr = new;
            stack = call_stack(context, caller);
        }
        None => by = flags::FAILED,
    }
    let [_, _, len, map_flags, ..] = syscall.args;
    let record = Map {
        addr,
        len,
        stack,
        map_flags: map_flags as u32,
        ..Map::default()
    };
    map(Kind::RemapEnd, caller, by, record);
    None
}

#[tracepoint]
pub fn brk_enter(context: TracePointContext) -> u32 {
    enter(&context, 1);
    0
}

#[inline(always)]
fn brk_done(
    context: &TracePointContext,
    caller: &Caller,
    syscall: &Syscall,
    by: u16,
) -> Option<()> {
    let record = Map {
        addr: result(context)?,
        stack: call_stack(context, caller),
        len: syscall.args[0],
        ..Map::default()
    };
    map(Kind::Brk, caller, by, record);
    None
}

#[tracepoint]
pub fn shmat_enter(context: TracePointContext) -> u32 {
    enter(&context, 3);
    0
}

#[inline(always)]
fn shmat_done(context: &TracePointContext, caller: &Caller, by: u16) -> Option<()> {
    let record = Map {
        addr: result(context)?,
        stack: call_stack(context, caller),
        ..Map::default()
    };
    map(Kind::Shmat, caller, by, record);
    // The length is not among the arguments: the collector reads it while the
    // attachment must still be there.
    lifecycle::stop(context, caller, Stop::Map);
    None
}
