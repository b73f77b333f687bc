//! The steps of the walk before, so that a walk need not search for what it has in common with that one.
//!
//! A step is determined by the registers, the code at their program counter, and two words of the stack at most: the
//! return address and the saved frame pointer. So a step that was made before holds again if these are as they were.
//! Two walks that differ mostly meet further out, where both have the same callers.
//!
//! Steps that depend on anything else are not kept: they are made again each time.

use aya_ebpf::{macros::map, maps::Array};
use memtrace_common::{
    arch::{code_address, return_slot},
    unwind::{Registers, cfa, fp, fp_slot, held},
};

use crate::{
    arch::entry_of_caller,
    argument::{Argument, As},
    reads::{Reads, Replaced},
    scratch::Scratch,
    stack_memory::StackMemory,
    subject::Subject,
};

/// The last walk of each [`Scratch`], and the one in progress. The collector chooses the number of elements.
#[map]
static MEMOS: Array<Memo> = Array::with_max_entries(2, 0);

/// Steps that are kept: the rest of a deeper walk is made anew.
const STEPS: usize = 256;

/// A walk.
#[repr(C)]
pub(crate) struct Memo {
    /// Its index in the map.
    #[cfg(feature = "legacy")]
    number: u64,
    of: Subject,
    /// Steps that are kept.
    n: u64,
    steps: [Step; STEPS],
    /// What the walk as a whole depends on.
    pub(crate) reads: Reads,
}

/// A frame, and how its caller was found.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Step {
    pc: u64,
    sp: u64,
    fp: u64,
    extra: u64,
    word: u64,
    /// Where `fp` was read; 0: it is the thread's.
    fp_from: u64,
    /// Flags below, and [`Registers::extra_is`] above [`EXTRA_SHIFT`].
    flags: u64,
}

/// The next step follows from this one and the words on the stack.
const HOLDS: u64 = 1;
/// `pc` is a return address.
const IS_RETURN: u64 = 2;
/// The frame pointer matters.
const USES_FP: u64 = 4;
const EXTRA_SHIFT: u32 = 8;

/// The memo of the walk before, and that of this one.
#[inline(always)]
pub(crate) fn of(scratch: &Scratch) -> Option<(*mut Memo, *mut Memo)> {
    let first = (scratch.slot as u32) << 1;
    let side = scratch.walk.memo.side & 1;
    #[cfg(not(feature = "legacy"))]
    return Some((
        MEMOS.get_ptr_mut(first | side)?,
        MEMOS.get_ptr_mut(first | (side ^ 1))?,
    ));
    #[cfg(feature = "legacy")]
    Some((numbered(first | side)?, numbered(first | (side ^ 1))?))
}

/// The memo at an index, which it is to know.
#[cfg(feature = "legacy")]
#[inline(always)]
fn numbered(number: u32) -> Option<*mut Memo> {
    let memo = MEMOS.get_ptr_mut(number)?;
    // SAFETY: a live map value, which belongs to the claimed scratch.
    unsafe { (*memo).number = number.into() };
    Some(memo)
}

#[cfg(not(feature = "legacy"))]
crate::argument::by_pointer!(Memo);

#[cfg(feature = "legacy")]
impl Argument for Memo {
    /// Its index in the map.
    type As = u64;

    #[inline(always)]
    fn argument(&mut self) -> u64 {
        self.number
    }

    #[inline(always)]
    fn of(number: u64) -> Option<&'static mut Self> {
        let memo = MEMOS.get_ptr_mut(number as u32)?;
        // SAFETY: a live map value, which belongs to the claimed scratch.
        Some(unsafe { &mut *memo })
    }
}

#[inline(always)]
fn stack(scratch: &mut Scratch) -> StackMemory {
    StackMemory::of(scratch)
}

/// The word by which a step returns to where it did before; `None` if it does not.
#[inline(always)]
fn returns(step: &Step, next: &Step, scratch: &mut Scratch) -> Option<u64> {
    if step.flags & HOLDS == 0 {
        return None;
    }
    let word = stack(scratch).aligned(return_slot(next.sp, next.extra))?;
    (code_address(word) == next.pc).then_some(word)
}

/// Begins the memo of a walk.
#[inline(always)]
pub(crate) fn begin(scratch: &mut Scratch, old: &Memo, new: &mut Memo) {
    new.n = 0;
    new.of = scratch.walk.memo.of;
    new.reads.clear();
    let state = &mut scratch.walk.memo;
    state.uses_fp = 0;
    state.fp_from = 0;
    state.is_forgotten = 0;
    // Nothing of a walk of something else can be met.
    state.next = if old.of == state.of { 0 } else { STEPS as u32 };
}

/// Ends the memo of a walk, which is the walk before from now on. `is_valid`: what it is of has not changed meanwhile.
#[inline(always)]
pub(crate) fn end(scratch: &mut Scratch, new: &mut Memo, is_valid: bool) {
    scratch.walk.memo.side ^= 1;
    if !is_valid || scratch.walk.memo.is_forgotten() {
        new.n = 0;
        new.reads.open();
    }
}

/// Forgets the walk before, because its frames are overwritten.
#[inline(always)]
pub(crate) fn forget(old: &mut Memo) {
    old.n = 0;
    old.reads.open();
}

