//! Facts as they are found: bounded, and without hidden characters.

use std::fmt::Display;

use super::{Fact, Redactor};
use crate::{
    escape::{clean, cut},
    ledger::ProcessId,
};

/// Most bytes of a fact's name and value.
const FIELD_AT_MOST: usize = 256;
const VALUE_AT_MOST: usize = 4096;

/// Facts as they are found.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub(super) process: Option<ProcessId>,
    pub(super) redactor: &'a Redactor,
    pub(super) list: Vec<Fact>,
}

impl<'a> Facts<'a> {
    /// For a process, or for the machine.
    pub(crate) fn new(process: Option<ProcessId>, redactor: &'a Redactor) -> Self {
        Self {
            process,
            redactor,
            list: Vec::new(),
        }
    }

    /// Adds a value if it was found and is not empty. Processes choose many of them, and some names too: they are
    /// bounded, and have no hidden characters.
    pub(super) fn add(&mut self, field: &str, value: Option<impl Display>) {
        let Some(value) = value else { return };
        let value = value.to_string();
        let value = value.trim();
        if !value.is_empty() {
            self.list.push(Fact {
                process: self.process,
                field: clean(&cut(field, FIELD_AT_MOST)),
                value: clean(&cut(value, VALUE_AT_MOST)),
            });
        }
    }

    /// The facts, in order of discovery.
    pub(crate) fn into_vec(self) -> Vec<Fact> {
        self.list
    }

    #[cfg(test)]
    pub(crate) fn value(&self, field: &str) -> Option<&str> {
        let fact = self.list.iter().find(|fact| fact.field == field)?;
        Some(&fact.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_bounded_and_show_all_that_they_have() {
        let redactor = Redactor::default();
        let mut facts = Facts::new(None, &redactor);
        facts.add("env.A\u{1b}", Some("x\u{202e}y\n"));
        facts.add(&"n".repeat(1000), Some("v".repeat(1 << 20)));
        let [first, second] = facts.list.as_slice() else {
            panic!("{facts:?}")
        };
        assert_eq!(
            (&*first.field, &*first.value),
            ("env.A\\u{1b}", "x\\u{202e}y")
        );
        assert_eq!(second.field.len(), FIELD_AT_MOST);
        assert_eq!(second.value.len(), VALUE_AT_MOST);
    }
}
