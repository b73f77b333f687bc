//! The location of a frame, by the recording's numbers of files and code objects.

/// Number of a file; the kernel side's number of it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ModuleIndex(pub(super) u32);

/// A distinct code object of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct CodeId(pub(super) u32);

/// The location of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Location {
    /// Offset in a file, bytes.
    File(ModuleIndex, u64),
    /// In code that no file holds (generated code).
    Anonymous {
        tgid: u32,
        /// The program that the process ran.
        image: u64,
        abs_addr: u64,
    },
    /// Code object, and line if known.
    Python(CodeId, Option<u32>),
    /// Absolute address of a code object whose record was lost.
    UnknownPython(u64),
    /// Absolute address that is not mapped executable, as far as known.
    Unmapped(u64),
}
