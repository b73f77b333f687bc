//! What the meaning of a process's stacks depends on.

use crate::{caller::Caller, code};

/// The code of a process at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Subject {
    /// Whose memory it is, and the number of the interpreter, whose code is not as other code.
    pub(crate) space: u32,
    pub(crate) interpreter: u32,
    pub(crate) epoch: u64,
    /// 1 if its imports are summarised.
    pub(crate) has_imports: u32,
    /// 1 if the end of each code object is seen.
    pub(crate) has_code_ends: u32,
    /// Changes of the code so far, see `memtrace_common::code_map`; or [`UNKNOWN`].
    pub(crate) sequence: u64,
}

/// Nothing is known of the code.
const UNKNOWN: u64 = u64::MAX;

impl Subject {
    /// That of the caller's process now.
    #[inline(always)]
    pub(crate) fn of(caller: &Caller) -> Self {
        let interpreter = code::interpreter(caller.space);
        Self {
            space: caller.space,
            interpreter,
            epoch: caller.epoch,
            has_imports: code::has_imports(caller.space).into(),
            has_code_ends: code::has_code_ends(caller.space, interpreter).into(),
            sequence: code::sequence(caller.space).unwrap_or(UNKNOWN),
        }
    }

    #[inline(always)]
    pub(crate) fn is_known(&self) -> bool {
        self.sequence != UNKNOWN
    }
}
