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
};

/// Where a walk is; part of [`Scratch`], because a callback has little stack.
#[repr(C)]
pub(crate) struct State {
    at: Registers,
    /// What addresses mean.
    code: Code,
    /// 1 if `at.pc` is a return address: the call before it is what is looked up.
    is_return: u64,
    /// How the walk ended.
    pub(crate) end: End,
    /// 1 if the last step was along a frame pointer.
    by_frame_pointer: i32,
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

// VERIFIER: a global function, as are all that are exported here: each is verified once and by
// itself, whoever calls it.
/// Collects the frames of the current thread from `scratch.at` on.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn walk(scratch: *mut Scratch) -> u64 {
    // SAFETY: null, or the caller's claimed map value.
    let Some(scratch) = (unsafe { scratch.as_mut() }) else {
        return BREAK;
    };
    let (space, epoch) = (scratch.caller.space, scratch.caller.epoch);
    match Code::of(space) {
        Ok(code) => scratch.state.code = code,
        Err(end) => {
            // A stack that says why it has no callers.
            scratch.push(Word::absolute(scratch.at.pc.wrapping_sub(1)), epoch);
            scratch.state.end = end;
            return BREAK;
        }
    };
    let Some(python) = python::of(space) else {
        scratch.state.end = End::Stale;
        return BREAK;
    };
    let state = &mut scratch.state;
    state.at = scratch.at;
    state.is_return = 1;
    state.by_frame_pointer = 0;
    state.returns = PendingReturns::current();
    state.stack.clear();
    state.python.begin();
    let mut walk = Walk { scratch, python };
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
    let state = unsafe { &mut (*walk.scratch).state };
    if !state.code.is_current() {
        state.end = End::Stale;
    } else if state.end == End::NoMapping {
        // Code can appear without a mapping call of its own (mprotect, mremap).
        code::request_snapshot(space);
    }
    BREAK
}

/// A frame each, and for each run of Python frames one to enter and one to leave it.
const STEPS: u32 = 3 * MAX_FRAMES as u32;

pub(crate) const CONTINUE: u64 = 0;
pub(crate) const BREAK: u64 = 1;

/// Callback of `bpf_loop`.
unsafe extern "C" fn next_frame(_index: u64, walk: *mut Walk) -> u64 {
    // SAFETY: the pointers are those that `walk` was called with.
    let (scratch, python) = unsafe { (&mut *(*walk).scratch, &*(*walk).python) };
    if scratch.state.python.is_running() {
        // VERIFIER: what a callback returns must be seen to be 0 or 1.
        return match core::hint::black_box(python::next_python_frame(scratch, python)) {
            CONTINUE => CONTINUE,
            _ => BREAK,
        };
    }
    advance(scratch, python)
}

#[inline(always)]
fn ended(state: &mut State, end: End) -> u64 {
    state.end = end;
    BREAK
}

#[inline(always)]
fn advance(scratch: &mut Scratch, python: &Interpreter) -> u64 {
    let state = &mut scratch.state;
    match state.code.known(state.pc()) {
        Some(row) => state.row = row,
        None => {
            if locate(scratch) != CONTINUE {
                return BREAK;
            }
        }
    }
    let word = scratch.state.row.word;
    if python::enters(scratch, python, word) {
        return CONTINUE;
    }
    let salt = if Word::is_file(word) {
        0
    } else {
        scratch.caller.epoch
    };
    if !scratch.push(word, salt) {
        return ended(&mut scratch.state, End::Truncated);
    }
    if scratch.state.row.rule == rows::SEARCH && search(scratch) != CONTINUE {
        return BREAK;
    }
    match climb(&mut scratch.state) {
        Ok(()) => CONTINUE,
        Err(end) => ended(&mut scratch.state, end),
    }
}

/// Finds what the present address means.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn locate(scratch: *mut Scratch) -> u64 {
    // SAFETY: null, or the caller's claimed map value.
    let Some(scratch) = (unsafe { scratch.as_mut() }) else {
        return BREAK;
    };
    let pc = scratch.state.pc();
    let mapping = match scratch.state.code.find(pc) {
        Ok(mapping) => mapping,
        Err(end) => {
            scratch.push(Word::absolute(pc), scratch.caller.epoch);
            return ended(&mut scratch.state, end);
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
        scratch.state.code.remember(pc, row);
        row
    };
    CONTINUE
}

/// Finds the rule of the present address, which is in a file.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn search(scratch: *mut Scratch) -> u64 {
    // SAFETY: null, or the caller's claimed map value.
    let Some(scratch) = (unsafe { scratch.as_mut() }) else {
        return BREAK;
    };
    let state = &mut scratch.state;
    match rows::find(state.row.word) {
        Ok(rule) => state.row.rule = rule,
        Err(end) => return ended(state, end),
    }
    state.code.remember(state.pc(), state.row);
    CONTINUE
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
