//! The walk: from the registers of a user thread to its outermost frame, by
//! unwind tables that the collector has compiled. One `bpf_loop` (Linux 5.17),
//! a frame an iteration; the step itself is `memtrace_common::unwind::step`.

use memtrace_common::{
    arch::FRAME_POINTER,
    code_map::mapping_kind,
    limits::MAX_FRAMES,
    python::Interpreter,
    row_cache::FoundRow,
    unwind::{self, End, Memory, Registers, Rule, Word, cfa},
};

#[cfg(feature = "legacy")]
use crate::loops::ROUND;
use crate::{
    arch::{SIGNAL_RETURN, entry_of_caller},
    argument::{Argument, As},
    code::{self, Code},
    facts, imports,
    interpreter::of_interpreter,
    kernel::PendingReturns,
    loops::{BREAK, CONTINUE, repeat},
    maps::{INTERPRETERS, changes},
    memo::{self, Memo, found},
    memory::UserMemory,
    python, rows,
    scratch::{Scratch, WalkState},
    stack_memory::StackMemory,
};

/// The state of the callback. On the stack of the program, as the kernel requires.
struct Walk {
    scratch: *mut Scratch,
    python: *const Interpreter,
    /// The walk before, and what is kept of this one.
    before: *mut Memo,
    memo: *mut Memo,
    /// Most steps.
    #[cfg(feature = "legacy")]
    steps: u64,
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
            cfa_offset: by_frame_pointer,
            ..FRAME_POINTER
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
pub(crate) extern "C" fn walk(scratch: As<Scratch>) -> u64 {
    let Some(scratch) = Scratch::of(scratch) else {
        return BREAK;
    };
    let Some((before, memo)) = memo::of(scratch) else {
        return BREAK;
    };
    let python = match INTERPRETERS.get(scratch.walk.memo.of.interpreter) {
        Some(python) if scratch.walk.memo.of.is_known() => python,
        _ => {
            end_at_once(scratch, before, End::Stale);
            return BREAK;
        }
    };
    // Where the last stack was that of an import, the next one mostly is.
    let mut needed = imports::NOT_FOUND;
    if scratch.walk.memo.of.has_imports != 0 && scratch.walk.memo.is_forgotten() {
        needed = imports::find(scratch.argument(), of_interpreter(python, scratch));
        if needed == 0 {
            // SAFETY: a live map value, which belongs to the claimed scratch.
            memo::forget(unsafe { &mut *before });
            return BREAK;
        }
    }
    // SAFETY: live map values, which belong to the claimed scratch.
    let (known, new) = unsafe { ((*before).argument(), (*memo).argument()) };
    if begin(scratch.argument(), known, new) != CONTINUE {
        return BREAK;
    }
    let mut walk = Walk {
        scratch,
        python,
        before,
        memo,
        #[cfg(feature = "legacy")]
        steps: needed,
    };
    #[cfg(not(feature = "legacy"))]
    repeat((needed as u32).min(STEPS), next_frame, &mut walk);
    #[cfg(feature = "legacy")]
    repeat(STEPS.div_ceil(ROUND), next_frames, &mut walk);
    // SAFETY: `walk` was made from these.
    let (scratch, memo) = unsafe { (&mut *walk.scratch, &mut *walk.memo) };
    if needed != imports::NOT_FOUND && !scratch.walk.memo.is_forgotten() {
        imports::end_at_found(scratch);
    }
    let is_current = is_unchanged(scratch) || scratch.walk.code.is_current();
    memo::end(scratch, memo, is_current);
    if !is_current {
        scratch.walk.end = End::Stale;
    } else if scratch.walk.end == End::NoMapping {
        // Code can appear without a mapping call of its own (mprotect, mremap).
        code::request_snapshot(scratch.caller.space);
    }
    BREAK
}

/// Whether nothing has changed in any process since this walk's subject was known to be right.
#[inline(always)]
fn is_unchanged(scratch: &Scratch) -> bool {
    changes() == scratch.walk.as_of
}

/// Leaves a stack without callers, with the reason.
#[inline(always)]
fn end_at_once(scratch: &mut Scratch, before: *mut Memo, end: End) {
    // SAFETY: a live map value, which belongs to the claimed scratch.
    memo::forget(unsafe { &mut *before });
    scratch.begin();
    let pc = scratch.at.pc.wrapping_sub(1);
    scratch.push(Word::absolute(pc), scratch.caller.epoch);
    scratch.walk.end = end;
}

/// Prepares the first step that has to be made; not [`CONTINUE`] if the meaning of addresses is not known.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn begin(scratch: As<Scratch>, before: As<Memo>, memo: As<Memo>) -> u64 {
    let (Some(scratch), Some(known), Some(memo)) =
        (Scratch::of(scratch), Memo::of(before), Memo::of(memo))
    else {
        return BREAK;
    };
    let space = scratch.caller.space;
    let code = match is_unchanged(scratch) {
        true => facts::snapshot(scratch)
            .ok_or(End::Stale)
            .and_then(|snapshot| Code::at(space, scratch.walk.memo.of.sequence, snapshot)),
        false => Code::of(space),
    };
    match code {
        Ok(code) => scratch.walk.code = code,
        Err(end) => {
            end_at_once(scratch, known, end);
            return BREAK;
        }
    }
    scratch.begin();
    let state = &mut scratch.walk;
    state.memo.of.sequence = state.code.sequence();
    state.at = scratch.at;
    state.is_return = 1;
    state.by_frame_pointer = 0;
    state.returns = PendingReturns::current();
    state.python.begin();
    memo::begin(scratch, known, memo);
    CONTINUE
}

