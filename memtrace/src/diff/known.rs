//! The limits of a comparison: whether a missing fact was unset or not recorded, whether two values
//! of a variable differ, and which facts these recordings do not contain.

use std::collections::BTreeSet;

use super::facts::{Values, of};
use crate::{
    recording::variables::{self, ALL, IN_PART, NAMES, UNREADABLE, WITHHELD, hashed, is_hashed},
    units::plural,
};

/// The reason why a side has no value of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// No process there has this variable.
    Unset,
    /// The recording does not show whether a process has this variable.
    Unrecorded,
    /// It could not be read, or does not exist there.
    Unknown,
}

impl Absence {
    /// For people, and in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Absence::Unset => "not set",
            Absence::Unrecorded => "not recorded",
            Absence::Unknown => "not known",
        }
    }
}

/// Something that is not compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// The recording that lacks it; `None` if all do.
    pub run: Option<String>,
    pub what: String,
}

/// The reason why recordings have no value for `field`.
pub(super) fn absence(field: &str, runs: &[Values]) -> Absence {
    match field.starts_with("env.") {
        false => Absence::Unknown,
        true if runs.iter().all(has_all_names) => Absence::Unset,
        true => Absence::Unrecorded,
    }
}

/// Whether a fact differs between two recordings, if both know it.
pub(super) fn differs(field: &str, a: &Values, b: &Values) -> bool {
    let values = [a, b].map(|run| of(run, field));
    if values[0] == values[1] || field == NAMES {
        return false;
    }
    let Some(name) = field.strip_prefix("env.") else {
        return true;
    };
    let any = |is: &dyn Fn(&str) -> bool| values.iter().flatten().any(|value| is(value));
    if !any(&is_unread) {
        return true;
    }
    if values[0].is_empty() || values[1].is_empty() {
        let lacking = if values[0].is_empty() { a } else { b };
        return has_all_names(lacking);
    }
    let [a, b] = values.each_ref().map(|values| in_hashes(name, values));
    !any(&|value| value == WITHHELD) && a != b
}

/// Whether the value of a variable is replaced by a hash or a mark.
pub(crate) fn is_unread(value: &str) -> bool {
    is_hashed(value) || value == WITHHELD
}

/// Whether a field is a variable that differs between sessions for reasons of its own.
pub(crate) fn is_of_session(field: &str) -> bool {
    let name = field.strip_prefix("env.");
    name.is_some_and(variables::is_of_session)
}

fn in_hashes(name: &str, values: &BTreeSet<&str>) -> BTreeSet<String> {
    let values = values.iter().map(|value| match is_hashed(value) {
        true => (*value).to_owned(),
        false => hashed(name, value),
    });
    values.collect()
}

fn has_all_names(run: &Values) -> bool {
    of(run, NAMES) == BTreeSet::from([ALL])
}

/// Facts about the machines and processes that these recordings do not contain.
pub(super) fn gaps<'a>(runs: impl Iterator<Item = (&'a str, &'a Values<'a>)> + Clone) -> Vec<Gap> {
    let mut gaps = Vec::new();
    for (name, values) in runs.clone() {
        let names = of(values, NAMES);
        let lacks = [
            (
                names.is_empty(),
                "names of variables other than those whose values are recorded (older version)",
            ),
            (
                names.contains(UNREADABLE),
                "environment of a process (unreadable)",
            ),
            (
                names.contains(IN_PART),
                "part of the environment of a process (overwritten, not text, or too long)",
            ),
            (
                values.contains_key("python.packages_cut"),
                "some Python packages (too many, or too slow to read)",
            ),
        ];
        let lacks = lacks.into_iter().filter(|(lacks, _)| *lacks);
        gaps.extend(lacks.map(|(_, what)| Gap {
            run: Some(name.to_owned()),
            what: what.to_owned(),
        }));
    }
    let unread = runs.flat_map(|(_, values)| values.iter());
    let unread = unread.filter(|(field, values)| {
        field.starts_with("env.") && values.iter().any(|value| is_unread(value))
    });
    let unread: BTreeSet<&str> = unread.map(|(field, _)| *field).collect();
    let hashes = match unread.len() {
        0 => None,
        count => Some(format!(
            "values of {}, known by at most 16 bits of a hash",
            plural(count as u64, "variable")
        )),
    };
    let files = "content of files (configuration, data, source code), answers of other programs";
    let general = [hashes.as_deref(), Some(files)];
    gaps.extend(general.into_iter().flatten().map(|what| Gap {
        run: None,
        what: what.to_owned(),
    }));
    gaps
}
