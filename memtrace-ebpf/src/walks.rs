//! Whole walks that were made before, kept by where they began.
//!
//! A walk is determined by the registers where it begins, the meaning of the code, and the words of memory that it reads.
//! So if all those are as they were, the stack is the same one, and nothing needs to be walked. A program that
//! allocates at a few thousand places again and again mostly compares.
//!
//! Any CPU reads and writes the table at any time without a lock: a number that changes with each write shows whether a
//! walk was replaced meanwhile. Only the thread that made a walk finds it.

use aya_ebpf::{macros::map, maps::Array};
use memtrace_common::{
    event::COMM,
    hash::{SEED, mix},
    unwind::End,
};

use crate::{
    arch::{keep_order_of_reads, publish},
    argument::{Argument, As},
    atomic::{exchange, word},
    codes,
    kernel::{CurrentTask, original_at},
    loops::{BREAK, CONTINUE, repeat},
    memo::Memo,
    places::{Places, are_same},
    reads::{CODES, MEMORY, Reads, Replaced, STACK, Words},
    scratch::Scratch,
    subject::Subject,
};

/// Walks in sets, chosen by where a walk begins.
const SETS: u32 = 1024;

/// Walks of a set.
const WAYS: usize = 7;

/// What the walks of a set begin with.
#[repr(C)]
struct Set {
    tags: [u64; WAYS],
    /// The walk that is replaced next.
    next: u64,
}

#[map]
static WALK_SETS: Array<Set> = Array::with_max_entries(SETS, 0);

#[map]
static WALKS: Array<Known> = Array::with_max_entries(SETS * WAYS as u32, 0);

/// A walk that was made before.
#[repr(C)]
struct Known {
    /// 0: none yet. Odd while it is being written.
    version: u64,
    of: Subject,
    image: u64,
    /// The thread.
    owner: u64,
    name: [u64; 2],
    /// Where it begins.
    pc: u64,
    sp: u64,
    /// The frame pointer, if it matters.
    fp: u64,
    uses_fp: u64,
    /// The stack's key, and its words.
    key: u64,
    frames: u32,
    /// See [`follower`].
    next: u32,
    /// Code objects of the process that had ended.
    ends: u64,
    /// Places of [`codes::ends_at`], and a hash of how many had ended.
    codes: u64,
    codes_hash: u64,
    code: [u16; CODES],
    replaced: Replaced,
    stack: Places<STACK>,
    memory: Places<MEMORY>,
}

/// How a known walk is passed to a global function, see [`crate::argument`].
#[cfg(not(feature = "legacy"))]
type AsKnown = *const Known;
#[cfg(feature = "legacy")]
type AsKnown = u64;

/// The walk at an index.
#[inline(always)]
fn of_known(index: u32) -> Option<AsKnown> {
    #[cfg(not(feature = "legacy"))]
    return WALKS.get_ptr(index);
    #[cfg(feature = "legacy")]
    Some(index.into())
}

#[inline(always)]
fn known_of(argument: AsKnown) -> Option<&'static Known> {
    #[cfg(not(feature = "legacy"))]
    // SAFETY: null, or a live map value.
    return unsafe { argument.as_ref() };
    #[cfg(feature = "legacy")]
    WALKS.get(argument as u32)
}

/// How [`Reads`] are passed.
#[cfg(not(feature = "legacy"))]
type AsReads = *const Reads;
#[cfg(feature = "legacy")]
type AsReads = As<Memo>;

/// Those of a memo.
#[inline(always)]
pub(crate) fn of_reads(memo: &mut Memo) -> AsReads {
    #[cfg(not(feature = "legacy"))]
    return &raw const memo.reads;
    #[cfg(feature = "legacy")]
    memo.argument()
}

#[inline(always)]
fn reads_of(argument: AsReads) -> Option<&'static Reads> {
    #[cfg(not(feature = "legacy"))]
    // SAFETY: null, or part of the caller's map value.
    return unsafe { argument.as_ref() };
    #[cfg(feature = "legacy")]
    Memo::of(argument).map(|memo| &memo.reads)
}

#[inline(always)]
fn owner(scratch: &Scratch) -> u64 {
    u64::from(scratch.caller.tgid) << 32 | u64::from(scratch.caller.tid)
}