/// A frame each, and for each run of Python frames one to enter and one to leave it.
const STEPS: u32 = 3 * MAX_FRAMES as u32;

/// Callback of [`repeat`]: goes on by some frames.
#[cfg(feature = "legacy")]
unsafe extern "C" fn next_frames(round: u64, walk: *mut Walk) -> u64 {
    // SAFETY: the pointers are those that `walk` was called with.
    let (scratch, steps) = unsafe { (&mut *(*walk).scratch, (*walk).steps) };
    let made = round * u64::from(ROUND);
    if made >= steps {
        return BREAK;
    }
    next_frames_by_number(scratch.argument(), steps - made)
}

/// Calls [`next_frame_by_number`] until it breaks, `steps` times at most.
#[cfg(feature = "legacy")]
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn next_frames_by_number(scratch: As<Scratch>, steps: u64) -> u64 {
    for step in 0..u64::from(ROUND) {
        if step >= steps || next_frame_by_number(scratch) != CONTINUE {
            return BREAK;
        }
    }
    CONTINUE
}

/// As [`next_frame`].
#[cfg(feature = "legacy")]
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn next_frame_by_number(scratch: As<Scratch>) -> u64 {
    let Some(scratch) = Scratch::of(scratch) else {
        return BREAK;
    };
    let python = INTERPRETERS.get(scratch.walk.memo.of.interpreter);
    let (Some((before, memo)), Some(python)) = (memo::of(scratch), python) else {
        return BREAK;
    };
    let mut walk = Walk {
        scratch,
        python,
        before,
        memo,
        steps: 1,
    };
    // SAFETY: live map values.
    unsafe { next_frame(0, &mut walk) }
}

