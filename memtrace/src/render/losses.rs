//! The losses of a recording, in words: each reason that occurred by name.

use std::io::{self, Write};

use crate::{
    recording::Snapshot,
    units::{grouped, plural},
};
use memtrace_common::loss::{Effect, Reason};

const EFFECTS: [(Effect, &str); 6] = [
    (
        Effect::AllocationsLost,
        "allocations lost: totals are lower bounds",
    ),
    (
        Effect::ReleasesLost,
        "releases lost: live figures are upper bounds",
    ),
    (Effect::Untraced, "not traced: its memory is missing"),
    (Effect::StackLost, "counted, but without a complete stack"),
    (
        Effect::NamesLost,
        "counted, but functions lack names or lines",
    ),
    (
        Effect::Filtered,
        "ignored on purpose, or begun before tracing: totals are not affected",
    ),
];

/// What happened, in words.
const fn meaning(reason: Reason) -> &'static str {
    match reason {
        Reason::RingFullAlloc => "allocations while the ring buffer was full",
        Reason::RingFullFree => "releases while the ring buffer was full",
        Reason::RingFullLifecycle => "forks, execs and exits while the ring buffer was full",
        Reason::RingFullStack => "new stacks while the ring buffer was full",
        Reason::ThreadTableFull => "allocations while the table of threads was full",
        Reason::NestingTooDeep => "allocation functions nested too deeply",
        Reason::NoReturn => "allocation functions that never returned (longjmp, a C++ exception)",
        Reason::OutPointerUnreadable => {
            "results of posix_memalign and its like that could not be read"
        }
        Reason::ProcessTableFull => {
            "children that were not traced because the table of processes was full"
        }
        Reason::StopFailed => "threads that could not be stopped before their library ran",
        Reason::ScratchBusy => {
            "stack walks without working space: too many threads were preempted in theirs"
        }
        Reason::StackUnreadable => "stacks that end at unreadable memory",
        Reason::ProgramSkipped => {
            "events, of any process, that the kernel skipped because another tracing program ran"
        }
        Reason::BeganBeforeAttach => "calls that began before the recording",
        Reason::NotTraced => "calls in processes that are not traced",
        Reason::UnknownFree => {
            "releases of blocks from before the recording, or of the allocator's own"
        }
        Reason::AddressReused => "addresses that were given out again without a release in between",
        Reason::UnknownStack => "allocations whose stack never arrived",
        Reason::Undecodable => "records that could not be decoded",
        Reason::SegmentLengthUnknown => "shared memory segments of unknown length",
        Reason::AttachFailed => "processes and libraries whose probes could not be set",
        Reason::StackTruncated => "stacks with more frames than are kept",
        Reason::OutcomeLost => "reallocs, munmaps and mremaps whose outcome never arrived",
        Reason::NotStopped => "processes and libraries that ran while their probes were being set",
        Reason::StackNoMapping => "stacks that end outside every known executable mapping",
        Reason::StackNoTable => "stacks that end in a file whose unwind tables are not loaded",
        Reason::StackNoRow => "stacks that end in code that its file's unwind tables leave out",
        Reason::StackUnsupportedRule => "stacks that end at unsupported call frame information",
        Reason::StackStale => "stacks that end because mappings were changing",
        Reason::StackBadFramePointer => "stacks that end in code without tables and frame pointers",
        Reason::PythonAmbiguous => {
            "stacks without Python frames, because the thread is in several interpreters"
        }
        Reason::ReturnNotRestored => {
            "returns that a C++ exception met and that could not be restored"
        }
        Reason::ResultMispredicted => {
            "blocks of malloc that were not those at the head of the thread's cache"
        }
        Reason::OperatorNewLeftOut => {
            "libraries whose operator new has no probe, because exceptions could not pass it"
        }
        Reason::FileChanged => "files that kept changing while they were read",
        Reason::Program32Bit => "32-bit programs",
        Reason::NamesBudget => {
            "places in code whose symbols take too much memory or time, or were not read before the end"
        }
    }
}

/// The losses of one effect: what it means for the figures, and each reason that occurred.
pub(super) struct Kind {
    pub(super) effect: &'static str,
    /// How often, what happened, and the name of the reason.
    pub(super) reasons: Vec<(u64, &'static str, &'static str)>,
}

/// `5 of 100 records`.
pub(super) fn records(snapshot: &Snapshot) -> String {
    let dropped = snapshot.emitted.saturating_sub(snapshot.received);
    let all = plural(snapshot.emitted, "record");
    match dropped {
        0 => format!("none of {all}"),
        _ => format!("{} of {all}", grouped(dropped)),
    }
}

/// The losses that occurred, the worst effect first.
pub(super) fn kinds(snapshot: &Snapshot) -> impl Iterator<Item = Kind> {
    let of = |effect: Effect| {
        let lost = snapshot.losses.iter();
        let lost = lost.filter(move |(reason, count)| reason.effect() == effect && *count > 0);
        lost.map(|(reason, count)| (*count, meaning(*reason), reason.name()))
    };
    let kinds = EFFECTS.into_iter().map(move |(effect, words)| Kind {
        effect: words,
        reasons: of(effect).collect(),
    });
    kinds.filter(|kind| !kind.reasons.is_empty())
}

/// Writes the section on losses.
pub(super) fn section(out: &mut impl Write, snapshot: &Snapshot) -> io::Result<()> {
    writeln!(out, "\nLosses\n  {}", records(snapshot))?;
    for kind in kinds(snapshot) {
        writeln!(out, "  {}", kind.effect)?;
        for (count, meaning, name) in kind.reasons {
            writeln!(out, "    {:>11}  {meaning} ({name})", grouped(count))?;
        }
    }
    Ok(())
}

/// The effect of the losses on the totals; `None` if they are exact.
pub(super) fn bounds(snapshot: &Snapshot) -> Option<&'static str> {
    let any = |effect| {
        let mut losses = snapshot.losses.iter();
        losses.any(|(reason, count)| reason.effect() == effect && *count > 0)
    };
    let missing = any(Effect::AllocationsLost) || any(Effect::Untraced);
    match (missing, any(Effect::ReleasesLost)) {
        (false, false) => None,
        (true, false) => {
            Some("Allocations were lost: all figures are LOWER BOUNDS, see Losses below.")
        }
        (false, true) => {
            Some("Releases were lost: live figures are UPPER BOUNDS, see Losses below.")
        }
        (true, true) => Some(
            "Allocations and releases were lost: allocated figures are LOWER BOUNDS, live figures may be off either way, see Losses below.",
        ),
    }
}
