//! Facts about a process that take long to find, so that the store's thread looks for them: Python
//! packages, and the malloc provider.

use std::sync::Arc;

use crate::{
    host::{
        Fact, Redactor, malloc,
        python::{Launch, Scanner},
    },
    ledger::ProcessId,
    process::{maps, memory},
};

/// A lookup for the store's thread.
pub(super) struct Look {
    pub(super) process: ProcessId,
    pub(super) tgid: u32,
    /// Clock ticks after boot.
    pub(super) start_time: u64,
    pub(super) launch: Arc<Launch>,
    /// Paths of the files that it executes.
    pub(super) files: Vec<String>,
}

/// The store's side.
#[derive(Default)]
pub(super) struct Looking {
    scanner: Scanner,
}

impl Looking {
    pub(super) fn look(&mut self, look: &Look, redactor: &Redactor) -> Vec<Fact> {
        let files = look.files.iter().map(String::as_str);
        let mut facts = self
            .scanner
            .facts(look.process, &look.launch, files, redactor);
        let mappings = maps::read(look.tgid).unwrap_or_default();
        let provider = malloc::provider(look.tgid, &mappings);
        // Whether it was still this process.
        let is_same = memory::start_time(look.tgid).is_ok_and(|time| time == look.start_time);
        if is_same {
            facts.extend(malloc::facts(look.process, provider.as_deref(), redactor));
        }
        facts
    }
}
