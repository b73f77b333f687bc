//! The steps of the walk before, so that a walk need not repeat them.
//!
//! A step is determined by the registers, the code at their program counter, and two words of the stack at most: the
//! return address and the saved frame pointer. So a step that was made before holds again if these are as they were.
//! A loop's walks are the same from the first step on: then nothing but those words is read. Otherwise a walk meets the
//! one before further out, where both have the same callers.
//!
//! Steps that depend on anything else are not kept: they are made again each time.

use aya_ebpf::{macros::map, maps::PerCpuArray};
use memtrace_common::unwind::{End, Registers, cfa, fp, rbx};

use crate::{
    kernel::Task,
    loops::{BREAK, CONTINUE, repeat},
    maps::{SETTINGS, loaded},
    memory::StackMemory,
    scratch::{SLOTS, Scratch},
    subject::Subject,
};

/// The last walk of each [`Scratch`], and the one in progress.
#[map]
static MEMOS: PerCpuArray<Memo> = PerCpuArray::with_max_entries(2 * SLOTS, 0);

/// Steps that are kept: the rest of a deeper walk is made anew. A value of a map per CPU has 32 KiB at most
/// (PCPU_MIN_UNIT_SIZE, include/linux/percpu.h).
const STEPS: usize = 256;

/// A walk.
#[repr(C)]
pub(crate) struct Memo {
    of: Subject,
    /// Steps that are kept.
    n: u32,
    /// 1 if these are all, and lead to the outermost frame by themselves.
    is_whole: u32,
    /// The stack's hash.
    hash: u64,
    /// The stack's key, once it was sent, for a thread of this name; else 0.
    key: u64,
    name: [u64; 2],
    /// 1 if the thread's own frame pointer matters.
    uses_fp: u64,
    steps: [Step; STEPS],
    /// The guards of the steps.
    guards: [[Guard; AT_ONCE]; STEPS / AT_ONCE],
}

impl Memo {
    /// The guard of a step.
    #[inline(always)]
    fn guard(&mut self, step: usize) -> &mut Guard {
        let place = step & (STEPS - 1);
        &mut self.guards[place / AT_ONCE][place % AT_ONCE]
    }
}

/// A frame, and how its caller was found.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Step {
    pc: u64,
    sp: u64,
    fp: u64,
    bx: u64,
    word: u64,
    /// Of the frames so far.
    hash: u64,
    /// Where `fp` was read; 0: it is the thread's.
    fp_from: u64,
    /// Flags below, and [`Registers::bx_is`] above [`BX_SHIFT`].
    flags: u64,
}

/// The words on the stack that a step depends on, so that a walk can be compared without looking at its steps.
#[derive(Clone, Copy)]
#[repr(C)]
struct Guard {
    /// Where the return address is, and what it was; 0: the step depends on more than these.
    slot: u64,
    pc: u64,
    /// Where the frame pointer was saved, if it matters, and what it was; 0: it does not matter, or is the thread's.
    fp_from: u64,
    fp: u64,
}

/// The next step follows from this one and the words on the stack.
const HOLDS: u64 = 1;
/// `pc` is a return address.
const IS_RETURN: u64 = 2;
/// The frame pointer matters.
const USES_FP: u64 = 4;
const BX_SHIFT: u32 = 8;

/// The memo of the walk before, and that of this one.
#[inline(always)]
pub(crate) fn of(scratch: &Scratch) -> Option<(*mut Memo, *mut Memo)> {
    let first = (scratch.slot as u32) << 1;
    let side = scratch.walk.memo.side & 1;
    Some((
        MEMOS.get_ptr_mut(first | side)?,
        MEMOS.get_ptr_mut(first | (side ^ 1))?,
    ))
}

/// The result of [`repeated`] if the walk is the one before, but its key is not known.
pub(crate) const WITHOUT_KEY: u64 = 1;

/// The key of the walk from `scratch.at` on, whose frames are still in place, if it is the one before as a whole, or
/// [`WITHOUT_KEY`]; else 0, and `held` says how many steps are the same.
#[inline(always)]
pub(crate) fn repeated(scratch: &mut Scratch) -> u64 {
    of(scratch).map_or(0, |(before, _)| compare(scratch, before))
}

/// The state of [`check`].
struct Checking {
    scratch: *mut Scratch,
    memo: *const Memo,
}