/// Callback of [`repeat`].
#[cfg_attr(feature = "legacy", inline(always))]
unsafe extern "C" fn next_frame(_index: u64, walk: *mut Walk) -> u64 {
    // SAFETY: the pointers are those that `walk` was called with.
    let (scratch, python) = unsafe { (&mut *(*walk).scratch, &*(*walk).python) };
    // SAFETY: as above.
    let (before, memo) = unsafe { (&mut *(*walk).before, &mut *(*walk).memo) };
    if scratch.walk.python.is_running() {
        // VERIFIER: the return value of a callback must be provably 0 or 1.
        let interpreter = of_interpreter(python, scratch);
        let next = python::next_python_frame(scratch.argument(), interpreter, memo.argument());
        return match core::hint::black_box(next) {
            CONTINUE => CONTINUE,
            _ => BREAK,
        };
    }
    if memo::may_follow(scratch)
        && memo::follow(scratch.argument(), before.argument(), memo.argument()) != 0
    {
        // A few more at once: a call of this function costs as much as a step.
        for _ in 1..AT_ONCE {
            if memo::follow(scratch.argument(), before.argument(), memo.argument()) == 0 {
                break;
            }
        }
        return CONTINUE;
    }
    advance(scratch, python, memo)
}

/// Steps of the walk before that one call of [`next_frame`] repeats.
const AT_ONCE: u32 = 4;

#[inline(always)]
fn ended(state: &mut WalkState, end: End) -> u64 {
    state.end = end;
    BREAK
}

#[inline(always)]
fn advance(scratch: &mut Scratch, python: &Interpreter, memo: &mut Memo) -> u64 {
    let state = &mut scratch.walk;
    match state.code.known(state.pc()) {
        Some(row) => state.row = row,
        None => {
            if locate(scratch.argument()) != CONTINUE {
                return BREAK;
            }
        }
    }
    let word = scratch.walk.row.word;
    let evaluates = python::evaluates(python, word);
    if evaluates && python::enters(scratch, python, memo) {
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
    if scratch.walk.row.rule == rows::SEARCH && search(scratch.argument()) != CONTINUE {
        return BREAK;
    }
    match climb(scratch, memo, evaluates) {
        Ok(()) => CONTINUE,
        Err(end) => ended(&mut scratch.walk, end),
    }
}

/// Resolves the present address.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn locate(scratch: As<Scratch>) -> u64 {
    let Some(scratch) = Scratch::of(scratch) else {
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
extern "C" fn search(scratch: As<Scratch>) -> u64 {
    let Some(scratch) = Scratch::of(scratch) else {
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

/// Goes to the caller by the present row. `evaluates`: Python frames may come before the frame.
#[inline(always)]
fn climb(scratch: &mut Scratch, memo: &mut Memo, evaluates: bool) -> Result<(), End> {
    let state = &mut scratch.walk;
    let rule = state.row.rule;
    let rule = match rule.cfa {
        cfa::STOP => {
            memo::keep(scratch.argument(), memo.argument(), 0, 0, found::OUTERMOST);
            return Err(End::Complete);
        }
        cfa::NO_ROW | cfa::FRAME_POINTER => without_table(&state.at, rule, state.by_frame_pointer),
        _ => rule,
    };
    // Code that a signal interrupted may not have set its frame pointer yet.
    if rule.cfa == cfa::FRAME_POINTER && state.is_return == 0 {
        return Err(End::BadFramePointer);
    }
    state.by_frame_pointer = i32::from(rule.cfa == cfa::FRAME_POINTER);
    let memory = StackMemory::of(scratch);
    let state = &mut scratch.walk;
    let mut caller = unwind::step(rule, &state.at, &memory)?;
    let read = caller.registers.pc;
    (state.slot, state.slot_word) = (caller.slot, caller.word);
    if caller.slot != 0 {
        let entry = entry_of_caller(caller.registers.sp);
        caller.registers.pc = state.returns.original(read, entry);
    }
    let (pc, sp) = (caller.registers.pc, caller.registers.sp);
    let mut how = match read == pc {
        true => found::BY_ROW,
        false => found::REPLACED,
    };
    if !evaluates {
        how |= found::IS_PLAIN;
    }
    memo::keep(scratch.argument(), memo.argument(), sp, pc, how);
    let state = &mut scratch.walk;
    state.is_return = u64::from(caller.slot != 0);
    state.at = caller.registers;
    Ok(())
}
