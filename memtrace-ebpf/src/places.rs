//! The words of memory that a walk read, kept so that a later one can compare them quickly.

use memtrace_common::hash::{SEED, mix};

use crate::{
    loops::{BREAK, CONTINUE, repeat},
    memory::StackWindow,
    reads::{MEMORY, STACK, Words},
    scratch::Scratch,
};

/// Memory that is copied at once.
#[derive(Clone, Copy)]
#[repr(C)]
struct Piece {
    start: u64,
    /// Bytes.
    len: u32,
    /// Where in the window its copy begins, in bytes.
    at: u32,
}

impl Piece {
    /// Extends the piece to a word nearby. False if it is too far away.
    #[inline(always)]
    fn take(&mut self, address: u64) -> bool {
        let start = self.start.min(address);
        let end = (self.start.wrapping_add(self.len.into())).max(address.wrapping_add(8));
        let len = end.wrapping_sub(start);
        if len >= StackWindow::PIECE || len.wrapping_sub(self.len.into()) > GAP {
            return false;
        }
        self.start = start;
        self.len = len as u32;
        true
    }

    #[inline(always)]
    fn has(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.len.into()
    }
}

/// A copy of so many bytes takes as long as the call that makes it: words that lie further apart are copied by themselves.
const GAP: u64 = 2048;

/// Pieces in which the words of one kind may lie.
const PIECES: usize = 8;

/// The memory in which words lie.
#[repr(C)]
struct Pieces {
    n: u64,
    piece: [Piece; PIECES],
}

/// Where words are, and a hash of their values: many walks are kept, and most of the cost of a comparison is to fetch
/// what it compares with.
#[repr(C)]
pub(crate) struct Places<const N: usize> {
    /// A multiple of [`GROUP`]: the last word stands for those that are missing.
    n: u64,
    /// Of the values, see [`add`].
    hash: u64,
    pieces: Pieces,
    /// In words from the beginning of the window.
    offset: [u16; N],
}

/// Words that are compared together. `STACK` and `MEMORY` are multiples of it.
const GROUP: usize = 16;

/// Adds a word to a hash. A processor mixes several words at once: only this multiplication waits for the word before.
#[inline(always)]
fn add(hash: u64, word: u64) -> u64 {
    hash.wrapping_mul(SEED).wrapping_add(mix(0, word))
}

impl<const N: usize> Places<N> {
    /// Takes the words of a walk. Their copies begin at `at` in the window. Returns where they end; `None` if the words lie
    /// too far apart.
    #[cfg(not(feature = "legacy"))]
    #[inline(always)]
    pub(crate) fn take(&mut self, words: &Words<N>, at: u64) -> Option<u64> {
        self.n = words.n.wrapping_add(GROUP as u64 - 1) & !(GROUP as u64 - 1);
        self.hash = 0;
        self.pieces.n = 0;
        let mut taking = Taking {
            places: self,
            words,
        };
        repeat(N as u32, next_piece, &mut taking);
        // SAFETY: `taking` was made from this reference.
        let pieces = unsafe { &mut (*taking.places).pieces };
        let end = pieces.arrange(at)?;
        repeat(N as u32, next_offset, &mut taking);
        Some(end)
    }

    /// As above; `step` takes one step for a word by its number, as the functions below do.
    #[cfg(feature = "legacy")]
    #[inline(always)]
    pub(crate) fn take_by(
        &mut self,
        words: &Words<N>,
        at: u64,
        step: impl Fn(u64, u64) -> u64,
    ) -> Option<u64> {
        self.n = words.n.wrapping_add(GROUP as u64 - 1) & !(GROUP as u64 - 1);
        self.hash = 0;
        self.pieces.n = 0;
        for index in 0..N as u64 {
            if step(PIECE, index) != CONTINUE {
                break;
            }
        }
        let end = self.pieces.arrange(at)?;
        for index in 0..N as u64 {
            if step(OFFSET, index) != CONTINUE {
                break;
            }
        }
        Some(end)
    }

    /// A step of [`Places::take_by`].
    #[cfg(feature = "legacy")]
    #[inline(always)]
    pub(crate) fn take_step(&mut self, words: &Words<N>, step: u64, index: u64) -> u64 {
        let mut taking = Taking {
            places: self,
            words,
        };
        // SAFETY: made from references.
        unsafe {
            match step {
                PIECE => next_piece(index, &mut taking),
                _ => next_offset(index, &mut taking),
            }
        }
    }
}

/// Steps of [`Places::take_by`].
#[cfg(feature = "legacy")]
const PIECE: u64 = 0;
#[cfg(feature = "legacy")]
const OFFSET: u64 = 1;

impl Pieces {
    /// Gives the pieces their places, from `at` on. Where they end; `None` if there is no room.
    #[inline(always)]
    fn arrange(&mut self, at: u64) -> Option<u64> {
        let n = self.n;
        if n > PIECES as u64 {
            return None;
        }
        let mut end = at;
        for (number, piece) in self.piece.iter_mut().enumerate() {
            if number as u64 >= n {
                break;
            }
            piece.at = end as u32;
            if end > StackWindow::LAST {
                return None;
            }
            end += u64::from(piece.len);
        }
        Some(end)
    }
}

/// The state of the callbacks below.
struct Taking<const N: usize> {
    places: *mut Places<N>,
    words: *const Words<N>,
}

