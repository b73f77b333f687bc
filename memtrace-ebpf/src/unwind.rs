//! The walk: from the registers of a user thread to its outermost frame, by
//! unwind tables that the collector has compiled. One `bpf_loop` (Linux 5.17),
//! a frame an iteration; the step itself is `memtrace_common::unwind::step`.

use memtrace_common::{
    code_map::mapping_kind,
    limits::MAX_FRAMES,
    python::Interpreter,
    row_cache::FoundRow,
    unwind::{self, End, Memory, Registers, Rule, Word, cfa, fp},
};

use crate::{
    arch::SIGNAL_RETURN,
    code::{self, Code},
    kernel::PendingReturns,
    loops::{BREAK, CONTINUE, repeat},
    memory::{StackMemory, UserMemory},
    python, rows,
    scratch::{Scratch, WalkState},
};

/// The state of the callback. On the stack of the program, as the kernel requires.
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

/// Whether a return address is where the kernel has signal handlers return to.
#[inline(always)]
fn is_signal_return(pc: u64) -> bool {
    UserMemory.read(pc) == Some(SIGNAL_RETURN)
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
        Ok(code) => scratch.walk.code = code,
        Err(end) => {
            // A stack with the reason why it has no callers.
            scratch.push(Word::absolute(scratch.at.pc.wrapping_sub(1)), epoch);
            scratch.walk.end = end;
            return BREAK;
        }
    };
    let Some(python) = python::of(space) else {
        scratch.walk.end = End::Stale;
        return BREAK;
    };
    let state = &mut scratch.walk;
    state.at = scratch.at;
    state.is_return = 1;
    state.by_frame_pointer = 0;
    state.returns = PendingReturns::current();
    state.stack.clear();
    state.python.begin();
    let mut walk = Walk { scratch, python };
    repeat(STEPS, next_frame, &mut walk);
    // SAFETY: `walk` was made from this reference.
    let state = unsafe { &mut (*walk.scratch).walk };
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

/// Callback of [`repeat`].
unsafe extern "C" fn next_frame(_index: u64, walk: *mut Walk) -> u64 {
    // SAFETY: the pointers are those that `walk` was called with.
    let (scratch, python) = unsafe { (&mut *(*walk).scratch, &*(*walk).python) };
    if scratch.walk.python.is_running() {
        // VERIFIER: the return value of a callback must be provably 0 or 1.
        return match core::hint::black_box(python::next_python_frame(scratch, python)) {
            CONTINUE => CONTINUE,
            _ => BREAK,
        };
    }
    advance(scratch, python)
}

#[inline(always)]
fn ended(state: &mut WalkState, end: End) -> u64 {
    state.end = end;
    BREAK
}

#[inline(always)]
fn advance(scratch: &mut Scratch, python: &Interpreter) -> u64 {
    let state = &mut scratch.walk;
    match state.code.known(state.pc()) {
        Some(row) => state.row = row,
        None => {
            if locate(scratch) != CONTINUE {
                return BREAK;
            }
        }
    }
    let word = scratch.walk.row.word;
    if python::enters(scratch, python, word) {
        return CONTINUE;
    }
    let salt = if Word::is_file(word) {
        0
    } else {
        scratch.caller.epoch
    };
    if !scratch.push(word, salt) {
        return ended(&mut scratch.walk, End::Truncated);
    }
    if scratch.walk.row.rule == rows::SEARCH && search(scratch) != CONTINUE {
        return BREAK;
    }
    match climb(&mut scratch.walk) {
        Ok(()) => CONTINUE,
        Err(end) => ended(&mut scratch.walk, end),
    }
}

/// Resolves the present address.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn locate(scratch: *mut Scratch) -> u64 {
    // SAFETY: null, or the caller's claimed map value.
    let Some(scratch) = (unsafe { scratch.as_mut() }) else {
        return BREAK;
    };
    let pc = scratch.walk.pc();
    let mapping = match scratch.walk.code.find(pc) {
        Ok(mapping) => mapping,
        Err(end) => {
            scratch.push(Word::absolute(pc), scratch.caller.epoch);
            return ended(&mut scratch.walk, end);
        }
    };
    scratch.walk.row = if mapping.kind == mapping_kind::FILE {
        FoundRow {
            word: Word::file(mapping.exec, pc.wrapping_sub(mapping.bias)),
            rule: rows::SEARCH,
        }
    } else {
        let row = FoundRow {
            word: Word::absolute(pc),
            rule: rows::FRAME_POINTER,
        };
        scratch.walk.code.remember(pc, row);
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
    let state = &mut scratch.walk;
    match rows::find(state.row.word) {
        Ok(rule) => state.row.rule = rule,
        Err(end) => return ended(state, end),
    }
    state.code.remember(state.pc(), state.row);
    CONTINUE
}

/// Goes to the caller by the present row.
#[inline(always)]
fn climb(state: &mut WalkState) -> Result<(), End> {
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
