//! Messages from the collector, and their receiver: the store writes them, a test keeps them.

use std::{fs::File, sync::Arc, time::Duration};

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
    recording::{
        self, Census, GrowingType, Holders, Interval, Meta, ProcessRow, Unsearched, Untraced,
    },
};

/// Messages from the collector, in order: the names of a location come before it.
pub(super) enum Message {
    /// The time of its start is known now.
    Begins(Box<Meta>),
    Module {
        index: ModuleIndex,
        path: String,
        file: File,
        build_id: Option<String>,
        /// A process that maps it.
        tgid: u32,
    },
    Code(CodeId, Arc<CodeObject>),
    Stacks(News),
    Process(ProcessRow),
    /// A process of the job that is not traced.
    Untraced(Untraced),
    /// A device library, and the functions that its version lacks.
    Library(String, Lacking),
    Facts(Vec<Fact>),
    /// The child has its parent's facts, until its exec.
    InheritFacts {
        parent: ProcessId,
        child: ProcessId,
    },
    ForgetFacts(ProcessId),
    /// Slow lookups: Python packages and the malloc provider.
    Look(Box<Look>),
    Interval(Box<Interval>),
    /// Holders of the blocks of a site of an earlier interval.
    Holders(Holders),
    /// A process that grows and was not searched for them.
    Unsearched(ProcessId, Unsearched),
    /// How often the objects of a process were counted, and the types that grew.
    Types(ProcessId, Census, Vec<GrowingType>),
}

/// The receiver is gone; [`Sink::finish`] has the reason.
#[derive(Debug, thiserror::Error)]
#[error("the recording can no longer be written")]
pub(crate) struct Stopped;

/// Receives the collector's messages.
pub(super) trait Sink {
    /// Takes a message, or waits until it can.
    ///
    /// # Errors
    /// It has failed.
    fn send(&mut self, message: Message) -> Result<(), Stopped>;

    /// Cost of writing the last interval, without waiting.
    fn cost(&self) -> Duration {
        Duration::ZERO
    }

    /// The recording is complete, CLOCK_MONOTONIC ns. Returns when everything is written, without the names of
    /// functions that are not there yet once it `is_over`, which is asked again and again.
    ///
    /// # Errors
    /// Why it could not be written.
    fn finish(
        self: Box<Self>,
        time_ns: u64,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), recording::Error>;
}
