//! A site of a process over time, and the known facts about its code and its blocks.

use crate::{
    frames::{
        containers::{self, Container},
        is_import,
        known_caches::{self, KnownCache},
        mappings::{self, Use},
        runtime_heaps::{Executable, RuntimeHeap},
    },
    ledger::SiteKey,
    recording::Stack,
};

/// A site that never held this much is not judged on its own.
pub(super) const SITE_FLOOR: u64 = 16 << 10;

/// A site over time.
#[derive(Clone, Debug)]
pub(crate) struct SiteSeries {
    pub key: SiteKey,
    /// Purpose of a mapping; `None` in other layers.
    pub mapping: Option<Use>,
    pub live_bytes: Vec<f64>,
    pub live_count: Vec<f64>,
    /// So far.
    pub alloc_count: Vec<f64>,
    /// When its blocks were last looked through while the process ran.
    pub ages: Option<Ages>,
    /// Free space that its blocks held open when the heap was last looked through, bytes.
    pub holes: f64,
    pub(crate) code: Code,
}

/// Facts derived from the stack of a site.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Code {
    /// The container for which it allocates.
    pub(crate) container: Option<Container>,
    /// Whether it enlarges a block when it is full.
    pub(crate) enlarges: bool,
    /// The cache that it fills.
    pub(crate) cache: Option<&'static KnownCache>,
    pub(crate) is_import: bool,
    /// The runtime whose own code requested the memory.
    pub(crate) runtime: Option<&'static RuntimeHeap>,
}

impl Code {
    pub(super) fn of(stack: Stack, container: Option<Container>, executable: &Executable) -> Code {
        Code {
            container,
            enlarges: containers::enlarges(stack.of_caller()),
            cache: known_caches::filled(stack.frames()),
            is_import: is_import(stack.frames()),
            runtime: executable.runtime_of(stack.of_caller()),
        }
    }
}

/// The purpose of a mapping of a process with this executable.
pub(super) fn made_for(key: SiteKey, stack: Stack, executable: &Executable) -> Use {
    match mappings::of(key.by_allocator, stack.frames()) {
        Use::Program if executable.runtime_of(stack.of_caller()).is_some() => Use::Runtime,
        other => other,
    }
}

/// Ages of a site's blocks, in the buckets of [`crate::ledger::SiteTotals::lifetimes`].
#[derive(Clone, Debug)]
pub(crate) struct Ages {
    /// Seconds since the start of the recording.
    pub time: f64,
    /// Ages of live blocks.
    pub live: Box<[u64]>,
    /// Lifetimes of the blocks freed until then.
    pub freed: Box<[u64]>,
}

impl Ages {
    /// These, and those of another site.
    pub(crate) fn with(mut self, other: Ages) -> Ages {
        self.time = self.time.max(other.time);
        let both = [(&mut self.live, other.live), (&mut self.freed, other.freed)];
        for (own, other) in both {
            own.iter_mut()
                .zip(other)
                .for_each(|(own, other)| *own += other);
        }
        self
    }
}
