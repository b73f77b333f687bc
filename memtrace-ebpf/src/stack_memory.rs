//! The stack of the current thread, of which walks copy a piece at a time.

use memtrace_common::unwind::Memory;

#[cfg(feature = "legacy")]
use crate::argument::{Argument, As};
use crate::{
    memory::{PAGE, StackWindow, UserMemory, Window},
    scratch::Scratch,
};

/// How far before a requested word a copy of the stack begins: registers are saved below
/// return addresses.
const BEFORE: u64 = 64;

/// The stack. A walk reads two or three words of it per frame, from lower addresses to higher ones.
pub(crate) struct StackMemory {
    window: *mut StackWindow,
    argument: AsStackWindow,
}

/// How a scratch's copy of the stack is passed.
#[cfg(not(feature = "legacy"))]
type AsStackWindow = *mut StackWindow;
#[cfg(feature = "legacy")]
type AsStackWindow = As<Scratch>;

impl Memory for StackMemory {
    #[inline(always)]
    fn read(&self, abs_addr: u64) -> Option<u64> {
        // SAFETY: made from a reference that is not used elsewhere meanwhile.
        let window = unsafe { &mut *self.window };
        window
            .get(abs_addr)
            .or_else(|| (read_stack(self.argument, abs_addr) != 0).then_some(window.read))
    }
}

impl StackMemory {
    /// The stack of the thread that a scratch is used for.
    #[inline(always)]
    pub(crate) fn of(scratch: &mut Scratch) -> Self {
        let window = &raw mut scratch.walk.stack;
        Self {
            window,
            #[cfg(not(feature = "legacy"))]
            argument: window,
            #[cfg(feature = "legacy")]
            argument: scratch.argument(),
        }
    }

    /// The word at an address that is a multiple of 8.
    #[inline(always)]
    pub(crate) fn aligned(&self, abs_addr: u64) -> Option<u64> {
        // SAFETY: as in `read`.
        let window = unsafe { &mut *self.window };
        if window.has(abs_addr) {
            return Some(window.masked(abs_addr));
        }
        (read_stack(self.argument, abs_addr) != 0).then_some(window.read)
    }
}

// VERIFIER: a global function: it is verified once, not wherever the stack is read.
/// Reads a word into `window.read`, and its neighbourhood into the window. 0 if it cannot be read.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn read_stack(window: AsStackWindow, abs_addr: u64) -> u64 {
    // SAFETY: null, or part of the caller's claimed map value.
    #[cfg(not(feature = "legacy"))]
    let window = unsafe { window.as_mut() };
    #[cfg(feature = "legacy")]
    let window = Scratch::of(window).map(|scratch| &mut scratch.walk.stack);
    let Some(window) = window else {
        return 0;
    };
    let page = abs_addr & !(PAGE - 1);
    let start = (abs_addr & !7).wrapping_sub(BEFORE).max(page);
    let len = page.wrapping_add(PAGE).wrapping_sub(start);
    let len = if len > <Window>::BYTES {
        <Window>::BYTES
    } else {
        len
    };
    window.copy(start, len);
    // One that is not aligned, or cannot be read.
    let read = window.get(abs_addr).or_else(|| UserMemory.read(abs_addr));
    window.read = read.unwrap_or(0);
    read.is_some().into()
}
