//! Compares the documents on verdicts with the rules: the tables in `docs/reference/verdict-rules.md`, and the classes in
//! `docs/verdicts.md`.

use super::{
    Class,
    detectors::{PROCESS, SITE},
    rule::Question,
};

const DOCUMENT: &str = include_str!("../../../../docs/reference/verdict-rules.md");
const FOR_USERS: &str = include_str!("../../../../docs/verdicts.md");

/// Both tables, as they stand in the document: of a process, and of a site.
fn tables() -> [String; 2] {
    [
        table("question", PROCESS),
        table("the site, over the recording", SITE),
    ]
}

fn table<F>(first: &str, questions: &[Question<F>]) -> String {
    let mut table = format!("| {first} | evidence | class |\n|---|---|---|\n");
    for question in questions {
        let mut asks = question.asks;
        // Rules with the same evidence share a row.
        for same in question.rules.chunk_by(|a, b| a.evidence == b.evidence) {
            let classes: Vec<String> = same
                .iter()
                .map(|rule| format!("`{}`", rule.class.name()))
                .collect();
            let evidence = same.first().map_or("", |rule| rule.evidence);
            table += &format!("| {asks} | {evidence} | {} |\n", classes.join(", "));
            // Shown once.
            asks = "";
        }
    }
    table
}

#[test]
fn the_document_has_the_rules_as_they_are() {
    for table in tables() {
        assert!(
            DOCUMENT.contains(&table),
            "docs/reference/verdict-rules.md does not contain this table; put it there:\n\n{table}"
        );
    }
}

#[test]
fn users_read_what_to_do_about_each_class() {
    for class in Class::ALL {
        let row = format!("\n| `{}` | ", class.name());
        assert!(FOR_USERS.contains(&row), "docs/verdicts.md lacks{row}");
    }
}

#[test]
fn every_class_has_a_rule_and_a_name_of_its_own() {
    let of_process = PROCESS.iter().flat_map(|question| question.rules);
    let of_process: Vec<Class> = of_process.map(|rule| rule.class).collect();
    for (index, class) in Class::ALL.iter().enumerate() {
        assert!(of_process.contains(class), "{class:?}");
        let others = Class::ALL[..index].iter();
        assert!(!class.name().is_empty());
        assert!(others.into_iter().all(|other| other.name() != class.name()));
    }
}
