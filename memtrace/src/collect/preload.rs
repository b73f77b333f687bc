//! Processes with the library of `--preload`: the calls of its functions are probed there, and not in the C library.

use super::{Collector, location::ModuleIndex};
use crate::process::preload;

impl Collector {
    /// Whether the program that a process has just begun loads the library, unlike the one before, or the other way round.
    pub(super) fn changes_preload(&mut self, tgid: u32) -> bool {
        let Some(process) = self.processes.get_mut(tgid) else {
            return false;
        };
        let preloads = preload::is_expected(tgid);
        std::mem::replace(&mut process.preloads, preloads) != preloads
    }

    /// A process has mapped a file. If it is the library, and was not expected, the process gets other probes.
    pub(super) fn look_for_preload(&mut self, tgid: u32, index: ModuleIndex) {
        if self.modules.get(index).is_preload
            && let Some(process) = self.processes.get_mut(tgid)
            && !std::mem::replace(&mut process.preloads, true)
            && process.probed
        {
            self.detach_probes(tgid);
            self.probe(tgid);
        }
    }

    /// Whether a process has probes elsewhere for the functions of a file.
    pub(super) fn is_replaced(&self, tgid: u32, index: ModuleIndex) -> bool {
        let preloads = self
            .processes
            .get(tgid)
            .is_some_and(|process| process.preloads);
        preloads && self.modules.get(index).is_libc
    }
}
