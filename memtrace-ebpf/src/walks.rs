//! Whole walks that were made before, kept by where they began.
//!
//! A walk is determined by the registers where it begins, the meaning of the code, and the words of memory that it reads.
//! So if all those are as they were, the stack is the same one, and nothing needs to be walked. A program that
//! allocates at a few thousand places again and again mostly compares.
//!
//! Any CPU reads and writes the table at any time without a lock: a number that changes with each write shows whether a
//! walk was replaced meanwhile. Only the thread that made a walk finds it.

use core::{
    ffi::c_void,
    sync::atomic::{Ordering, compiler_fence},
};

use aya_ebpf::{helpers::generated::bpf_probe_read_kernel, macros::map, maps::Array};
use memtrace_common::{hash::mix, unwind::End};

use crate::{
    atomic::exchange,
    codes,
    kernel::Task,
    loops::{BREAK, CONTINUE, repeat},
    memory::StackWindow,
    scratch::Scratch,
    subject::Subject,
};

/// Walks in sets, chosen by where a walk begins.
const SETS: u32 = 256;

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

/// A word of the process's memory.
#[derive(Clone, Copy)]
#[repr(C)]
struct Word {
    address: u64,
    value: u64,
}

/// Words of the stack, words of other memory, and code objects that a walk may depend on, if it is to be kept.
const STACK: usize = 256;
const MEMORY: usize = 128;
const CODES: usize = 32;

/// Memory that is copied at once.
#[derive(Clone, Copy)]
#[repr(C)]
struct Piece {
    start: u64,
    len: u64,
}

/// Pieces in which the words of one kind may lie.
const PIECES: usize = 16;

/// A copy of so many bytes takes as long as the call that makes it: words that lie further apart are copied by themselves.
const GAP: u64 = 2048;

/// Words that a walk has read, in its order.
#[repr(C)]
struct Words<const N: usize> {
    n: u64,
    /// How many pieces they lie in, once that was found out.
    pieces: u64,
    piece: [Piece; PIECES],
    word: [Word; N],
}

impl<const N: usize> Words<N> {
    /// False if there is no room.
    #[inline(always)]
    fn push(&mut self, address: u64, value: u64) -> bool {
        let n = self.n;
        if n >= N as u64 {
            return false;
        }
        self.word[n as usize & (N - 1)] = Word { address, value };
        self.n = n + 1;
        true
    }

    /// Finds out in which pieces they lie. False if those are too many.
    #[inline(always)]
    fn divide(&mut self) -> bool {
        self.pieces = 0;
        let mut dividing = Dividing { words: self };
        repeat(N as u32, next_word, &mut dividing);
        // SAFETY: `dividing` was made from this reference.
        unsafe { (*dividing.words).pieces <= PIECES as u64 }
    }

    /// Copies those of a walk.
    #[inline(always)]
    fn copy_from(&mut self, from: &Self) {
        self.n = from.n;
        copy(&mut self.piece, &from.piece, from.pieces);
        copy(&mut self.word, &from.word, from.n);
    }
}

/// The state of [`next_word`].
struct Dividing<const N: usize> {
    words: *mut Words<N>,
}

/// Callback of [`repeat`].
unsafe extern "C" fn next_word<const N: usize>(index: u64, dividing: *mut Dividing<N>) -> u64 {
    // SAFETY: the pointer is that which `divide` passed.
    let words = unsafe { &mut *(*dividing).words };
    if index >= words.n {
        return BREAK;
    }
    let address = words.word[index as usize & (N - 1)].address;
    let last = &mut words.piece[words.pieces.wrapping_sub(1) as usize & (PIECES - 1)];
    let start = last.start.min(address);
    let end = last
        .start
        .wrapping_add(last.len)
        .max(address.wrapping_add(8));
    let len = end.wrapping_sub(start);
    if words.pieces != 0 && len <= StackWindow::BYTES && len.wrapping_sub(last.len) <= GAP {
        *last = Piece { start, len };
        return CONTINUE;
    }
    words.piece[words.pieces as usize & (PIECES - 1)] = Piece {
        start: address,
        len: 8,
    };
    words.pieces += 1;
    CONTINUE
}

/// Everything in memory that a walk depends on.
#[repr(C)]
pub(crate) struct Reads {
    /// 1 if the walk depends on more than this.
    is_open: u64,
    stack: Words<STACK>,
    memory: Words<MEMORY>,
    codes: u64,
    /// Places of [`codes::ends_at`], and how many had ended.
    ends: [Word; CODES],
}

