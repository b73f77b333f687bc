//! What the collector hands over, and to whom: the store writes it, a test keeps it.

use std::{fs::File, path::PathBuf, sync::Arc, time::Duration};

use super::{
    location::{CodeId, ModuleIndex},
    look::Look,
    stacks::News,
};
use crate::{
    host::Fact,
    ledger::ProcessId,
    probes::plan::Lacking,
    python::CodeObject,
    recording::{self, Holders, Interval, ProcessRow, Untraced},
};

/// What the collector hands over, in order: what names a location comes before it.
pub(super) enum Message {
    Module {
        index: ModuleIndex,
        path: String,
        file: File,
        build_id: Option<String>,
        /// `/proc/PID/root` of a process that maps it.
        root: PathBuf,
    },
    Code(CodeId, Arc<CodeObject>),
    Stacks(News),
    Process(ProcessRow),
    /// A process of the job that is not traced.
    Untraced(Untraced),
    /// A device's library, and what its version lacks.
    Library(String, Lacking),
    Facts(Vec<Fact>),
    /// The child is what the parent is, until its exec.
    InheritFacts {
        parent: ProcessId,
        child: ProcessId,
    },
    ForgetFacts(ProcessId),
    /// Look for what takes longer: packages of Python, and whose malloc a process uses.
    Look(Box<Look>),
    Interval(Box<Interval>),
    /// What holds the blocks of a site of an interval before.
    Holders(Holders),
}

/// Nobody takes messages any more; [`Sink::finish`] tells why.
#[derive(Debug, thiserror::Error)]
#[error("the recording can no longer be written")]
pub(crate) struct Stopped;

/// Takes what the collector hands over.
pub(super) trait Sink {
    /// Takes a message, or waits until it can.
    ///
    /// # Errors
    /// It has failed.
    fn send(&mut self, message: Message) -> Result<(), Stopped>;

    /// What the last interval took to write, without waiting.
    fn cost(&self) -> Duration {
        Duration::ZERO
    }

    /// The recording is complete, CLOCK_MONOTONIC ns. Returns when everything is where it belongs.
    ///
    /// # Errors
    /// Why it could not be written.
    fn finish(self: Box<Self>, time_ns: u64) -> Result<(), recording::Error>;
}
