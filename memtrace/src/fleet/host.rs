//! A host and its facts.

use std::collections::{BTreeMap, BTreeSet};

/// The values of each field on one host; a process or a recording each may have its own.
pub(crate) type Facts = BTreeMap<String, BTreeSet<String>>;

/// A host.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) grows: bool,
    pub(crate) facts: Facts,
}