// VERIFIER: a global function, as are all that are exported here.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn compare(scratch: *mut Scratch, memo: *const Memo) -> u64 {
    // SAFETY: null, or the caller's map values.
    let (Some(state), Some(known)) = (unsafe { (scratch.as_mut(), memo.as_ref()) }) else {
        return 0;
    };
    state.walk.stack.clear();
    let (first, at) = (&known.steps[0], &state.at);
    state.walk.memo.held = 0;
    state.walk.memo.is_whole = 0;
    if known.n == 0
        || !is_of(known, &state.walk.memo.of)
        || first.pc != at.pc
        || first.sp != at.sp
        || (known.uses_fp != 0 && first.fp != at.fp)
    {
        return 0;
    }
    // All of the stack that is compared, if it fits: elsewhere it is copied page by page.
    let last = &known.steps[known.n.wrapping_sub(1) as usize & (STEPS - 1)];
    let start = at.sp & !7;
    state
        .walk
        .stack
        .copy(start, last.sp.wrapping_sub(start) & !7);
    let mut checking = Checking { scratch, memo };
    repeat((STEPS / AT_ONCE) as u32, check, &mut checking);
    // SAFETY: `checking` was made from this reference.
    let state = unsafe { &mut *checking.scratch };
    if state.walk.memo.is_whole == 0 {
        return 0;
    }
    state.record.stack = known.hash;
    state.record.n = known.n;
    state.walk.end = End::Complete;
    if known.key == 0 || loaded(&SETTINGS.verify_every) != 0 || known.name != Task::current_name() {
        return WITHOUT_KEY;
    }
    known.key
}

/// Steps that one call of [`check`] compares.
const AT_ONCE: usize = 8;

/// Callback of [`repeat`]: whether the next steps lead to the same callers as before.
unsafe extern "C" fn check(index: u64, checking: *mut Checking) -> u64 {
    // SAFETY: the pointers are those that `compare` passed.
    let (scratch, memo) = unsafe { (&mut *(*checking).scratch, &*(*checking).memo) };
    let guards = &memo.guards[index as usize & (STEPS / AT_ONCE - 1)];
    let mut at = index as u32 * AT_ONCE as u32;
    let mut differs = 0;
    for guard in guards {
        at += 1;
        // The outermost frame has no caller.
        if at >= memo.n {
            if differs == 0 {
                scratch.walk.memo.is_whole = memo.is_whole;
                scratch.walk.memo.held = at - 1;
            }
            return BREAK;
        }
        if guard.slot == 0 {
            return BREAK;
        }
        let memory = stack(scratch);
        let Some(pc) = memory.aligned(guard.slot) else {
            return BREAK;
        };
        differs |= pc ^ guard.pc;
        if guard.fp_from != 0 {
            let Some(fp) = memory.aligned(guard.fp_from) else {
                return BREAK;
            };
            differs |= fp ^ guard.fp;
        }
    }
    if differs != 0 {
        return BREAK;
    }
    scratch.walk.memo.held = at;
    CONTINUE
}

#[inline(always)]
fn stack(scratch: &mut Scratch) -> StackMemory {
    StackMemory(&raw mut scratch.walk.stack)
}

/// Whether a step returns to where it did before.
#[inline(always)]
fn returns(step: &Step, next: &Step, scratch: &mut Scratch) -> bool {
    step.flags & HOLDS != 0 && stack(scratch).aligned(return_slot(next.sp)) == Some(next.pc)
}

/// Where the return address was that led to a stack pointer.
#[inline(always)]
fn return_slot(sp: u64) -> u64 {
    sp.wrapping_sub(8)
}

/// Whether a walk's steps are true of `subject`.
#[inline(always)]
fn is_of(memo: &Memo, subject: &Subject) -> bool {
    memo.of == *subject
}

