//! The kernel side as the collector needs it: a trait, so that the collector can be tested on captured records, without a
//! kernel.

use super::{attach::Attached, error::TracerError, link::Link, rows::Loader};
use crate::probes::Probe;
use memtrace_common::{
    code_map::{self, KnownFile},
    kernel::Sampling,
    loss::Reason,
    process::FileKey,
    python::{Imports, Interpreter},
};
use std::{collections::HashMap, fs::File, sync::Arc};

/// Losses by reason.
pub(crate) type Losses = HashMap<Reason, u64>;

/// Options that the kernel side was loaded with, and features of this kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Abilities {
    /// The malloc family is probed.
    pub(crate) heap: bool,
    /// Stacks are walked by unwind tables.
    pub(crate) unwinds: bool,
    /// Stacks have their Python frames.
    pub(crate) python_frames: bool,
    /// Walks are sent to be verified.
    pub(crate) verifies: bool,
    /// The kernel reports when a file was written to.
    pub(crate) has_file_versions: bool,
}

/// See the module. An impossible request is an error of the kernel, unless a method says otherwise.
pub(crate) trait Kernel {
    fn abilities(&self) -> Abilities;

    /// The loader of unwind tables.
    fn tables(&self) -> Arc<dyn Loader>;

    /// Starts or stops recording in all processes at one moment.
    fn set_recording(&mut self, on: bool) -> Result<(), TracerError>;

    /// Begins tracing a process whose probes are in place (or that will exec). Returns the image
    /// that it runs.
    fn trace(&mut self, tgid: u32) -> Result<u64, TracerError>;

    /// Whether the process is traced, from the start or since its fork.
    fn traces(&self, tgid: u32) -> bool;

    /// Attaches the probes of one file, open at `file`, in one process.
    fn attach(&mut self, tgid: u32, file: &File, probes: &[Probe])
    -> Result<Attached, TracerError>;

    /// Lets C++ exceptions of one process pass return probes: `offsets` of the file, open at
    /// `file`, are where unwinding begins.
    fn attach_unwinding(
        &mut self,
        tgid: u32,
        file: &File,
        offsets: &[u64],
    ) -> Result<Vec<Link>, TracerError>;

    /// Lets the kernel side see the end of each code object in one process: `offset` of the file, open at `file`, is where
    /// they end. The kernel side relies on it only after [`Kernel::set_code_ends`].
    fn attach_code_dealloc(
        &mut self,
        tgid: u32,
        file: &File,
        offset: u64,
    ) -> Result<Vec<Link>, TracerError>;

    /// Publishes that the end of each code object of a process is seen, of the interpreter in the file number `exec`;
    /// `None`: it is not any more.
    fn set_code_ends(&mut self, tgid: u32, exec: Option<u32>) -> Result<(), TracerError>;

    /// Records that a file needs no stop when it is mapped, and the meaning of its mappings.
    fn file_known(&mut self, key: FileKey, known: KnownFile) -> Result<(), TracerError>;

    /// Begins to log the changes of a process's code.
    fn watch_code(&mut self, tgid: u32) -> Result<(), TracerError>;

    /// Invalidates the published code of a process until it is published again.
    fn distrust_code(&mut self, tgid: u32) -> Result<(), TracerError>;

    /// Number of changes of a process's code so far: to be read before its mappings are read.
    fn code_sequence(&self, tgid: u32) -> Result<u64, TracerError>;

    /// Whether a process's code has changed, or may have, since it was published.
    fn is_code_behind(&self, tgid: u32) -> bool;

    /// Publishes a process's executable mappings, sorted by address, as of a sequence.
    fn publish_code(
        &mut self,
        tgid: u32,
        sequence: u64,
        mappings: &[code_map::Mapping],
    ) -> Result<(), TracerError>;

    /// A forked child has its parent's code. False if it needs a snapshot of its own.
    fn code_forked(&mut self, parent: u32, child: u32) -> bool;

    /// Forgets the code of a process that has ended.
    fn code_ended(&mut self, tgid: u32);

    /// Processes for which the kernel side requests a new snapshot.
    fn code_requests(&mut self) -> Vec<u32>;

    /// Publishes which interpreter a process runs; `None`: its stacks have no Python frames any more.
    fn set_interpreter(
        &mut self,
        tgid: u32,
        interpreter: Option<Interpreter>,
    ) -> Result<(), TracerError>;

    /// Publishes the import system of a process whose imports are to be summarised; `None`: they are not any more.
    fn set_imports(&mut self, tgid: u32, imports: Option<Imports>) -> Result<(), TracerError>;

    /// Starts stopping threads for the process `pauser`, if that traces them; 0: for none.
    fn set_pauser(&mut self, pauser: u32) -> Result<(), TracerError>;

    /// Continues threads that were stopped for a pauser that died.
    fn let_stopped_go(&mut self);

    /// Threads that a running process has created while recording; the count restarts when a process ends, and is 0 for
    /// processes beyond the limit (16,384 have one).
    fn threads_created(&self, tgid: u32) -> u64;

    /// Losses so far, by reason, and the number of records that were to be sent.
    fn counters(&self) -> Result<(Losses, u64), TracerError>;

    /// Which walks were verified.
    fn sampling(&self) -> Result<Sampling, TracerError>;

    /// Forwards the kernel side's log.
    fn flush_log(&mut self);
}