#[inline(always)]
fn tag(scratch: &Scratch) -> u64 {
    mix(mix(owner(scratch), scratch.at.pc), scratch.at.sp)
}

#[inline(always)]
fn set(tag: u64) -> u32 {
    (tag >> 32) as u32 & (SETS - 1)
}

/// The index of a walk in WALKS.
#[inline(always)]
fn index(tag: u64, way: usize) -> u32 {
    set(tag) * WAYS as u32 + way as u32
}

// VERIFIER: a global function, as are all that are exported here.
/// The key of the walk from `scratch.at` on if it was made before, else 0.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn look_up(scratch: As<Scratch>) -> u64 {
    match Scratch::of(scratch) {
        Some(scratch) => look_up_by(scratch, |scratch, known| holds(scratch.argument(), known)),
        None => 0,
    }
}

/// Like [`look_up`], but inlined for the expected walk.
#[cfg(not(feature = "legacy"))]
#[inline(always)]
pub(crate) fn look_up_here(scratch: &mut Scratch, task: CurrentTask) -> u64 {
    look_up_by(scratch, |scratch, known| holds_here(scratch, known, task))
}

/// As [`look_up`].
#[cfg(feature = "legacy")]
#[inline(always)]
pub(crate) fn look_up_here(scratch: &mut Scratch, _task: CurrentTask) -> u64 {
    look_up(scratch.argument())
}

#[inline(always)]
fn look_up_by(scratch: &mut Scratch, holds: impl FnOnce(&mut Scratch, AsKnown) -> u64) -> u64 {
    scratch.walk.stack.clear();
    scratch.walk.replaces = 0;
    let before = match scratch.walk.before_of == owner(scratch) {
        true => scratch.walk.before as u32,
        false => 0,
    };
    scratch.walk.before = 0;
    let mut expected = follower(before);
    if expected != 0
        && let Some(known) = of_known(expected - 1)
    {
        let key = holds(scratch, known);
        if key > STALE {
            scratch.walk.before = expected.into();
            scratch.walk.missed = 0;
            return key;
        }
        if key == STALE {
            // Looked at again below, where it can be replaced.
            expected = 0;
        }
    }
    search_set(scratch.argument(), before.into(), expected.into())
}

/// As [`look_up`], if the walk is not the `expected` one after the one `before`.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn search_set(scratch: As<Scratch>, before: u64, expected: u64) -> u64 {
    let Some(scratch) = Scratch::of(scratch) else {
        return 0;
    };
    let (before, expected) = (before as u32, expected as u32);
    let tag = tag(scratch);
    let Some(set) = WALK_SETS.get(set(tag)) else {
        return 0;
    };
    for way in 0..WAYS {
        let index = index(tag, way);
        if set.tags[way] == tag
            && index + 1 != expected
            && let Some(known) = of_known(index)
        {
            let key = holds(scratch.argument(), known);
            if key > STALE {
                scratch.walk.before = u64::from(index) + 1;
                scratch.walk.before_of = owner(scratch);
                scratch.walk.missed = 0;
                set_follower(before, index + 1);
                return key;
            }
            if key == STALE {
                scratch.walk.replaces = way as u64 + 1;
            }
        }
    }
    0
}

/// The number of the walk that came after a walk when the thread made that one last; 0: none. Numbers are indices plus
/// one.
#[inline(always)]
fn follower(number: u32) -> u32 {
    // SAFETY: a live map value.
    WALKS
        .get_ptr(number.wrapping_sub(1))
        .map_or(0, |known| unsafe {
            core::ptr::read_volatile(&raw const (*known).next)
        })
}

/// Keeps which walk came after a walk. That may be another one by now: this is no more than a guess.
#[inline(always)]
fn set_follower(number: u32, next: u32) {
    if let Some(known) = WALKS.get_ptr_mut(number.wrapping_sub(1)) {
        // SAFETY: a live map value.
        unsafe { core::ptr::write_volatile(&raw mut (*known).next, next) };
    }
}

/// Keys are above this.
pub(crate) const NO_KEY: u64 = 1;

/// The result of [`holds`] for a walk that nothing can repeat any more.
const STALE: u64 = NO_KEY;