/// Callback of [`repeat`]: puts a word into a piece.
unsafe extern "C" fn next_piece<const N: usize>(index: u64, taking: *mut Taking<N>) -> u64 {
    // SAFETY: the pointers are those that `take` passed.
    let (places, words) = unsafe { (&mut *(*taking).places, &*(*taking).words) };
    if index >= words.n {
        return BREAK;
    }
    let address = words.word[index as usize & (N - 1)].address;
    let pieces = &mut places.pieces;
    let n = pieces.n;
    for number in 0..PIECES {
        let piece = &mut pieces.piece[number];
        if number as u64 >= n {
            *piece = Piece {
                start: address,
                len: 8,
                at: 0,
            };
            pieces.n = n + 1;
            return CONTINUE;
        }
        if piece.take(address) {
            return CONTINUE;
        }
    }
    pieces.n = PIECES as u64 + 1;
    BREAK
}

/// Callback of [`repeat`]: finds a word's place in its piece, which is complete by now.
unsafe extern "C" fn next_offset<const N: usize>(index: u64, taking: *mut Taking<N>) -> u64 {
    // SAFETY: the pointers are those that `take` passed.
    let (places, words) = unsafe { (&mut *(*taking).places, &*(*taking).words) };
    if index >= places.n {
        return BREAK;
    }
    let last = words.n.wrapping_sub(1);
    let number = if index < last { index } else { last };
    let word = &words.word[number as usize & (N - 1)];
    for piece in &places.pieces.piece {
        if piece.has(word.address) {
            let offset = u64::from(piece.at).wrapping_add(word.address.wrapping_sub(piece.start));
            places.offset[index as usize & (N - 1)] = (offset >> 3) as u16;
            break;
        }
    }
    places.hash = add(places.hash, word.value);
    CONTINUE
}

/// The state of [`compare`].
struct Comparing<const N: usize> {
    scratch: *mut Scratch,
    places: *const Places<N>,
}

/// Whether all words are as the walk read them.
#[inline(always)]
pub(crate) fn are_same<const N: usize>(scratch: &mut Scratch, places: &Places<N>) -> bool {
    let n = places.n;
    if n == 0 {
        return true;
    }
    let (first, window) = (&places.pieces.piece[0], &mut scratch.walk.stack);
    let (at, len) = (first.at.into(), first.len.into());
    // Often it was copied for another walk from the same place.
    let is_there = at == 0 && window.is_of(first.start, len);
    if !is_there && !window.copy_to(at, first.start, len) {
        return false;
    }
    if places.pieces.n > 1 && copy_others(window, &raw const places.pieces) == 0 {
        return false;
    }
    scratch.walk.hash = 0;
    if n <= GROUP as u64 {
        mix_words(scratch, places, 0);
    } else {
        // Not more, whatever a walk that is being replaced has.
        #[cfg(not(feature = "legacy"))]
        let times = n.min(N as u64) / GROUP as u64;
        // VERIFIER: a constant; `compare` knows the end.
        #[cfg(feature = "legacy")]
        let times = N / GROUP;
        let mut comparing = Comparing { scratch, places };
        repeat(times as u32, compare, &mut comparing);
    }
    scratch.walk.hash == places.hash
}

// VERIFIER: a global function.
/// Copies all pieces but the first. 0 if one cannot be read.
#[cfg_attr(not(feature = "legacy"), unsafe(no_mangle))]
#[inline(never)]
extern "C" fn copy_others(window: *mut StackWindow, pieces: *const Pieces) -> u64 {
    // SAFETY: null, or parts of the caller's map values.
    let (Some(window), Some(pieces)) = (unsafe { (window.as_mut(), pieces.as_ref()) }) else {
        return 0;
    };
    let n = pieces.n;
    for number in 1..PIECES {
        if number as u64 >= n {
            break;
        }
        let piece = &pieces.piece[number];
        if !window.copy_to(piece.at.into(), piece.start, piece.len.into()) {
            return 0;
        }
    }
    1
}

/// Callback of [`repeat`].
unsafe extern "C" fn compare<const N: usize>(index: u64, comparing: *mut Comparing<N>) -> u64 {
    // SAFETY: the pointers are those that `are_same` passed.
    let (scratch, places) = unsafe { (&mut *(*comparing).scratch, &*(*comparing).places) };
    #[cfg(feature = "legacy")]
    if index * GROUP as u64 >= places.n {
        return BREAK;
    }
    mix_words(scratch, places, index as usize * GROUP);
    CONTINUE
}

/// Adds some of the words in the window, from number `from` on, to the hash.
#[inline(always)]
fn mix_words<const N: usize>(scratch: &mut Scratch, places: &Places<N>, from: usize) {
    let mut hash = scratch.walk.hash;
    for offset in &places.offset[from & (N - GROUP)..][..GROUP] {
        // VERIFIER: volatile, or the compiler loads many before it mixes the first, for which it takes too much of the
        // program's stack. SAFETY: references are valid to read.
        let word = unsafe {
            let offset = core::ptr::read_volatile(offset);
            core::ptr::read_volatile(scratch.walk.stack.word(offset))
        };
        hash = add(hash, word);
    }
    scratch.walk.hash = hash;
}

const _: () = assert!(GROUP.is_power_of_two());
const _: () = assert!(STACK.is_multiple_of(GROUP) && MEMORY.is_multiple_of(GROUP));
