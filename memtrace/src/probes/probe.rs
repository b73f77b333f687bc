//! One place of a file to be probed, and its representation in a list.

use std::path::Path;

use memtrace_common::{function::Function, thread_cache::ThreadCache};

use crate::arch::ProbeSite;

/// One probed function of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    /// Mangled.
    pub symbol: String,
    /// Other names that lead to the function, sorted.
    pub aliases: Vec<String>,
    /// `index` is 0: the collector gives it.
    pub function: Function,
    /// Start of the function, offset into the file, bytes.
    pub entry_offset: u64,
    /// Place of the probe, offset into the file, bytes.
    pub file_offset: u64,
    /// Whether the outcome matters; the return probe goes to `file_offset` too.
    pub needs_return: bool,
    /// Its return instructions, offsets into the file, if those are probed in place of its return address: a program that
    /// reads this address would find the kernel's.
    pub ends: Vec<u64>,
    pub site: ProbeSite,
    /// Set for glibc's malloc, if the kernel side can look up its result. `slot` is relative to the probe.
    pub thread_cache: Option<ThreadCache>,
    /// Set for a statically defined probe.
    pub usdt: Option<UsdtProbe>,
}

/// One line of the list of probes, ready to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeLine {
    pub library: String,
    pub symbol: String,
    /// Offset into the file of the probe, bytes.
    pub file_offset: u64,
    pub instruction: String,
    pub cost: &'static str,
    pub why: String,
}

/// Properties of a statically defined probe besides its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UsdtProbe {
    /// Locations of its arguments, see [`memtrace_common::usdt`].
    pub cookie: u64,
    /// Offset into the file of the counter of those who look, bytes.
    pub semaphore: Option<u64>,
}

impl Probe {
    /// The cookie from which the kernel side identifies it, with the arguments where they are at its place.
    pub(crate) fn cookie(&self) -> u64 {
        let register = |argument| self.site.arguments.register(argument);
        let here = Function {
            size: register(self.function.size),
            count: register(self.function.count),
            block: register(self.function.block),
            ..self.function
        };
        self.usdt.map_or_else(|| here.cookie(), |usdt| usdt.cookie)
    }

    /// Whether a C++ exception may have to pass the return address that a return probe replaces.
    pub(crate) fn may_throw(&self) -> bool {
        self.needs_return && self.function.may_throw
    }

    /// The probe as a line of a list; `library` is the file as the process sees it.
    pub(crate) fn line(&self, library: &Path) -> ProbeLine {
        let offset = match self.site.offset {
            0 => String::new(),
            offset => format!("+{offset:#x}"),
        };
        ProbeLine {
            library: library.display().to_string(),
            symbol: format!("{}{offset}", self.symbol),
            file_offset: self.file_offset,
            instruction: self.site.instruction.clone(),
            cost: self.site.cost.name(),
            why: match self.thread_cache {
                Some(_) => format!("{}, thread cache found", self.site.why.text()),
                None => self.site.why.text().to_owned(),
            },
        }
    }
}
