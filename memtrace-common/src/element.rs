//! Elements of the kernel side's hash maps, read and written for user space by a program of the kernel side
//! (`memtrace-ebpf/src/elements.rs`). User space describes the operation in a slot of the ELEMENTS map, and runs the
//! program by BPF_PROG_RUN with three arguments: a [`Table`], an [`Operation`] and the slot's index.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::wire::wire_enum;

wire_enum! {
    /// A hash map of the kernel side.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u32)]
    pub enum Table: u32 {
        Processes = 0,
        ThreadsCreated = 1,
        Files = 2,
        Stopped = 3,
        Unwinding = 4,
        Snapshots = 5,
        Logs = 6,
        InterpreterOf = 7,
        Imports = 8,
        CodeEnds = 9,
        Requests = 10,
    }
}

wire_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u32)]
    pub enum Operation: u32 {
        Get = 0,
        Insert = 1,
        Remove = 2,
    }
}

/// Words that suffice for the largest key and for the largest value.
pub const KEY_WORDS: usize = 2;
pub const VALUE_WORDS: usize = 253;

/// Value of the ELEMENTS map.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Element {
    /// 0, or a number of errno(3).
    pub result: u64,
    pub key: [u64; KEY_WORDS],
    pub value: [u64; VALUE_WORDS],
}

const _: () = assert!(size_of::<Element>() == 2048);

/// Slots of the ELEMENTS map: who uses which.
pub mod slot {
    pub const COLLECTOR: u32 = 0;
    /// The process that holds threads.
    pub const HOLDER: u32 = 1;
    pub const COUNT: u32 = 2;
}
