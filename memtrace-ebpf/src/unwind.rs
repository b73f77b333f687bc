//! The walk: from the registers of a user thread to its outermost frame, by
//! unwind tables that the collector has compiled. One `bpf_loop` (Linux 5.17),
//! a frame an iteration; the step itself is `memtrace_common::unwind::step`.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_loop;
use memtrace_common::{
    code::mapping_kind,
    limits::MAX_FRAMES,
    python::Interpreter,
    row::Row,
    unwind::{self, End, Memory, Registers, Rule, Word, cfa, fp},
};

use crate::{
    code::{self, Code},
    kernel::PendingReturns,
    memory::{StackMemory, UserMemory, Window},
    python, rows,
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
    /// What is known of the present address.
    row: Row,
    stack: Window,
    pub(crate) python: python::State,
}

impl State {
    /// The present address: of a caller, that of the call.
    #[inline(always)]
    fn pc(&self) -> u64 {
        self.at.pc.wrapping_sub(self.is_return)
    }
}

/// What the callback is given. On the stack of the program, as the kernel demands.
struct Walk {
    scratch: *mut Scratch,
    code: Code,
    python: *const Interpreter,
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
    state.stack.clear();
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
    let state = &mut scratch.state;
    match code.known(state.pc()) {
        Some(row) => state.row = row,
        None => locate(scratch, code)?,
    }
    let word = scratch.state.row.word;
    if python::enters(&mut scratch.state.python, python, word) {
        return Ok(());
    }
    let salt = if Word::is_file(word) {
        0
    } else {
        scratch.state.epoch
    };
    if !scratch.push(word, salt) {
        return Err(End::Truncated);
    }
    if scratch.state.row.rule == rows::SEARCH {
        search(&mut scratch.state, code)?;
    }
    climb(&mut scratch.state)
}

// VERIFIER: these two are functions of their own, for after them nothing tells the ways through
// them apart. Calls take their time; these are made only for what is not known yet.

/// Finds what the present address means.
#[inline(never)]
fn locate(scratch: &mut Scratch, code: &Code) -> Result<(), End> {
    let pc = scratch.state.pc();
    let mapping = match code.find(pc) {
        Ok(mapping) => mapping,
        Err(end) => {
            let epoch = scratch.state.epoch;
            scratch.push(Word::absolute(pc), epoch);
            return Err(end);
        }
    };
    scratch.state.row = if mapping.kind == mapping_kind::FILE {
        Row {
            word: Word::file(mapping.exec, pc.wrapping_sub(mapping.bias)),
            rule: rows::SEARCH,
        }
    } else {
        let row = Row {
            word: Word::absolute(pc),
            rule: rows::FRAME_POINTER,
        };
        code.remember(pc, row);
        row
    };
    Ok(())
}

/// Finds the rule of the present address, which is in a file.
#[inline(never)]
fn search(state: &mut State, code: &Code) -> Result<(), End> {
    state.row.rule = rows::find(state.row.word)?;
    code.remember(state.pc(), state.row);
    Ok(())
}

/// Goes to the caller by the present row.
#[inline(always)]
fn climb(state: &mut State) -> Result<(), End> {
    let (at, rule) = (state.at, state.row.rule);
    let rule = match rule.cfa {
        cfa::NO_ROW | cfa::FRAME_POINTER => without_table(&at, rule, state.by_frame_pointer),
        _ => rule,
    };
    // Code that a signal interrupted may not have set its frame pointer yet.
    if rule.cfa == cfa::FRAME_POINTER && state.is_return == 0 {
        return Err(End::BadFramePointer);
    }
    state.by_frame_pointer = i32::from(rule.cfa == cfa::FRAME_POINTER);
    let mut caller = unwind::step(rule, &at, &StackMemory(&raw mut state.stack))?;
    state.is_return = u64::from(caller.slot != 0);
    if caller.slot != 0 {
        caller.registers.pc = state.returns.original(caller.registers.pc, caller.slot);
    }
    state.at = caller.registers;
    Ok(())
}
