//! How to read the arguments and the result of a probed function. Two generic
//! programs (entry, return) serve every function; what differs travels as the
//! probe's cookie, so a new allocator is a row of data, not new kernel code.

use crate::Layer;

/// What a call does to the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    /// Gives a block.
    Alloc = 1,
    /// Takes a block back; needs no return probe.
    Free = 2,
    /// Takes a block and gives another (or the same).
    Realloc = 3,
}

/// Where the result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// The returned value is the address; 0 means failure.
    Pointer = 0,
    /// The returned value is an error code, 0 for success; the address was
    /// written where the first argument points.
    ErrorAndOutPointer = 1,
}

/// Marks an argument that a function does not have.
pub const NO_ARGUMENT: u8 = 15;

/// Description of one probed function. Arguments are indices of the platform's
/// integer argument registers, 0 to 5, or [`NO_ARGUMENT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    pub operation: Operation,
    pub layer: Layer,
    pub outcome: Outcome,
    /// Argument that holds the size in bytes.
    pub size: u8,
    /// Argument that multiplies the size (calloc, reallocarray).
    pub count: u8,
    /// Argument that holds the block to take.
    pub block: u8,
    /// Number of the probed function, so that no two have the same cookie: the kernel
    /// side tells by it a tail call from a call that never returned.
    pub index: u16,
}

impl Function {
    /// Packs the description into a probe's cookie; never 0.
    pub const fn cookie(self) -> u64 {
        self.operation as u64
            | (self.layer as u64) << 4
            | (self.outcome as u64) << 8
            | ((self.size & 15) as u64) << 12
            | ((self.count & 15) as u64) << 16
            | ((self.block & 15) as u64) << 20
            | (self.index as u64) << 32
    }
}

/// A cookie taken apart on the kernel side, where a failed decode would only
/// cost instructions: the user side packs it, nobody else.
#[derive(Clone, Copy)]
pub struct Cookie(pub u64);

impl Cookie {
    /// An [`Operation`] as integer.
    pub const fn operation(self) -> u8 {
        self.0 as u8 & 15
    }
    /// A [`Layer`] as integer.
    pub const fn layer(self) -> u8 {
        (self.0 >> 4) as u8 & 15
    }
    /// An [`Outcome`] as integer.
    pub const fn outcome(self) -> u8 {
        (self.0 >> 8) as u8 & 15
    }
    pub const fn size(self) -> u8 {
        (self.0 >> 12) as u8 & 15
    }
    pub const fn count(self) -> u8 {
        (self.0 >> 16) as u8 & 15
    }
    pub const fn block(self) -> u8 {
        (self.0 >> 20) as u8 & 15
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_gives_back_what_was_packed() {
        let calloc = Function {
            operation: Operation::Alloc,
            layer: Layer::Heap,
            outcome: Outcome::ErrorAndOutPointer,
            size: 1,
            count: 5,
            block: NO_ARGUMENT,
            index: 0xbeef,
        };
        let cookie = Cookie(calloc.cookie());
        assert_eq!(cookie.operation(), Operation::Alloc as u8);
        assert_eq!(cookie.layer(), Layer::Heap as u8);
        assert_eq!(cookie.outcome(), Outcome::ErrorAndOutPointer as u8);
        assert_eq!(cookie.size(), 1);
        assert_eq!(cookie.count(), 5);
        assert_eq!(cookie.block(), NO_ARGUMENT);
        assert_eq!(cookie.0 >> 32, 0xbeef);
    }
}