impl Reads {
    /// Begins anew.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.is_open = 0;
        self.stack.n = 0;
        self.memory.n = 0;
        self.codes = 0;
    }

    /// The walk depends on something else as well.
    #[inline(always)]
    pub(crate) fn open(&mut self) {
        self.is_open = 1;
    }

    /// The walk has read a word of the stack. `address`: a multiple of 8.
    #[inline(always)]
    pub(crate) fn stack(&mut self, address: u64, value: u64) {
        if !self.stack.push(address, value) {
            self.open();
        }
    }

    /// The walk has read a word of other memory. `address`: a multiple of 8.
    #[inline(always)]
    pub(crate) fn memory(&mut self, address: u64, value: u64) {
        if !self.memory.push(address, value) {
            self.open();
        }
    }

    /// The walk has met a code object, when this many at such an address had ended.
    #[inline(always)]
    pub(crate) fn code(&mut self, code: u64, ends: u64) {
        let n = self.codes;
        if n >= CODES as u64 {
            self.open();
            return;
        }
        self.ends[n as usize & (CODES - 1)] = Word {
            address: u64::from(codes::end_place(code)),
            value: ends,
        };
        self.codes = n + 1;
    }
}

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
    reads: Reads,
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
pub(crate) extern "C" fn look_up(scratch: *mut Scratch) -> u64 {
    // SAFETY: null, or the caller's claimed map value.
    let Some(scratch) = (unsafe { scratch.as_mut() }) else {
        return 0;
    };
    scratch.walk.stack.clear();
    scratch.walk.replaced = 0;
    let tag = tag(scratch);
    let Some(set) = WALK_SETS.get(set(tag)) else {
        return 0;
    };
    let before = match scratch.walk.before_of == owner(scratch) {
        true => scratch.walk.before as u32,
        false => 0,
    };
    scratch.walk.before = 0;
    let mut expected = follower(before);
    if expected != 0
        && let Some(known) = WALKS.get_ptr(expected - 1)
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
    for way in 0..WAYS {
        let index = index(tag, way);
        if set.tags[way] == tag
            && index + 1 != expected
            && let Some(known) = WALKS.get_ptr(index)
        {
            let key = holds(scratch, known);
            if key > STALE {
                scratch.walk.before = u64::from(index) + 1;
                scratch.walk.before_of = owner(scratch);
                scratch.walk.missed = 0;
                set_follower(before, index + 1);
                return key;
            }
            if key == STALE {
                scratch.walk.replaced = way as u64 + 1;
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
extern "C" fn holds(scratch: *mut Scratch, known: *const Known) -> u64 {
    // SAFETY: null, or the caller's map values.
    let (Some(state), Some(walk)) = (unsafe { (scratch.as_mut(), known.as_ref()) }) else {
        return 0;
    };
    // SAFETY: a reference is valid to read.
    let version = || unsafe { core::ptr::read_volatile(&raw const walk.version) };
    let before = version();
    compiler_fence(Ordering::Acquire);
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
    if !are_same(state, &walk.reads.stack) {
        return 0;
    }
    if walk.reads.codes != 0 && walk.ends != codes::ends_in(state.caller.space) && !have_codes(walk)
    {
        return STALE;
    }
    if walk.reads.memory.n != 0 && !are_same(state, &walk.reads.memory) {
        return 0;
    }
    let (key, frames) = (walk.key, walk.frames);
    let is_named = walk.name == Task::current_name();
    // Everything above was read before this. The processor keeps that order too: it is an x86.
    compiler_fence(Ordering::Acquire);
    if !is_named || version() != before {
        return 0;
    }
    state.record.n = frames;
    state.walk.end = End::Complete;
    key
}

/// The state of [`compare`].
struct Comparing<const N: usize> {
    scratch: *mut Scratch,
    words: *const Words<N>,
    are_same: u64,
}

/// Whether all words are as they were.
#[inline(always)]
fn are_same<const N: usize>(scratch: &mut Scratch, words: &Words<N>) -> bool {
    // Often it was copied for another walk from the same place.
    let (first, window) = (words.piece[0], &mut scratch.walk.stack);
    if !window.is_of(first.start, first.len) {
        window.copy(first.start, first.len);
    }
    scratch.walk.piece = 1;
    let mut comparing = Comparing {
        scratch,
        words,
        are_same: 0,
    };
    repeat((N / AT_ONCE) as u32 + 1, compare, &mut comparing);
    comparing.are_same != 0
}

/// Words that one call of [`compare`] compares.
const AT_ONCE: usize = 16;

/// Callback of [`repeat`].
unsafe extern "C" fn compare<const N: usize>(index: u64, comparing: *mut Comparing<N>) -> u64 {
    // SAFETY: the pointers are those that `are_same` passed.
    let (scratch, words) = unsafe { (&mut *(*comparing).scratch, &*(*comparing).words) };
    let window = &mut scratch.walk.stack;
    let mut at = index * AT_ONCE as u64;
    let mut differs = 0;
    for _ in 0..AT_ONCE {
        if at >= words.n {
            // SAFETY: as above.
            unsafe { (*comparing).are_same = u64::from(differs == 0) };
            return BREAK;
        }
        let word = &words.word[at as usize & (N - 1)];
        if !window.has(word.address) {
            let piece = &words.piece[scratch.walk.piece as usize & (PIECES - 1)];
            scratch.walk.piece += 1;
            if differs != 0 || copy_piece(window, piece.start, piece.len) == 0 {
                return BREAK;
            }
        }
        if !window.has(word.address) {
            return BREAK;
        }
        differs |= window.masked(word.address) ^ word.value;
        at += 1;
    }
    if differs != 0 { BREAK } else { CONTINUE }
}

// VERIFIER: not inlined into each of the steps above.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn copy_piece(window: *mut StackWindow, start: u64, len: u64) -> u64 {
    // SAFETY: null, or part of the caller's claimed map value.
    match unsafe { window.as_mut() } {
        Some(window) => window.copy(start, len).into(),
        None => 0,
    }
}

/// The state of [`compare_codes`].
struct Codes {
    walk: *const Known,
    are_same: u64,
}

/// Whether none of a walk's code objects has ended.
#[inline(always)]
fn have_codes(walk: &Known) -> bool {
    let mut codes = Codes { walk, are_same: 0 };
    repeat(CODES as u32 + 1, compare_codes, &mut codes);
    codes.are_same != 0
}

/// Callback of [`repeat`].
unsafe extern "C" fn compare_codes(index: u64, codes: *mut Codes) -> u64 {
    // SAFETY: the pointers are those that `have_codes` passed.
    let reads = unsafe { &(*(*codes).walk).reads };
    if index >= reads.codes {
        // SAFETY: as above.
        unsafe { (*codes).are_same = 1 };
        return BREAK;
    }
    let ends = &reads.ends[index as usize & (CODES - 1)];
    if codes::ends_at(ends.address as u32) != ends.value {
        return BREAK;
    }
    CONTINUE
}

/// After so many walks of a CPU that were not found, few are kept: a program that has more than there is room for would
/// only replace them before they come again.
const PATIENCE: u64 = 64;
const SELDOM: u64 = 16;

/// Keeps the walk that was just made, whose stack has this key, if it depends on nothing but these.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn store(scratch: *mut Scratch, reads: *mut Reads, key: u64) -> u64 {
    // SAFETY: null, or the caller's claimed map values.
    let (Some(scratch), Some(reads)) = (unsafe { (scratch.as_mut(), reads.as_mut()) }) else {
        return 0;
    };
    let missed = scratch.walk.missed;
    scratch.walk.missed = missed.wrapping_add(1);
    if missed > PATIENCE && missed & (SELDOM - 1) != 0 {
        return 0;
    }
    if reads.is_open != 0 || !reads.stack.divide() || !reads.memory.divide() {
        return 0;
    }
    let tag = tag(scratch);
    let Some(set) = WALK_SETS.get_ptr_mut(set(tag)) else {
        return 0;
    };
    // SAFETY: a live map value; whichever of the writers wins.
    let set = unsafe { &mut *set };
    let way = match scratch.walk.replaced {
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
    let Some(known) = WALKS.get_ptr_mut(index(tag, way as usize)) else {
        return 0;
    };
    // SAFETY: a live map value, which this program owns while the version is odd.
    unsafe {
        let version = core::ptr::read_volatile(&raw const (*known).version);
        if version & 1 != 0 || !exchange(&raw mut (*known).version, version, version | 1) {
            return 0;
        }
        let known = &mut *known;
        known.of = scratch.walk.memo.of;
        known.image = scratch.caller.image;
        known.owner = owner(scratch);
        known.name = Task::current_name();
        known.pc = scratch.at.pc;
        known.sp = scratch.at.sp;
        known.fp = scratch.at.fp;
        known.uses_fp = scratch.walk.memo.uses_fp;
        known.key = key;
        known.frames = scratch.record.n;
        known.ends = codes::ends_in(scratch.caller.space);
        known.reads.stack.copy_from(&reads.stack);
        known.reads.memory.copy_from(&reads.memory);
        known.reads.codes = reads.codes;
        copy(&mut known.reads.ends, &reads.ends, reads.codes);
        compiler_fence(Ordering::Release);
        core::ptr::write_volatile(&raw mut known.version, (version | 1).wrapping_add(1));
    }
    set.tags[way as usize] = tag;
    0
}

/// Copies the first `n` items.
#[inline(always)]
fn copy<T, const N: usize>(to: &mut [T; N], from: &[T; N], n: u64) {
    if n == 0 {
        return;
    }
    // VERIFIER: the mask bounds the length.
    let len = (n.wrapping_sub(1) & (N as u64 - 1)) + 1;
    // SAFETY: both are map values of at least this length.
    unsafe {
        bpf_probe_read_kernel(
            to.as_mut_ptr().cast(),
            (len * size_of::<T>() as u64) as u32,
            from.as_ptr().cast::<c_void>(),
        );
    }
}

const _: () = assert!(SETS.is_power_of_two());
const _: () = assert!(SELDOM.is_power_of_two());
const _: () = assert!(STACK.is_power_of_two());
const _: () = assert!(MEMORY.is_power_of_two());
const _: () = assert!(PIECES.is_power_of_two());
const _: () = assert!(PIECES.is_power_of_two());
const _: () = assert!(CODES.is_power_of_two());