/// The key of a walk if it is that from `scratch.at` on.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn holds(scratch: As<Scratch>, known: AsKnown) -> u64 {
    match Scratch::of(scratch) {
        Some(scratch) => holds_here(scratch, known, CurrentTask::get()),
        None => 0,
    }
}

/// Like [`holds`], but inlined.
#[inline(always)]
fn holds_here(state: &mut Scratch, known: AsKnown, task: CurrentTask) -> u64 {
    let Some(walk) = known_of(known) else {
        return 0;
    };
    // SAFETY: a reference is valid to read.
    let version = || unsafe { core::ptr::read_volatile(&raw const walk.version) };
    let before = version();
    keep_order_of_reads();
    let at = &state.at;
    if before & 1 != 0 || before == 0 || walk.owner != owner(state) {
        return 0;
    }
    if walk.of != state.walk.memo.of || walk.image != state.caller.image {
        return STALE;
    }
    if walk.pc != at.pc || walk.sp != at.sp || (walk.uses_fp != 0 && walk.fp != at.fp) {
        return 0;
    }
    if !are_same(state, &walk.stack) {
        return 0;
    }
    let replaced = walk.replaced;
    if replaced.entry != 0 && original_at(replaced.entry) != replaced.original {
        return 0;
    }
    if walk.codes != 0 && walk.ends != codes::ends_in(state.caller.space) && !have_codes(walk) {
        return STALE;
    }
    if !are_same(state, &walk.memory) {
        return 0;
    }
    let (key, frames) = (walk.key, walk.frames);
    let is_named = walk.name == task.name();
    // Everything above was read before this.
    keep_order_of_reads();
    if !is_named || version() != before {
        return 0;
    }
    state.record.n = frames;
    state.walk.end = End::Complete;
    key
}

/// The state of [`next_code`].
struct Codes {
    walk: *const Known,
    hash: u64,
}

/// Whether none of a walk's code objects has ended.
#[inline(always)]
fn have_codes(walk: &Known) -> bool {
    let mut codes = Codes { walk, hash: SEED };
    repeat(CODES as u32, next_code, &mut codes);
    codes.hash == walk.codes_hash
}

/// Callback of [`repeat`].
unsafe extern "C" fn next_code(index: u64, codes: *mut Codes) -> u64 {
    // SAFETY: the pointers are those that `have_codes` passed.
    let (codes, walk) = unsafe { (&mut *codes, &*(*codes).walk) };
    if index >= walk.codes {
        return BREAK;
    }
    let place = walk.code[index as usize & (CODES - 1)];
    codes.hash = mix(codes.hash, codes::ends_at(place.into()));
    CONTINUE
}

/// The state of [`keep_code`].
struct KeepingCodes {
    walk: *mut Known,
    codes: *const Words<CODES>,
}

/// Callback of [`repeat`].
unsafe extern "C" fn keep_code(index: u64, keeping: *mut KeepingCodes) -> u64 {
    // SAFETY: the pointers are those that `store` passed.
    let (walk, codes) = unsafe { (&mut *(*keeping).walk, &*(*keeping).codes) };
    if index >= codes.n {
        return BREAK;
    }
    let word = &codes.word[index as usize & (CODES - 1)];
    walk.code[index as usize & (CODES - 1)] = word.address as u16;
    walk.codes_hash = mix(walk.codes_hash, word.value);
    CONTINUE
}

/// Takes the words of a walk. `None` if they lie too far apart.
#[cfg(not(feature = "legacy"))]
#[inline(always)]
fn take_places(known: &mut Known, reads: &Reads) -> Option<u64> {
    let stack = known.stack.take(&reads.stack, 0);
    stack.and_then(|end| known.memory.take(&reads.memory, end))
}

/// Takes the words of a walk. `None` if they lie too far apart.
#[cfg(feature = "legacy")]
#[inline(always)]
fn take_places(known: &mut Known, reads: &Reads, index: u32, memo: AsReads) -> Option<u64> {
    let step = |kind| move |step: u64, word: u64| take_step(index.into(), memo, kind | step, word);
    let stack = known.stack.take_by(&reads.stack, 0, step(OF_STACK));
    stack.and_then(|end| known.memory.take_by(&reads.memory, end, step(0)))
}