/// Begins the memo of a walk. If it is of the same as the one before, the steps that held are its first.
#[inline(always)]
pub(crate) fn begin(scratch: &mut Scratch, old: &Memo, new: &mut Memo) {
    new.n = 0;
    new.key = 0;
    new.uses_fp = 0;
    scratch.walk.memo.is_whole = 0;
    new.of = scratch.walk.memo.of;
    scratch.walk.memo.fp_from = 0;
    scratch.walk.memo.is_forgotten = 0;
    scratch.walk.memo.next = 0;
    if !is_of(old, &scratch.walk.memo.of) {
        // Nothing of it can be met.
        scratch.walk.memo.next = STEPS as u32;
        return;
    }
    let held = scratch.walk.memo.held;
    // Another attempt at this walk begins anew.
    scratch.walk.memo.held = 0;
    if held == 0 {
        return;
    }
    new.uses_fp = old.uses_fp;
    let mut copying = Copying { old, new };
    repeat(held, copy, &mut copying);
    new.n = held;
    let state = &mut scratch.walk;
    let step = &old.steps[held as usize & (STEPS - 1)];
    state.at.pc = step.pc;
    state.at.sp = step.sp;
    if step.fp_from != 0 {
        // It was read a moment ago, by this walk or the one before; what cannot be read any more leads nowhere.
        state.at.fp = StackMemory(&raw mut state.stack)
            .aligned(step.fp_from)
            .unwrap_or(0);
    }
    state.memo.fp_from = step.fp_from;
    carry(step, &mut state.at);
    state.memo.next = held;
    scratch.record.n = held;
    scratch.record.stack = old.steps[(held - 1) as usize & (STEPS - 1)].hash;
}

/// Ends the memo of a walk that was made anew, which is the walk before from now on. `is_valid`: what it is of has not
/// changed meanwhile.
#[inline(always)]
pub(crate) fn end(scratch: &mut Scratch, new: &mut Memo, is_valid: bool) {
    scratch.walk.memo.side ^= 1;
    new.hash = scratch.record.stack;
    if !is_valid || scratch.walk.memo.is_forgotten() {
        new.n = 0;
    }
    // Python frames are no steps.
    new.is_whole = match new.n == scratch.record.n {
        true => scratch.walk.memo.is_whole,
        false => 0,
    };
}

/// Forgets the walk before, because its frames are overwritten.
#[inline(always)]
pub(crate) fn forget(old: &mut Memo) {
    old.n = 0;
}

/// rbx after steps that hold: where a frame among them saved it, or as it was.
#[inline(always)]
fn carry(step: &Step, at: &mut Registers) {
    let bx_is = step.flags >> BX_SHIFT;
    if bx_is != rbx::VALUE {
        at.bx = step.bx;
        at.bx_is = bx_is;
    }
}

struct Copying {
    old: *const Memo,
    new: *mut Memo,
}

/// Callback of [`repeat`].
unsafe extern "C" fn copy(index: u64, copying: *mut Copying) -> u64 {
    let place = index as usize & (STEPS - 1);
    // SAFETY: the pointers are those that `begin` passed.
    unsafe {
        (*(*copying).new).steps[place] = (*(*copying).old).steps[place];
        let guard = (*(*copying).old).guards[place / AT_ONCE][place % AT_ONCE];
        *(*(*copying).new).guard(place) = guard;
    }
    CONTINUE
}

/// Whether [`follow`] may find anything.
#[inline(always)]
pub(crate) fn may_follow(scratch: &Scratch) -> bool {
    scratch.walk.memo.next < STEPS as u32
}

/// Most steps of the walk before that are passed over at once.
const PASSED: usize = 8;

/// Makes the next step as the walk before made it. 0 if that is not known to be right.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn follow(scratch: *mut Scratch, old: *const Memo, new: *mut Memo) -> u64 {
    // SAFETY: null, or the caller's map values.
    let (Some(scratch), Some(old), Some(new)) =
        (unsafe { (scratch.as_mut(), old.as_ref(), new.as_mut()) })
    else {
        return 0;
    };
    let state = &mut scratch.walk;
    let sp = state.at.sp;
    for _ in 0..PASSED {
        let index = state.memo.next;
        if index >= old.n || old.steps[index as usize & (STEPS - 1)].sp >= sp {
            break;
        }
        state.memo.next = index + 1;
    }
    let index = state.memo.next;
    if index.wrapping_add(1) >= old.n {
        return 0;
    }
    let step = &old.steps[index as usize & (STEPS - 1)];
    let next = &old.steps[(index + 1) as usize & (STEPS - 1)];
    let at = &mut state.at;
    let bx_is = step.flags >> BX_SHIFT;
    if step.pc != at.pc
        || step.sp != sp
        || (step.flags & IS_RETURN) >> 1 != state.is_return
        || bx_is != at.bx_is
        || (bx_is == rbx::ADDRESS && step.bx != at.bx)
    {
        return 0;
    }
    let fp = at.fp;
    if (step.flags & USES_FP != 0 && step.fp != fp) || !returns(step, next, scratch) {
        return 0;
    }
    let fp_from = scratch.walk.memo.fp_from;
    let mut caller_fp = fp;
    let mut caller_from = fp_from;
    if next.fp_from != step.fp_from {
        caller_from = next.fp_from;
        match stack(scratch).aligned(caller_from) {
            Some(saved) => caller_fp = saved,
            None => return 0,
        }
    }
    let state = &mut scratch.walk;
    let at = &mut state.at;
    at.pc = next.pc;
    at.sp = next.sp;
    at.fp = caller_fp;
    carry(next, at);
    state.memo.fp_from = caller_from;
    state.is_return = 1;
    state.by_frame_pointer = 0;
    state.memo.next = index + 1;
    // Frames that hold are of files. If there is no room, the next step ends the walk.
    scratch.push(step.word, 0);
    let n = new.n;
    if n < STEPS as u32 {
        new.n = n + 1;
        let kept = &mut new.steps[n as usize & (STEPS - 1)];
        *kept = *step;
        kept.fp = fp;
        kept.fp_from = fp_from;
        kept.hash = scratch.record.stack;
        let guard = new.guard(n as usize);
        guard.slot = return_slot(next.sp);
        guard.pc = next.pc;
        guard.fp_from = if step.flags & USES_FP != 0 {
            fp_from
        } else {
            0
        };
        guard.fp = fp;
        if step.flags & USES_FP != 0 && fp_from == 0 {
            new.uses_fp = 1;
        }
    }
    1
}

