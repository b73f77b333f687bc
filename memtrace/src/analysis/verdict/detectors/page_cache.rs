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
    evidence: "pages of files that were mapped before: RssFile",
    find: OfProcess::Part(|growing| {
        // More mappings are live memory.
        let file = growing.change(growing.context.series.figure(Figure::File)) - growing.new_files;
        let evidence = FILES.with([("part", growing.amount(file))]);
        Some(growing.part(Class::PageCache, file, evidence))
    }),
};
