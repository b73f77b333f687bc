//! Every way in which an event or a stack can be lost, left out or cut short.
//! The kernel side counts in one per-CPU array indexed by [`Reason`], the user
//! side adds its own; a recording holds them all, zero included.

/// What a counter means for the totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Allocations are missing: totals are lower bounds.
    AllocationsLost,
    /// Releases are missing: outstanding totals are upper bounds.
    ReleasesLost,
    /// A process or a part of one was not traced.
    Untraced,
    /// An allocation is counted, its stack is missing or incomplete.
    StackLost,
    /// Left out on purpose, or began before tracing: the totals stand.
    Filtered,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $value:literal, $name:literal, $effect:ident;)*) => {
        /// Why something is missing.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Reason { $($(#[$doc])* $variant = $value,)* }

        impl Reason {
            /// Every reason, in the order in which reports list them.
            pub const ALL: [Reason; { [$($value),*].len() }] = [$(Reason::$variant),*];

            /// Stable name in reports and JSON.
            pub const fn name(self) -> &'static str {
                match self { $(Reason::$variant => $name,)* }
            }

            pub const fn effect(self) -> Effect {
                match self { $(Reason::$variant => Effect::$effect,)* }
            }
        }
    };
}

reasons! {
    /// The ring buffer was full when an allocation was reported.
    RingFullAlloc = 0, "ring_full_alloc", AllocationsLost;
    /// The ring buffer was full when a release was reported.
    RingFullFree = 1, "ring_full_free", ReleasesLost;
    /// The ring buffer was full when a fork, exec, exit or stop was reported.
    RingFullLifecycle = 2, "ring_full_lifecycle", Untraced;
    /// The ring buffer was full when a new stack was reported.
    RingFullStack = 3, "ring_full_stack", StackLost;
    /// The table of threads was full: an allocation could not be followed to its return.
    ThreadTableFull = 4, "thread_table_full", AllocationsLost;
    /// More nested allocation functions than the kernel side keeps, and this one the first of its
    /// layer, so it would count.
    NestingTooDeep = 5, "nesting_too_deep", AllocationsLost;
    /// An allocation function never returned (longjmp, a C++ exception): its outcome is unknown.
    NoReturn = 6, "no_return", AllocationsLost;
    /// The out-pointer of posix_memalign and its like could not be read.
    OutPointerUnreadable = 7, "out_pointer_unreadable", AllocationsLost;
    /// The table of traced processes was full: a child is not traced.
    ProcessTableFull = 8, "process_table_full", Untraced;
    /// A thread could not be stopped by a signal: its library ran before it was probed.
    StopFailed = 9, "stop_failed", Untraced;
    /// No scratch space on the CPU for the stack walk.
    ScratchBusy = 10, "scratch_busy", StackLost;
    /// A stack ends at memory that could not be read.
    StackUnreadable = 11, "stack_unreadable", StackLost;
    /// The kernel skipped a program because another was running on the CPU.
    ProgramSkipped = 12, "program_skipped", AllocationsLost;
    /// A return whose call began before tracing did.
    BeganBeforeAttach = 13, "began_before_attach", Filtered;
    /// A probed function ran in a process that is not traced (`--no-follow`).
    NotTraced = 14, "not_traced", Filtered;
    /// User side: a release of an address that is not outstanding: allocated before attach, or
    /// the allocator's own (glibc empties an ending thread's cache by `free`).
    UnknownFree = 15, "unknown_free", Filtered;
    /// User side: an address was handed out again without a release seen: the old entry was replaced.
    AddressReused = 16, "address_reused", ReleasesLost;
    /// User side: an allocation referred to a stack that never arrived.
    UnknownStack = 17, "unknown_stack", StackLost;
    /// User side: a record could not be decoded.
    Undecodable = 18, "undecodable", AllocationsLost;
    /// User side: the length of an attached shared memory segment could not be found.
    SegmentLengthUnknown = 19, "segment_length_unknown", AllocationsLost;
    /// User side: probes could not be attached to a process or library.
    AttachFailed = 20, "attach_failed", Untraced;
    /// A stack had more frames than are kept.
    StackTruncated = 21, "stack_truncated", StackLost;
    /// User side: a realloc, munmap or mremap whose outcome never arrived.
    OutcomeLost = 22, "outcome_lost", ReleasesLost;
    /// A child, a new program or the opener of an unknown library ran on while its probes were being
    /// set: `--no-stop`, another debugger traces it, or memtrace itself was stopped or too slow.
    NotStopped = 23, "not_stopped", Untraced;
    /// A stack ends at an address in no known executable mapping.
    StackNoMapping = 24, "stack_no_mapping", StackLost;
    /// A stack ends in a file whose unwind tables are not loaded.
    StackNoTable = 25, "stack_no_table", StackLost;
    /// A stack ends in code that its file's unwind tables leave out.
    StackNoRow = 26, "stack_no_row", StackLost;
    /// A stack ends at call frame information that is not supported.
    StackUnsupportedRule = 27, "stack_unsupported_rule", StackLost;
    /// A stack ends because the process's mappings were changing.
    StackStale = 28, "stack_stale", StackLost;
    /// A stack ends in code that has no tables and keeps no frame pointer.
    StackBadFramePointer = 29, "stack_bad_frame_pointer", StackLost;
    /// A stack without its Python frames: the thread has states in several interpreters.
    PythonAmbiguous = 30, "python_ambiguous", StackLost;
    /// A C++ exception met the return probe of an operator new, and the return address could not be
    /// restored: the process has probably ended.
    ReturnNotRestored = 31, "return_not_restored", AllocationsLost;
    /// User side: an allocator's own operator new was left out, because C++ exceptions could not have
    /// passed its return probe.
    OperatorNewLeftOut = 32, "operator_new_left_out", AllocationsLost;
    /// User side: a mapped file changed again and again while it was read: it has no probes.
    FileChanged = 33, "file_changed", Untraced;
    /// User side: a 32-bit program, of which nothing is recorded.
    Program32Bit = 34, "program_32_bit", Untraced;
}

/// Slots of the kernel's counter array: the reasons, then these.
pub const COUNTER_EMITTED: u32 = Reason::ALL.len() as u32;
/// Total number of counter slots.
pub const COUNTERS: u32 = COUNTER_EMITTED + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_number_the_slots_without_gaps() {
        for (slot, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, slot, "{}", reason.name());
        }
    }
}