/// Keeps the present frame, whose word was pushed, and how its caller was found, whose stack pointer and program counter
/// these are (0: it has none). `holds`: by nothing but the row and the stack.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn keep(
    scratch: *mut Scratch,
    memo: *mut Memo,
    caller_sp: u64,
    caller_pc: u64,
    holds: u64,
) -> u64 {
    // SAFETY: null, or the caller's map values.
    let (Some(scratch), Some(memo)) = (unsafe { (scratch.as_mut(), memo.as_mut()) }) else {
        return 0;
    };
    let hash = scratch.record.stack;
    let state = &mut scratch.walk;
    let (at, rule, fp_from) = (&state.at, state.row.rule, state.memo.fp_from);
    let kind = rule.fp & fp::MASK;
    let offset = i64::from(rule.fp_offset) as u64;
    match kind {
        fp::AT_CFA => state.memo.fp_from = caller_sp.wrapping_add(offset),
        fp::AT_FP => state.memo.fp_from = at.fp.wrapping_add(offset),
        _ => {}
    }
    let mut flags = at.bx_is << BX_SHIFT | (state.is_return & 1) << 1;
    let by_rule = matches!(rule.cfa, cfa::SP | cfa::FP | cfa::PLT);
    if holds != 0 && by_rule && (caller_sp | state.memo.fp_from) & 7 == 0 {
        flags |= HOLDS;
    }
    if rule.cfa == cfa::FP || kind == fp::AT_FP {
        flags |= USES_FP;
    }
    let n = memo.n;
    if n >= STEPS as u32 {
        return 0;
    }
    memo.n = n + 1;
    // VERIFIER: written in place, because the program's own stack is small.
    let step = &mut memo.steps[n as usize & (STEPS - 1)];
    step.pc = at.pc;
    step.sp = at.sp;
    step.fp = at.fp;
    step.bx = at.bx;
    step.word = state.row.word;
    step.hash = hash;
    step.fp_from = fp_from;
    step.flags = flags;
    let uses_fp = flags & USES_FP != 0;
    let guard = memo.guard(n as usize);
    guard.slot = if flags & HOLDS != 0 {
        return_slot(caller_sp)
    } else {
        0
    };
    guard.pc = caller_pc;
    guard.fp_from = if uses_fp { fp_from } else { 0 };
    guard.fp = at.fp;
    if uses_fp && fp_from == 0 {
        memo.uses_fp = 1;
    }
    0
}

/// Keeps the key of the stack that was walked and sent, if a walk may be recognised as a whole.
#[inline(always)]
pub(crate) fn set_key(scratch: &Scratch, key: u64) {
    if scratch.walk.memo.is_forgotten() {
        return;
    }
    if let Some((memo, _)) = of(scratch) {
        // SAFETY: a live map value, which belongs to the claimed scratch.
        let memo = unsafe { &mut *memo };
        memo.key = key;
        memo.name = Task::current_name();
    }
}

const _: () = assert!(STEPS.is_power_of_two());
const _: () = assert!(size_of::<Memo>() <= 32 << 10);