/// The extra register after steps that hold: where a frame among them saved it, or as it was.
#[inline(always)]
fn carry(step: &Step, at: &mut Registers) {
    let extra_is = step.flags >> EXTRA_SHIFT;
    if extra_is != held::VALUE {
        at.extra = step.extra;
        at.extra_is = extra_is;
    }
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
pub(crate) extern "C" fn follow(scratch: As<Scratch>, old: As<Memo>, new: As<Memo>) -> u64 {
    let (Some(scratch), Some(old), Some(new)) =
        (Scratch::of(scratch), Memo::of(old), Memo::of(new))
    else {
        return 0;
    };
    let state = &mut scratch.walk;
    let sp = state.at.sp;
    for _ in 0..PASSED {
        let index = state.memo.next;
        if u64::from(index) >= old.n || old.steps[index as usize & (STEPS - 1)].sp >= sp {
            break;
        }
        state.memo.next = index + 1;
    }
    let index = state.memo.next;
    if u64::from(index) + 1 >= old.n {
        return 0;
    }
    let step = &old.steps[index as usize & (STEPS - 1)];
    let next = &old.steps[(index + 1) as usize & (STEPS - 1)];
    let at = &mut state.at;
    let extra_is = step.flags >> EXTRA_SHIFT;
    if step.pc != at.pc
        || step.sp != sp
        || (step.flags & IS_RETURN) >> 1 != state.is_return
        || extra_is != at.extra_is
        || (extra_is == held::ADDRESS && step.extra != at.extra)
    {
        return 0;
    }
    let fp = at.fp;
    if step.flags & USES_FP != 0 && step.fp != fp {
        return 0;
    }
    let Some(word) = returns(step, next, scratch) else {
        return 0;
    };
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
    if n < STEPS as u64 {
        new.n = n + 1;
        let kept = &mut new.steps[n as usize & (STEPS - 1)];
        *kept = *step;
        kept.fp = fp;
        kept.fp_from = fp_from;
    }
    new.reads.stack(return_slot(next.sp, next.extra), word);
    if step.flags & USES_FP != 0 {
        needs_fp(scratch, &mut new.reads, fp_from, fp);
    }
    1
}

/// A frame is found by its frame pointer.
#[inline(always)]
fn needs_fp(scratch: &mut Scratch, reads: &mut Reads, fp_from: u64, fp: u64) {
    if fp_from == 0 {
        scratch.walk.memo.uses_fp = 1;
    } else {
        reads.stack(fp_from, fp);
    }
}

/// How the caller of a frame was found.
pub(crate) mod found {
    /// By nothing but the row and the stack.
    pub(crate) const BY_ROW: u64 = 1;
    /// The frame itself is one that depends on the row alone.
    pub(crate) const IS_PLAIN: u64 = 2;
    /// There is none.
    pub(crate) const OUTERMOST: u64 = 4;
    /// As by [`BY_ROW`], but a return probe has replaced the return address.
    pub(crate) const REPLACED: u64 = 8;
}

/// Keeps the present frame, whose word was pushed, and how its caller was found, whose stack pointer and program counter
/// these are.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn keep(
    scratch: As<Scratch>,
    memo: As<Memo>,
    caller_sp: u64,
    caller_pc: u64,
    how: u64,
) -> u64 {
    let (Some(scratch), Some(memo)) = (Scratch::of(scratch), Memo::of(memo)) else {
        return 0;
    };
    let state = &mut scratch.walk;
    let (at, rule, fp_from) = (&state.at, state.row.rule, state.memo.fp_from);
    let kind = rule.fp & fp::MASK;
    if matches!(kind, fp::AT_CFA | fp::AT_FP) {
        state.memo.fp_from = fp_slot(rule, at, caller_sp);
    }
    let by_rule = matches!(rule.cfa, cfa::SP | cfa::FP | cfa::PLT);
    // A return address that was in a register has no aligned place.
    let aligned = (state.slot | state.memo.fp_from) & 7 == 0;
    let on_stack = by_rule && aligned;
    let by_stack = how & found::BY_ROW != 0 && on_stack;
    let mut flags = at.extra_is << EXTRA_SHIFT | (state.is_return & 1) << 1;
    if by_stack && how & found::IS_PLAIN != 0 {
        flags |= HOLDS;
    }
    if rule.cfa == cfa::FP || kind == fp::AT_FP {
        flags |= USES_FP;
    }
    let fp = at.fp;
    let n = memo.n;
    if n < STEPS as u64 {
        memo.n = n + 1;
        // VERIFIER: written in place, because the program's own stack is small.
        let step = &mut memo.steps[n as usize & (STEPS - 1)];
        step.pc = at.pc;
        step.sp = at.sp;
        step.fp = fp;
        step.extra = at.extra;
        step.word = state.row.word;
        step.fp_from = fp_from;
        step.flags = flags;
    }
    if how & found::OUTERMOST != 0 {
        memo.reads.is_whole = 1;
        return 0;
    }
    if by_stack {
        memo.reads.stack(state.slot, state.slot_word);
    } else if how & found::REPLACED != 0 && on_stack {
        let replaced = Replaced {
            entry: entry_of_caller(caller_sp),
            original: caller_pc,
        };
        memo.reads
            .return_replaced(replaced, state.slot, state.slot_word);
    } else {
        memo.reads.open();
    }
    if flags & USES_FP != 0 {
        needs_fp(scratch, &mut memo.reads, fp_from, fp);
    }
    0
}

const _: () = assert!(STEPS.is_power_of_two());
