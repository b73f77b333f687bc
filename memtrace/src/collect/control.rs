//! What memtrace does to the traced processes: the kernel side, their probes and their pauses.

use super::tables::Tables;
use crate::{
    bpf::{Abilities, Kernel, Removal},
    pause::Pause,
};
use memtrace_common::{code_map::KnownFile, event::Lifecycle, process::FileKey};
use std::{
    collections::HashSet,
    io,
    path::PathBuf,
    time::{Duration, Instant},
};

/// How long a stopped thread waits for unwind tables; shorter than the pauser keeps it.
pub(super) const LONGEST_FOR_TABLES: Duration = Duration::from_secs(2);

/// A stopped thread whose probes are set, while unwind tables are being compiled.
pub(super) struct Waiting {
    pub(super) life: Lifecycle,
    /// Numbers of the files its process maps.
    pub(super) files: Vec<u32>,
    pub(super) until: Instant,
}

/// A file that the kernel side is to know, see [`Collector::announce`].
pub(super) struct Unannounced {
    pub(super) key: FileKey,
    pub(super) known: KnownFile,
    pub(super) until: Instant,
}

/// See the module.
pub(super) struct Control {
    pub(super) kernel: Box<dyn Kernel>,
    pub(super) abilities: Abilities,
    /// `None` if nothing is to be stopped, or once it is gone.
    pub(super) pauser: Option<Box<dyn Pause>>,
    pub(super) tables: Tables,
    /// Held until tables are there.
    pub(super) waiting: Vec<Waiting>,
    pub(super) unannounced: Vec<Unannounced>,
    /// Removes the probes of ended processes.
    pub(super) removal: Removal,
    /// Files of which a warning told.
    pub(super) warned: HashSet<PathBuf>,
}

impl Control {
    pub(super) fn new(kernel: Box<dyn Kernel>, pauser: Option<Box<dyn Pause>>) -> io::Result<Self> {
        Ok(Self {
            abilities: kernel.abilities(),
            tables: Tables::start(kernel.tables())?,
            kernel,
            pauser,
            waiting: Vec::new(),
            unannounced: Vec::new(),
            removal: Removal::default(),
            warned: HashSet::new(),
        })
    }
}
