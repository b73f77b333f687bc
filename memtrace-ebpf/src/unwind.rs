//! The walk: from the registers of a user thread to its outermost frame, by
//! unwind tables that the collector has compiled. One `bpf_loop` (Linux 5.17),
//! a frame an iteration; the step itself is `memtrace_common::unwind::step`.

use core::ffi::c_void;

use aya_ebpf::helpers::{bpf_probe_read_user, generated::bpf_loop};
use memtrace_common::{
    code::{BLOCK, RowSearch, exec_state, mapping_kind},
    limits::MAX_FRAMES,
    python::Interpreter,
    unwind::{self, End, Memory, Registers, Rule, Word, cfa, fp},
};

use crate::{
    code::{self, Code},
    kernel::PendingReturns,
    maps::{EXECS, ROWS, RULES},
    python,
    stack::Scratch,
    thread::Caller,
};

/// Where a walk is; part of [`Scratch`], because a callback has little stack.
#[repr(C)]
pub(crate) struct State {
    at: Registers,
    /// 1 if `at.pc` is a return address: the call before it is what is looked up.
    is_return: u64,
    end: End,
    /// 1 if the last step was along a frame pointer.
    by_frame_pointer: i32,
    epoch: u64,
    /// As [`Caller::image`].
    pub(crate) image: u64,
    returns: PendingReturns,
    pub(crate) python: python::State,
}

/// What the callback is given. On the stack of the program, as the kernel demands.
struct Walk {
    scratch: *mut Scratch,
    code: Code,
    python: *const Interpreter,
}

/// The current thread's memory.
pub(crate) struct UserMemory;

impl Memory for UserMemory {
    #[inline(always)]
    fn read(&self, abs_addr: u64) -> Option<u64> {
        // SAFETY: the helper checks the address and fails on a bad one.
        unsafe { bpf_probe_read_user(abs_addr as *const u64) }.ok()
    }
}

/// The rule of code without tables, or of a signal handler's return, which some C libraries
/// (musl) leave without call frame information.
#[inline(always)]
fn without_table(at: &Registers, rule: Rule, by_frame_pointer: i32) -> Rule {
    if is_signal_return(at.pc) {
        Rule {
            cfa: cfa::SIGNAL,
            ..Rule::default()
        }
    } else if rule.cfa == cfa::FRAME_POINTER {
        Rule {
            cfa: cfa::FRAME_POINTER,
            fp: fp::AT_CFA,
            fp_offset: -16,
            cfa_offset: by_frame_pointer,
        }
    } else {
        rule
    }
}

/// Whether the code at a return address is `mov $15, %rax; syscall`: rt_sigreturn, to which the
/// kernel's signal frames return (arch/x86/kernel/signal_64.c).
#[inline(always)]
fn is_signal_return(pc: u64) -> bool {
    const CODE: u64 = u64::from_le_bytes([0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f]);
    UserMemory.read(pc) == Some(CODE)
}

const FRAME_POINTER: Rule = Rule {
    cfa: cfa::FRAME_POINTER,
    fp: fp::SAME,
    fp_offset: 0,
    cfa_offset: 0,
};

/// Collects the frames of the current thread from `at` on.
#[inline(always)]
pub(crate) fn walk(caller: &Caller, at: Registers, scratch: &mut Scratch) -> End {
    let code = match Code::of(caller.space) {
        Ok(code) => code,
        Err(end) => {
            // A stack that says why it has no callers.
            scratch.push(Word::absolute(at.pc.wrapping_sub(1)), caller.epoch);
            return end;
        }
    };
    let Some(python) = python::of(caller.space) else {
        return End::Stale;
    };
    let state = &mut scratch.state;
    state.at = at;
    state.is_return = 1;
    state.end = End::Truncated;
    state.by_frame_pointer = 0;
    state.epoch = caller.epoch;
    state.image = caller.image;
    state.returns = PendingReturns::current();
    state.python.begin();
    let mut walk = Walk {
        scratch,
        code,
        python,
    };
    // SAFETY: the callback has the signature that the helper wants, and `walk` outlives the call.
    unsafe {
        bpf_loop(
            STEPS,
            next_frame as *const () as *mut c_void,
            (&raw mut walk).cast(),
            0,
        )
    };
    // SAFETY: `walk` was made from this reference.
    let end = unsafe { (*walk.scratch).state.end };
    if !walk.code.is_current() {
        return End::Stale;
    }
    if end == End::NoMapping {
        // Code can appear without a mapping call of its own (mprotect, mremap).
        code::request_snapshot(caller.space);
    }
    end
}

