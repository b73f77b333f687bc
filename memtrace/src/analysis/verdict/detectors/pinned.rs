//! Page-locked host memory of a GPU runtime.

use crate::analysis::{
    series::{Figure, Place},
    verdict::{
        advice::Advice,
        class::Class,
        evidence::Statement,
        rule::{DESCRIPTION, Description, OfProcess, OfSite, Rule},
        shape::Judged,
        subjects::{Growing, steady},
        thresholds::PROCESS_FLOOR,
    },
};

pub(super) const CLASS: Description = Description {
    name: "pinned",
    meaning: "page-locked host memory of a GPU runtime",
    next: &[Advice::PinFewer],
    next_of_site: Some(|_, _, _| Advice::KeepFewerPinned),
    ..DESCRIPTION
};

static PAGE_LOCKED: Statement = Statement {
    name: "page_locked",
    sentence: "page-locked memory {part}",
};

static GROWS: Statement = Statement {
    name: "page_locked_grows",
    sentence: "page-locked host memory {growth} in {length}, {rate}",
};

static NOT_RESIDENT: Statement = Statement {
    name: "not_resident",
    sentence: "resident memory does not show it",
};

pub(super) const PART: Rule<OfProcess> = Rule {
    class: Class::Pinned,
    evidence: "page-locked memory: the layer `pinned`",
    find: OfProcess::Part(|growing| {
        let pinned = share_of(growing);
        let evidence = PAGE_LOCKED.with([("part", growing.amount(pinned))]);
        Some(growing.part(Class::Pinned, pinned, evidence))
    }),
};

pub(super) const UNSHOWN: Rule<OfProcess> = Rule {
    class: Class::Pinned,
    evidence: "the layer `pinned`",
    find: OfProcess::Flat(|judging| {
        let series = judging.context.series;
        let from = judging.context.window.from;
        let judged = Judged::of(&series.times, series.pinned()?, from, PROCESS_FLOOR).ok()?;
        steady(&judged, Class::Pinned, &GROWS, Class::Shmem, &NOT_RESIDENT)
    }),
};

pub(super) const SITE: Rule<OfSite> = Rule {
    class: Class::Pinned,
    evidence: "keeps growing like a leak, in page-locked memory (not taken by an allocator)",
    find: OfSite::Growing(|grown| {
        let grade = grown.leaks()?;
        (grown.place() == Place::Locked).then(|| grown.leak(grade))
    }),
};

/// The page-locked part of a process's growth, bytes. It may be shared memory, as with NVIDIA's
/// driver, or of no other kind.
pub(super) fn share_of(growing: &Growing) -> f64 {
    let series = growing.context.series;
    let shared = growing.change(series.figure(Figure::Shmem));
    let room = shared.max(0.0) + growing.residual.max(0.0);
    growing.change(series.pinned()).min(room)
}
