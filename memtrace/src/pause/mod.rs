//! Pauses threads invisibly to others: a forked child, a new program or the opener of an unknown
//! library waits until its probes are set.
//!
//! Threads wait in stops of ptrace(2), which only the tracer sees; a
//! SIGSTOP would be seen by the parent. The tracer is a process of its own, the
//! *pauser* (`process.rs`), in a session of its own:
//! - it keeps passing signals when memtrace itself is stopped or busy;
//! - when memtrace dies it lets every thread go, and when it dies itself the
//!   kernel does;
//! - its end detaches from threads that run, without a stop.
//!
//! The kernel side decides who waits (the STOPPED map, see [`Stops`]), the collector when it
//! continues ([`Pauser`]). The messages on the socket between the two are in `wire.rs`. Independent
//! of probes.

use memtrace_common::event::Unwinding;

mod collector;
mod halt;
mod news;
mod pauser;
mod process;
mod returns;
mod seize;
mod wire;

pub(crate) use pauser::{Line, Pause, PauseError, Pauser, SUBCOMMAND};
pub(crate) use process::run;
pub(crate) use wire::Notice;

/// State shared by the kernel side and the pauser.
pub(crate) trait Stops {
    /// Whether thread `tid` is to wait for the collector; called once at each of its stops.
    fn take(&mut self, tid: u32) -> bool;

    /// Return addresses that are to be put back in thread `tid` before an exception unwinds it.
    fn take_returns(&mut self, tid: u32) -> Option<Unwinding>;

    /// Whether no thread is about to stop.
    fn is_empty(&self) -> bool;

    /// Ends the recording: from now on no thread is to stop.
    fn end_recording(&mut self);
}
