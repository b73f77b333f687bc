//! Every way in which an event or a stack can be lost, left out or cut short.
//! The kernel side counts in an array for each CPU, indexed by [`Reason`], the user
//! side adds its own; a recording holds them all, zero included.

/// The effect of a loss on the totals.
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
    /// An allocation is counted, a function of its stack has no name, or no line.
    NamesLost,
    /// Left out on purpose, or began before tracing: the totals stand.
    Filtered,
}

/// From here on the user side counts.
const USER: u32 = 1 << 16;

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $value:expr, $name:literal, $effect:ident;)*) => {
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

            /// Slot of the kernel side's array; `None`: the user side counts it.
            pub const fn slot(self) -> Option<u32> {
                if (self as u32) < USER { Some(self as u32) } else { None }
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
    UnknownFree = USER, "unknown_free", Filtered;
    /// User side: an address was handed out again without a release seen: the old entry was replaced.
    AddressReused = USER + 1, "address_reused", ReleasesLost;
    /// User side: an allocation referred to a stack that never arrived.
    UnknownStack = USER + 2, "unknown_stack", StackLost;
    /// User side: a record could not be decoded.
    Undecodable = USER + 3, "undecodable", AllocationsLost;
    /// User side: the length of an attached shared memory segment could not be found.
    SegmentLengthUnknown = USER + 4, "segment_length_unknown", AllocationsLost;
    /// User side: probes could not be attached to a process or library.
    AttachFailed = USER + 5, "attach_failed", Untraced;
    /// A stack had more frames than are kept.
    StackTruncated = 15, "stack_truncated", StackLost;
    /// User side: a realloc, munmap or mremap whose outcome never arrived.
    OutcomeLost = USER + 6, "outcome_lost", ReleasesLost;
    /// A child, a new program or the opener of an unknown library ran on while its probes were being
    /// set: `--no-stop`, another debugger traces it, or memtrace itself was stopped or too slow.
    NotStopped = 16, "not_stopped", Untraced;
    /// A stack ends at an address in no known executable mapping.
    StackNoMapping = 17, "stack_no_mapping", StackLost;
    /// A stack ends in a file whose unwind tables are not loaded.
    StackNoTable = 18, "stack_no_table", StackLost;
    /// A stack ends in code that its file's unwind tables leave out.
    StackNoRow = 19, "stack_no_row", StackLost;
    /// A stack ends at call frame information that is not supported.
    StackUnsupportedRule = 20, "stack_unsupported_rule", StackLost;
    /// A stack ends because the process's mappings were changing.
    StackStale = 21, "stack_stale", StackLost;
    /// A stack ends in code that has no tables and keeps no frame pointer.
    StackBadFramePointer = 22, "stack_bad_frame_pointer", StackLost;
    /// A stack without its Python frames: the thread has states in several interpreters.
    PythonAmbiguous = 23, "python_ambiguous", StackLost;
    /// A C++ exception met the return probe of an operator new, and the return address could not be
    /// restored: the process has probably ended.
    ReturnNotRestored = 24, "return_not_restored", AllocationsLost;
    /// malloc gave another block than the thread's cache of free blocks had: a few blocks may have wrong addresses.
    ResultMispredicted = 25, "result_mispredicted", AllocationsLost;
    /// User side: an allocator's own operator new was left out, because C++ exceptions could not have
    /// passed its return probe.
    OperatorNewLeftOut = USER + 7, "operator_new_left_out", AllocationsLost;
    /// User side: a mapped file changed again and again while it was read: it has no probes.
    FileChanged = USER + 8, "file_changed", Untraced;
    /// User side: a 32-bit program, for which nothing is recorded.
    Program32Bit = USER + 9, "program_32_bit", Untraced;
    /// User side: a place in code whose symbols take too much memory or time to read, or were not read before the
    /// end.
    NamesBudget = USER + 10, "names_budget", NamesLost;
}

/// Reasons that the kernel side counts: one slot of its array each, then these.
pub const COUNTER_EMITTED: u32 = {
    let (mut at, mut slots) = (0, 0);
    while at < Reason::ALL.len() {
        let reason = Reason::ALL[at] as u32;
        if reason < USER {
            assert!(
                reason == slots,
                "the kernel side's reasons number its slots without gaps"
            );
            slots += 1;
        }
        at += 1;
    }
    slots
};
/// Total number of counter slots.
pub const COUNTERS: u32 = COUNTER_EMITTED + 1;

/// Words of a CPU's counters, the value of the COUNTERS_MAP: a power of two, for a mask, and whole cache lines.
pub const COUNTER_WORDS: usize = (COUNTERS as usize).next_power_of_two();
const _: () = assert!(COUNTER_WORDS.is_multiple_of(8));
