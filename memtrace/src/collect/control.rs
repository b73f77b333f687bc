//! What memtrace does to the traced processes: the kernel side, their probes and their pauses.

use super::tables::Tables;
use crate::{
    bpf::{Abilities, Kernel, Removal, TracerError},
    pause::Pause,
};
use memtrace_common::{
    code_map::{self, KnownFile},
    event::Lifecycle,
    process::FileKey,
};
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

/// A file that the kernel side is to know, see [`Control::announce`].
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
    /// Paused until tables are there.
    pub(super) waiting: Vec<Waiting>,
    pub(super) unannounced: Vec<Unannounced>,
    /// Removes the probes of ended processes.
    pub(super) removal: Removal,
    /// Files that a warning has named.
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

    /// No thread of the process waits any more: it has ended, executes another program or is left
    /// to another tracer. Continuing such a thread would let its number's next stop pass.
    pub(super) fn forget_waiting(&mut self, tgid: u32) {
        self.waiting
            .retain(|waiting| waiting.life.header.tgid != tgid);
    }

    /// Publishes the executable mappings of a process. `sequence`: the number of changes of its code before they were read.
    pub(super) fn publish(
        &mut self,
        tgid: u32,
        sequence: Result<u64, TracerError>,
        code: &[code_map::Mapping],
    ) {
        let published =
            sequence.and_then(|sequence| self.kernel.publish_code(tgid, sequence, code));
        if let Err(error) = published {
            // A process that has ended meanwhile has no more stacks.
            tracing::debug!("the kernel side has no code map of process {tgid}: {error}");
        }
    }

    /// Announces to the kernel side which files no longer need a stop: those whose tables are
    /// loaded, or take too long. A process that maps another one meanwhile is stopped as well, and
    /// waits too, if it can.
    pub(super) fn announce(&mut self) {
        let now = Instant::now();
        let nobody_waits = self.pauser.is_none();
        let is_due = |file: &mut Unannounced| {
            nobody_waits || file.until <= now || self.tables.are_done(&[file.known.exec])
        };
        let due: Vec<_> = self.unannounced.extract_if(.., is_due).collect();
        for Unannounced { key, known, .. } in due {
            if let Err(error) = self.kernel.file_known(key, known) {
                tracing::debug!("{error}");
            }
        }
    }
}
