//! The words of memory that a walk read, kept so that a later one can compare them quickly.

use memtrace_common::hash::{SEED, mix};

use crate::{
    loops::{BREAK, CONTINUE, repeat},
    memory::StackWindow,
    reads::Words,
    scratch::Scratch,
};

/// Memory that is copied at once.
#[derive(Clone, Copy)]
#[repr(C)]
struct Piece {
    start: u64,
    /// Bytes.
    len: u32,
    /// Words up to its last one.
    until: u32,
    /// Of the values of its words, see [`add`].
    hash: u64,
}

/// Adds a word to the hash of a piece. A processor mixes several words at once: only this multiplication waits for the
/// word before.
#[inline(always)]
fn add(hash: u64, word: u64) -> u64 {
    hash.wrapping_mul(SEED).wrapping_add(mix(0, word))
}

/// The word at an offset.
#[inline(always)]
fn word(window: &StackWindow, offset: &u16) -> u64 {
    // VERIFIER: volatile, or the compiler loads many before it mixes the first, for which it takes too much of the
    // program's stack. SAFETY: references are valid to read.
    unsafe {
        let offset = core::ptr::read_volatile(offset);
        core::ptr::read_volatile(window.word(offset))
    }
}

/// Pieces in which the words of one kind may lie.
const PIECES: usize = 8;

/// A copy of so many bytes takes as long as the call that makes it: words that lie further apart are copied by themselves.
const GAP: u64 = 2048;

/// Where words are, and a hash of their values: many walks are kept, and most of the cost of a comparison is to fetch
/// what it compares with.
#[repr(C)]
pub(crate) struct Places<const N: usize> {
    /// How many words and pieces.
    n: u32,
    pieces: u32,
    piece: [Piece; PIECES],
    /// In words from the start of the piece.
    offset: [u16; N],
}

impl<const N: usize> Places<N> {
    /// Takes those of a walk. False if they lie too far apart.
    #[inline(always)]
    pub(crate) fn take(&mut self, words: &Words<N>) -> bool {
        self.n = words.n as u32;
        self.pieces = 0;
        let mut taking = Taking {
            places: self,
            words,
        };
        repeat(N as u32, next_piece, &mut taking);
        // SAFETY: `taking` was made from this reference.
        let places = unsafe { &mut *taking.places };
        let pieces = places.pieces;
        // From now on the piece of the next word.
        places.pieces = 0;
        repeat(N as u32, next_offset, &mut taking);
        pieces <= PIECES as u32
    }
}

/// The state of the callbacks below.
struct Taking<const N: usize> {
    places: *mut Places<N>,
    words: *const Words<N>,
}

/// Callback of [`repeat`]: finds the piece of a word.
unsafe extern "C" fn next_piece<const N: usize>(index: u64, taking: *mut Taking<N>) -> u64 {
    // SAFETY: the pointers are those that `take` passed.
    let (places, words) = unsafe { (&mut *(*taking).places, &*(*taking).words) };
    if index >= words.n {
        return BREAK;
    }
    let until = index as u32 + 1;
    let address = words.word[index as usize & (N - 1)].address;
    let last = &mut places.piece[places.pieces.wrapping_sub(1) as usize & (PIECES - 1)];
    let start = last.start.min(address);
    let end = (last.start.wrapping_add(last.len.into())).max(address.wrapping_add(8));
    let len = end.wrapping_sub(start);
    if places.pieces != 0 && len <= StackWindow::BYTES && len.wrapping_sub(last.len.into()) <= GAP {
        last.start = start;
        last.len = len as u32;
        last.until = until;
        return CONTINUE;
    }
    let next = &mut places.piece[places.pieces as usize & (PIECES - 1)];
    next.start = address;
    next.len = 8;
    next.until = until;
    next.hash = 0;
    places.pieces += 1;
    CONTINUE
}

