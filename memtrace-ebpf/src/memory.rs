//! Reading the memory of the current thread.
//!
//! Each read is a call of a helper with its own checks, which mostly do not depend on the size, so nearby words are
//! copied at once.

use core::{ffi::c_void, mem::MaybeUninit};

use aya_ebpf::helpers::{bpf_probe_read_user, generated};
use memtrace_common::unwind::Memory;

/// All of it, a word at a time.
pub(crate) struct UserMemory;

impl Memory for UserMemory {
    #[inline(always)]
    fn read(&self, abs_addr: u64) -> Option<u64> {
        // SAFETY: the helper checks the address and fails on a bad one.
        unsafe { bpf_probe_read_user(abs_addr as *const u64) }.ok()
    }
}

/// A word of the process; 0 where it cannot be read.
#[inline(always)]
pub(crate) fn word_or_zero(abs_addr: u64) -> u64 {
    let mut word = MaybeUninit::<u64>::uninit();
    // VERIFIER: the result is not tested, which would double the paths: if it fails, the helper writes zeroes. SAFETY:
    // there is room for one; the helper checks the source.
    unsafe {
        generated::bpf_probe_read_user(
            word.as_mut_ptr().cast(),
            size_of::<u64>() as u32,
            abs_addr as *const c_void,
        );
        word.assume_init()
    }
}

/// A copy of memory, of as many bytes as `N` words have.
#[repr(C)]
pub(crate) struct Window<const N: usize = WORDS> {
    start: u64,
    /// Bytes from `start` on that were copied.
    len: u64,
    /// The word that [`crate::stack_memory`] has read last.
    pub(crate) read: u64,
    words: [u64; N],
}

/// Some frames of a stack: the cost of a copy hardly depends on its length, so copies are few and long.
const WORDS: usize = 256;

/// Room for all memory that a walk depends on, which is copied where it is expected to be unchanged.
const STACK_WORDS: usize = 4096;

/// A copy of a stack, and of other memory behind it.
pub(crate) type StackWindow = Window<STACK_WORDS>;

impl<const N: usize> Window<N> {
    /// Bytes that a copy can have.
    pub(crate) const BYTES: u64 = N as u64 * 8;

    /// Forgets the copy.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// The copied word at `abs_addr`; `None` if it is not among those.
    #[inline(always)]
    pub(crate) fn get(&self, abs_addr: u64) -> Option<u64> {
        let offset = abs_addr.wrapping_sub(self.start);
        // VERIFIER: volatile, or the compiler drops the mask of an index whose bound it knows.
        // SAFETY: a reference is valid to read.
        let len = unsafe { core::ptr::read_volatile(&raw const self.len) };
        (offset < len && offset & 7 == 0).then(|| self.words[(offset >> 3) as usize & (N - 1)])
    }

    /// Whether the word at `abs_addr` was copied.
    #[inline(always)]
    pub(crate) fn has(&self, abs_addr: u64) -> bool {
        abs_addr.wrapping_sub(self.start) < self.len
    }

    /// The word at `index`, whether or not it was copied.
    #[inline(always)]
    pub(crate) fn word(&self, index: u16) -> &u64 {
        &self.words[index as usize & (N - 1)]
    }

    /// Whether it is a copy of just this.
    #[inline(always)]
    pub(crate) fn is_of(&self, start: u64, len: u64) -> bool {
        self.start == start && self.len == len
    }

    /// The word at `abs_addr`, which was copied.
    #[inline(always)]
    pub(crate) fn masked(&self, abs_addr: u64) -> u64 {
        self.words[(abs_addr.wrapping_sub(self.start) >> 3) as usize & (N - 1)]
    }

    /// Copies `len` bytes, or [`Window::BYTES`] if that is less. False, and nothing, if they cannot be
    /// read.
    #[inline(always)]
    pub(crate) fn copy(&mut self, start: u64, len: u64) -> bool {
        let copied = copy(&mut self.words, start, len);
        self.start = start;
        self.len = if copied { len.min(Self::BYTES) } else { 0 };
        copied
    }
}

impl StackWindow {
    /// A piece, copied beside others, has fewer bytes; a power of two.
    pub(crate) const PIECE: u64 = 8192;

    /// Where the last piece may begin.
    pub(crate) const LAST: u64 = Self::BYTES - Self::PIECE;

    /// Copies `len` bytes to the offset `at`. False if they cannot be read, or there is no room. Only the copy at offset
    /// 0 is found by address.
    #[inline(always)]
    pub(crate) fn copy_to(&mut self, at: u64, start: u64, len: u64) -> bool {
        // VERIFIER: read back, as in `copy`.
        // SAFETY: a reference is valid to read.
        let at = unsafe { core::ptr::read_volatile(&raw const at) };
        if at > Self::LAST {
            return false;
        }
        // SAFETY: as above.
        let len = unsafe { core::ptr::read_volatile(&raw const len) } & (Self::PIECE - 1);
        // The piece may come from a walk that is being replaced, and lie where it should not.
        if at < self.len {
            self.len = at;
        }
        // SAFETY: there is room for `len` bytes; the helper checks the source.
        let copied = unsafe {
            let to = self.words.as_mut_ptr().cast::<u8>().add(at as usize);
            generated::bpf_probe_read_user(to.cast(), len as u32, start as *const c_void) == 0
        };
        if at == 0 {
            self.start = start;
            self.len = if copied { len } else { 0 };
        }
        copied
    }
}

/// Copies `len` bytes, or as many as `to` has if that is less. False if they cannot be read.
#[inline(always)]
pub(crate) fn copy<T: Copy, const N: usize>(to: &mut [T; N], from: u64, len: u64) -> bool {
    // VERIFIER: read back, so that the compiler cannot take the bound apart from the value.
    // SAFETY: a reference is valid to read.
    let len = unsafe { core::ptr::read_volatile(&raw const len) };
    let most = size_of::<[T; N]>() as u64;
    let len = if len > most { most } else { len };
    // SAFETY: there is room for `len` bytes; the helper checks the source.
    unsafe {
        generated::bpf_probe_read_user(to.as_mut_ptr().cast(), len as u32, from as *const c_void)
            == 0
    }
}

/// The least size of a page on any machine: if one byte of it can be read, all can.
pub(crate) const PAGE: u64 = 4096;
