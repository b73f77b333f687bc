//! Everything in memory that a walk depends on.

use crate::codes;

/// A word of the process's memory.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Word {
    pub(crate) address: u64,
    pub(crate) value: u64,
}

/// Words of the stack, words of other memory, and code objects that a walk may depend on, if it is to be kept.
pub(crate) const STACK: usize = 256;
pub(crate) const MEMORY: usize = 128;
pub(crate) const CODES: usize = 32;

/// A return address that a return probe has replaced: the kernel knows the original.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Replaced {
    /// The stack pointer at the entry of the function that returns there; 0: there is none.
    pub(crate) entry: u64,
    pub(crate) original: u64,
}

/// Words that a walk has read, in its order.
#[repr(C)]
pub(crate) struct Words<const N: usize> {
    pub(crate) n: u64,
    pub(crate) word: [Word; N],
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
}

/// See the module.
#[repr(C)]
pub(crate) struct Reads {
    /// 1 if the walk depends on more than this.
    pub(crate) is_open: u64,
    /// 1 if the walk came to the end that a rule gives. Other ends depend on more.
    pub(crate) is_whole: u64,
    pub(crate) stack: Words<STACK>,
    pub(crate) memory: Words<MEMORY>,
    /// One at most: an allocator below another one.
    pub(crate) replaced: Replaced,
    /// Places of [`codes::ends_at`], and how many had ended.
    pub(crate) codes: Words<CODES>,
}

impl Reads {
    /// Begins anew.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.is_open = 0;
        self.is_whole = 0;
        self.stack.n = 0;
        self.memory.n = 0;
        self.replaced.entry = 0;
        self.codes.n = 0;
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

    /// The walk has found the return address at `slot` replaced by `present`.
    #[inline(always)]
    pub(crate) fn return_replaced(&mut self, replaced: Replaced, slot: u64, present: u64) {
        if self.replaced.entry != 0 {
            self.open();
        }
        self.replaced = replaced;
        self.stack(slot, present);
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
        if !self.codes.push(codes::end_place(code).into(), ends) {
            self.open();
        }
    }
}

const _: () = assert!(STACK.is_power_of_two());
const _: () = assert!(MEMORY.is_power_of_two());
const _: () = assert!(CODES.is_power_of_two());
