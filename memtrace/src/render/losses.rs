//! The losses of a recording, in words: each reason that occurred by name.

use std::io::{self, Write};

use crate::{
    recording::Snapshot,
    units::{grouped, plural},
};
use memtrace_common::loss::Effect;

const EFFECTS: [(Effect, &str); 5] = [
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
        Effect::Filtered,
        "ignored on purpose, or begun before tracing: totals are not affected",
    ),
];

/// Writes the section on losses.
pub(super) fn section(out: &mut impl Write, snapshot: &Snapshot) -> io::Result<()> {
    let dropped = snapshot.emitted.saturating_sub(snapshot.received);
    let all = plural(snapshot.emitted, "record");
    match dropped {
        0 => writeln!(out, "\nLosses\n  none of {all}")?,
        _ => writeln!(out, "\nLosses\n  {} of {all}", grouped(dropped))?,
    }
    for (effect, words) in EFFECTS {
        let mut lost = snapshot
            .losses
            .iter()
            .filter(|(reason, count)| reason.effect() == effect && *count > 0)
            .peekable();
        if lost.peek().is_some() {
            writeln!(out, "  {words}")?;
        }
        for (reason, count) in lost {
            let meaning = reason.meaning().trim_end_matches('.');
            writeln!(
                out,
                "    {:>11}  {meaning} ({})",
                grouped(*count),
                reason.name()
            )?;
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
