//! Blocks that took the place of others.

use super::*;

static OLDER: Statement = Statement {
    name: "blocks_replace_older_ones",
    sentence: "they took the place of older ones",
};

/// A growing process that nothing is to blame for, and its largest site, whose blocks replace older ones.
fn ring(largest: f64) -> String {
    let mut found = leak();
    let replaces = Evidence {
        kind: &OLDER,
        values: vec![],
        limits: vec![],
        of_runner_up: false,
    };
    found.verdicts = vec![
        verdict(Class::Undetermined, Scope::Process, 2_097_152.0),
        Verdict {
            evidence: vec![replaces],
            ..verdict(Class::Cache, Scope::Site(SITE), largest)
        },
    ];
    found.accounts[0].named.largest = Some((SITE, largest));
    text(&found)
}

#[test]
fn more_than_a_process_grows_by_is_not_what_grows() {
    assert!(!ring(4_194_304.0).contains("grows most"));
    assert!(ring(1_048_576.0).contains("grows most"));
}
