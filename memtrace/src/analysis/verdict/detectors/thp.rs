//! Huge pages around little data.

use crate::analysis::{
    series::Figure,
    verdict::{
        advice::Advice,
        class::Class,
        evidence::Statement,
        rule::{DESCRIPTION, Description, OfProcess, Rule},
        subjects::{Part, grade_of},
        thresholds::OF_RESIDUAL,
    },
};

pub(super) const CLASS: Description = Description {
    name: "thp",
    meaning: "huge pages that hold little data",
    mistaken_for: Some(Class::Retention),
    next: &[Advice::DisableHugePages, Advice::SetHugePagesOfAllocator],
    ..DESCRIPTION
};

static HUGE: Statement = Statement {
    name: "huge_pages",
    sentence: "huge pages (AnonHugePages) {part}, while live allocations do not explain {rest}",
};

pub(super) const UNEXPLAINED: Rule<OfProcess> = Rule {
    class: Class::Thp,
    evidence: "at least half of it is huge pages (AnonHugePages), and not an allocator's free memory",
    find: OfProcess::Unexplained(|growing| {
        let huge = growing.of_anonymous(Figure::HugePages);
        // Memory that was in use is resident with pages of any size.
        let unused = growing.residual - growing.retained();
        (huge.min(unused) >= OF_RESIDUAL * growing.residual).then(|| {
            let evidence = HUGE.with([
                ("part", growing.amount(huge)),
                ("rest", growing.amount(growing.residual)),
            ]);
            Part {
                grade: grade_of(huge / growing.growth),
                ..growing.part(Class::Thp, huge.min(growing.residual), evidence)
            }
        })
    }),
};
