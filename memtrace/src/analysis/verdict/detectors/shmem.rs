//! Shared memory: tmpfs, memfd, System V.

use crate::analysis::{
    series::Figure,
    verdict::{
        advice::Advice,
        class::Class,
        evidence::Statement,
        rule::{DESCRIPTION, Description, OfProcess, Rule},
    },
};

pub(super) const CLASS: Description = Description {
    name: "shmem",
    meaning: "shared memory grows",
    mistaken_for: Some(Class::Pinned),
    next: &[Advice::ListShared],
    ..DESCRIPTION
};

static SHARED: Statement = Statement {
    name: "shared_memory",
    sentence: "shared memory {part}",
};

pub(super) const PART: Rule<OfProcess> = Rule {
    class: Class::Shmem,
    evidence: "shared memory: RssShmem, without page-locked memory",
    find: OfProcess::Part(|growing| {
        let shared = growing.change(growing.context.series.figure(Figure::Shmem));
        let pinned = super::pinned::share_of(growing);
        let shared = shared - pinned.clamp(0.0, shared.max(0.0));
        let evidence = SHARED.with([("part", growing.amount(shared))]);
        Some(growing.part(Class::Shmem, shared, evidence))
    }),
};
