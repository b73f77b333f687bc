//! Pages of mapped files.

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
    name: "page-cache",
    meaning: "resident pages of mapped files",
    next: &[Advice::CleanPages, Advice::DropBehindReader],
    ..DESCRIPTION
};

static FILES: Statement = Statement {
    name: "file_pages",
    sentence: "pages of files {part}",
};

pub(super) const PART: Rule<OfProcess> = Rule {
    class: Class::PageCache,
    evidence: "pages of files: RssFile",
    find: OfProcess::Part(|growing| {
        let file = growing.change(growing.context.series.figure(Figure::File));
        let evidence = FILES.with([("part", growing.amount(file))]);
        Some(growing.part(Class::PageCache, file, evidence))
    }),
};