/// Callback of [`repeat`]: finds a word's place in its piece, which is complete by now.
unsafe extern "C" fn next_offset<const N: usize>(index: u64, taking: *mut Taking<N>) -> u64 {
    // SAFETY: the pointers are those that `take` passed.
    let (places, words) = unsafe { (&mut *(*taking).places, &*(*taking).words) };
    if index >= words.n {
        return BREAK;
    }
    let word = &words.word[index as usize & (N - 1)];
    let piece = &mut places.piece[places.pieces as usize & (PIECES - 1)];
    places.offset[index as usize & (N - 1)] = (word.address.wrapping_sub(piece.start) >> 3) as u16;
    piece.hash = add(piece.hash, word.value);
    if index + 1 >= piece.until.into() {
        places.pieces += 1;
    }
    CONTINUE
}

/// The state of [`compare`].
struct Comparing<const N: usize> {
    scratch: *mut Scratch,
    places: *const Places<N>,
    are_same: u64,
}

/// Whether all words are as the walk read them.
#[inline(always)]
pub(crate) fn are_same<const N: usize>(scratch: &mut Scratch, places: &Places<N>) -> bool {
    if places.n == 0 {
        return true;
    }
    // Often it was copied for another walk from the same place.
    let (first, window) = (&places.piece[0], &mut scratch.walk.stack);
    let len = first.len.into();
    if !window.is_of(first.start, len) && !window.copy(first.start, len) {
        return false;
    }
    if places.pieces == 1 && places.n <= AT_ONCE as u32 {
        return first_hash(scratch, places) == first.hash;
    }
    scratch.walk.piece = 0;
    scratch.walk.hash = 0;
    let mut comparing = Comparing {
        scratch,
        places,
        are_same: 0,
    };
    repeat((N / AT_ONCE) as u32 + 1, compare, &mut comparing);
    comparing.are_same != 0
}

/// The present hash of words that are no more than this, and lie in one piece.
#[inline(always)]
fn first_hash<const N: usize>(scratch: &Scratch, places: &Places<N>) -> u64 {
    let mut hash = 0u64;
    for number in 0..AT_ONCE {
        if number as u32 >= places.n {
            break;
        }
        hash = add(hash, word(&scratch.walk.stack, &places.offset[number]));
    }
    hash
}

/// Words that one call of [`compare`] compares.
const AT_ONCE: usize = 16;

/// Callback of [`repeat`].
unsafe extern "C" fn compare<const N: usize>(index: u64, comparing: *mut Comparing<N>) -> u64 {
    // SAFETY: the pointers are those that `are_same` passed.
    let (scratch, places) = unsafe { (&mut *(*comparing).scratch, &*(*comparing).places) };
    let mut at = index * AT_ONCE as u64;
    let mut piece = &places.piece[scratch.walk.piece as usize & (PIECES - 1)];
    let mut hash = scratch.walk.hash;
    // Mostly all are of one piece.
    if at + AT_ONCE as u64 <= piece.until.into() {
        let offsets = &places.offset[at as usize & (N - AT_ONCE)..][..AT_ONCE];
        for offset in offsets {
            hash = add(hash, word(&scratch.walk.stack, offset));
        }
        scratch.walk.hash = hash;
        return CONTINUE;
    }
    for _ in 0..AT_ONCE {
        if at >= u64::from(places.n) {
            // SAFETY: as above.
            unsafe { (*comparing).are_same = u64::from(hash == piece.hash) };
            return BREAK;
        }
        if at >= u64::from(piece.until) {
            if hash != piece.hash {
                return BREAK;
            }
            scratch.walk.piece += 1;
            piece = &places.piece[scratch.walk.piece as usize & (PIECES - 1)];
            hash = 0;
            if copy_piece(&raw mut scratch.walk.stack, piece.start, piece.len.into()) == 0 {
                return BREAK;
            }
        }
        let offset = &places.offset[at as usize & (N - 1)];
        hash = add(hash, word(&scratch.walk.stack, offset));
        at += 1;
    }
    scratch.walk.hash = hash;
    CONTINUE
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

const _: () = assert!(PIECES.is_power_of_two());