/// Added to a step of [`take_step`] for words of the stack.
#[cfg(feature = "legacy")]
const OF_STACK: u64 = 2;

// VERIFIER: a global function: it is verified once, not for each word.
/// A step for one word, see [`Places::take_by`].
#[cfg(feature = "legacy")]
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn take_step(index: u64, reads: AsReads, step: u64, word: u64) -> u64 {
    let (Some(known), Some(reads)) = (WALKS.get_ptr_mut(index as u32), reads_of(reads)) else {
        return BREAK;
    };
    // SAFETY: a live map value, which the caller owns.
    let known = unsafe { &mut *known };
    let kind = step & !OF_STACK;
    match step & OF_STACK {
        0 => known.memory.take_step(&reads.memory, kind, word),
        _ => known.stack.take_step(&reads.stack, kind, word),
    }
}

/// After so many walks of a CPU that were not found, few are kept: a program that has more than there is room for would
/// only replace them before they come again.
const PATIENCE: u64 = 64;
const SELDOM: u64 = 16;

/// Keeps the walk that was just made, whose stack has this key, if it depends on nothing but these.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn store(scratch: As<Scratch>, reads: AsReads, key: u64) -> u64 {
    #[cfg(feature = "legacy")]
    let memo = reads;
    let (Some(scratch), Some(reads)) = (Scratch::of(scratch), reads_of(reads)) else {
        return 0;
    };
    let missed = scratch.walk.missed;
    scratch.walk.missed = missed.wrapping_add(1);
    if missed > PATIENCE && missed & (SELDOM - 1) != 0 {
        return 0;
    }
    if reads.is_open != 0 || reads.is_whole == 0 {
        return 0;
    }
    let tag = tag(scratch);
    let Some(set) = WALK_SETS.get_ptr_mut(set(tag)) else {
        return 0;
    };
    // SAFETY: a live map value; whichever of the writers wins.
    let set = unsafe { &mut *set };
    let way = match scratch.walk.replaces {
        0 => {
            let next = set.next;
            set.next = if next + 1 >= WAYS as u64 { 0 } else { next + 1 };
            next
        }
        stale => stale - 1,
    };
    if way >= WAYS as u64 {
        return 0;
    }
    let index = index(tag, way as usize);
    let Some(known) = WALKS.get_ptr_mut(index) else {
        return 0;
    };
    let which = word::WALK | u64::from(index);
    // SAFETY: a live map value, which this program owns while the version is odd.
    unsafe {
        let version = core::ptr::read_volatile(&raw const (*known).version);
        if version & 1 != 0 || !exchange(&raw mut (*known).version, version, version | 1, which) {
            return 0;
        }
        let known = &mut *known;
        known.of = scratch.walk.memo.of;
        known.image = scratch.caller.image;
        known.owner = owner(scratch);
        // The name that is part of the key: the present one may be another.
        known.name = core::mem::transmute::<[u8; COMM], [u64; 2]>(scratch.record.comm);
        known.pc = scratch.at.pc;
        known.sp = scratch.at.sp;
        known.fp = scratch.at.fp;
        known.uses_fp = scratch.walk.memo.uses_fp;
        known.key = key;
        known.frames = scratch.record.n;
        known.ends = codes::ends_in(scratch.caller.space);
        known.replaced = reads.replaced;
        known.codes = reads.codes.n;
        known.codes_hash = SEED;
        let mut keeping = KeepingCodes {
            walk: known,
            codes: &raw const reads.codes,
        };
        repeat(CODES as u32, keep_code, &mut keeping);
        let known = &mut *keeping.walk;
        #[cfg(not(feature = "legacy"))]
        let taken = take_places(known, reads);
        #[cfg(feature = "legacy")]
        let taken = take_places(known, reads, index, memo);
        if taken.is_none() {
            // Nothing has this.
            known.owner = 0;
        }
        publish(&raw mut known.version, (version | 1).wrapping_add(1));
    }
    set.tags[way as usize] = tag;
    0
}

const _: () = assert!(SETS.is_power_of_two());
const _: () = assert!(SELDOM.is_power_of_two());
