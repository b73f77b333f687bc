//! memtrace's user side. `frames`, `ledger`, `recording`, `analysis`, `diff`,
//! `view` and `render` know neither aya nor tokio.

mod analysis;
mod arch;
mod bpf;
mod check;
mod cli;
mod clock;
mod collect;
mod diff;
mod escape;
mod event;
mod file;
mod fleet;
mod frames;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod hash;
mod helper;
mod holders;
mod host;
mod http;
mod ledger;
mod names;
mod own_folder;
mod pause;
mod probes;
mod process;
mod process_root;
mod progress;
mod push;
mod python;
mod recording;
mod render;
mod rights;
mod sigbus;
mod symbolize;
mod top;
mod units;
mod unwind;
mod view;

pub use cli::Cli;
pub use escape::clean;
pub use process::ulimits::within_ulimits;
pub use progress::{Stderr, say};

/// Makes the recording of `examples/workers.rs`: events, through the ledger to the file.
pub mod made_up {
    pub use crate::{
        event::{Action, Event, Layer, StackId},
        frames::{Frame, FrameKind},
        ledger::{Ledger, ProcessId},
        recording::{
            Interval, LocationId, MemorySample, Meta, Node, NodeId, Origin, ProcessRow, StackRow,
            Writer,
        },
    };
}