/// A frame each, and for each run of Python frames one to enter and one to leave it.
const STEPS: u32 = 3 * MAX_FRAMES as u32;

const CONTINUE: i64 = 0;
const BREAK: i64 = 1;

/// Callback of `bpf_loop`.
unsafe extern "C" fn next_frame(_index: u64, walk: *mut Walk) -> i64 {
    // SAFETY: the pointers are those that `walk` was called with.
    let (scratch, code, python) =
        unsafe { (&mut *(*walk).scratch, &(*walk).code, &*(*walk).python) };
    let result = if scratch.state.python.is_running() {
        python::advance(scratch, python)
    } else {
        advance(scratch, code, python)
    };
    match result {
        Ok(()) => CONTINUE,
        Err(end) => {
            scratch.state.end = end;
            BREAK
        }
    }
}

#[inline(always)]
fn advance(scratch: &mut Scratch, code: &Code, python: &Interpreter) -> Result<(), End> {
    let at = scratch.state.at;
    let pc = at.pc.wrapping_sub(scratch.state.is_return);
    let epoch = scratch.state.epoch;
    let mapping = match code.find(pc) {
        Ok(mapping) => mapping,
        Err(end) => {
            scratch.push(Word::absolute(pc), epoch);
            return Err(end);
        }
    };
    let vaddr = pc.wrapping_sub(mapping.bias);
    if mapping.kind == mapping_kind::FILE
        && python::enters(&mut scratch.state.python, python, mapping.exec, vaddr)
    {
        return Ok(());
    }
    let pushed = if mapping.kind == mapping_kind::ANONYMOUS {
        scratch.push(Word::absolute(pc), epoch)
    } else {
        scratch.push(Word::file(mapping.exec, vaddr), 0)
    };
    if !pushed {
        return Err(End::Truncated);
    }
    let rule = if mapping.kind == mapping_kind::FILE {
        find_rule(mapping.exec, vaddr)?
    } else {
        FRAME_POINTER
    };
    let rule = match rule.cfa {
        cfa::NO_ROW | cfa::FRAME_POINTER => {
            without_table(&at, rule, scratch.state.by_frame_pointer)
        }
        _ => rule,
    };
    // Code that a signal interrupted may not have set its frame pointer yet.
    if rule.cfa == cfa::FRAME_POINTER && scratch.state.is_return == 0 {
        return Err(End::BadFramePointer);
    }
    scratch.state.by_frame_pointer = i32::from(rule.cfa == cfa::FRAME_POINTER);
    let mut caller = unwind::step(rule, &at, &UserMemory)?;
    scratch.state.is_return = u64::from(caller.slot != 0);
    if caller.slot != 0 {
        caller.registers.pc = scratch
            .state
            .returns
            .original(caller.registers.pc, caller.slot);
    }
    scratch.state.at = caller.registers;
    Ok(())
}

/// See `memtrace_common::code::Exec` for the format.
#[inline(always)]
fn find_rule(number: u32, vaddr: u64) -> Result<Rule, End> {
    let exec = EXECS.get(number).ok_or(End::NoTable)?;
    match exec.state {
        exec_state::NOT_LOADED => return Err(End::NoTable),
        exec_state::NO_TABLES => return Ok(FRAME_POINTER),
        _ => {}
    }
    let page = ((vaddr >> 16) as u32).wrapping_sub(exec.first_page);
    if vaddr >> 48 != 0 || page >= exec.pages {
        return Ok(Rule::default());
    }
    let rows = ROWS.get(number).ok_or(End::NoTable)?;
    let word = |index: u32| {
        let block = rows.get(index / BLOCK as u32)?;
        Some(block[index as usize & (BLOCK - 1)])
    };
    let first = word(page).ok_or(End::NoTable)?;
    let end = word(page + 1).ok_or(End::NoTable)?;
    let mut search = RowSearch::new(first, end, vaddr);
    for _ in 0..RowSearch::STEPS {
        let row = word(search.probe()).ok_or(End::NoTable)?;
        if search.narrow(row) {
            break;
        }
    }
    RULES.get(search.rule()).copied().ok_or(End::NoTable)
}
