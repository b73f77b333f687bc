//! The facts of a recording, by field.

use std::collections::{BTreeMap, BTreeSet};

/// The values of each field in one recording.
pub(super) type Values<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

pub(super) fn values(facts: &[(String, String)]) -> Values<'_> {
    let mut values = Values::new();
    // A state at the end, not a setting.
    let settings = facts
        .iter()
        .filter(|(field, _)| field != "descriptors.most");
    for (field, value) in settings {
        values.entry(field).or_default().insert(value);
    }
    values
}

/// The values of one field.
pub(super) fn of<'a>(values: &Values<'a>, field: &str) -> BTreeSet<&'a str> {
    values.get(field).cloned().unwrap_or_default()
}
