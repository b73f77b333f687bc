//! The searched process: it runs, is stopped, or a copy of it is read.

use super::{
    memory::Live,
    native::{Copied, Stop, StopError, Threads},
    search::Error,
};
use crate::{process::execution::Execution, recording::AsOf};
use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

/// How the memory of a process is read.
#[derive(Clone, Debug)]
pub(crate) enum Reading {
    /// While it runs.
    Running,
    /// While it runs, without any stop: it has another tracer.
    Untouched,
    /// While memtrace's holder keeps it still, or soon will.
    Standing,
    /// While it is stopped. Once this is set, it continues at once.
    Stopped(Arc<AtomicBool>),
    /// From a copy of the process, while it runs.
    Copied,
}

/// See the module. Dropping it resumes the process, and removes the copy.
pub(crate) struct Subject {
    pid: u32,
    /// The program it executed at the first look.
    execution: Option<Execution>,
    held: Held,
}

enum Held {
    Running,
    Untouched,
    Standing,
    Stopped(Stop),
    Copied(Copied),
}

/// The cost of the search for the process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Price {
    /// The longest stop.
    pub(crate) longest_stop: Duration,
    /// The copy could not be reaped and is left as a zombie.
    pub(crate) leaves_zombie: bool,
}

impl Subject {
    /// A process to be read in the way of `reading`, from now on.
    ///
    /// # Errors
    /// It cannot be stopped or copied.
    pub(crate) fn new(pid: u32, reading: Reading) -> Result<Self, Error> {
        let failed = |error: StopError| Error::Held(error.to_string());
        let execution = Execution::of(pid);
        let held = match reading {
            Reading::Running => Held::Running,
            Reading::Untouched => Held::Untouched,
            Reading::Standing if Threads::stand_still(pid) => Held::Standing,
            Reading::Standing => Held::Untouched,
            Reading::Stopped(is_over) => Held::Stopped(Stop::until(pid, is_over).map_err(failed)?),
            Reading::Copied => {
                Held::Copied(Copied::new(pid).map_err(|error| Error::Held(error.to_string()))?)
            }
        };
        Ok(Self {
            pid,
            execution,
            held,
        })
    }

    /// The process itself.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// The process whose memory is read.
    pub(super) fn owner(&self) -> u32 {
        match &self.held {
            Held::Running | Held::Untouched | Held::Standing | Held::Stopped(_) => self.pid,
            Held::Copied(copy) => copy.pid(),
        }
    }

    pub(super) fn threads(&self) -> Threads {
        match &self.held {
            Held::Running => Threads::Running(self.pid),
            Held::Untouched | Held::Standing => Threads::untouched(self.pid),
            Held::Stopped(stop) => Threads::Held(stop.threads().into()),
            Held::Copied(copy) => Threads::Held(copy.threads().into()),
        }
    }

    /// Whether the process has executed another program meanwhile. One that has ended has not.
    pub(super) fn is_replaced(&self) -> bool {
        let now = Execution::of(self.pid);
        now.is_some_and(|now| self.execution.as_ref().is_none_or(|it| it.differs(&now)))
    }

    /// Whether it runs and is never stopped.
    pub(super) fn is_untouched(&self) -> bool {
        matches!(self.held, Held::Untouched)
    }

    /// Whether the registers of its threads are unknown.
    pub(super) fn lacks_registers(&self) -> bool {
        matches!(self.held, Held::Untouched | Held::Standing)
    }

    pub(super) fn as_of(&self) -> AsOf {
        match self.held {
            Held::Running | Held::Untouched => AsOf::Running,
            Held::Standing | Held::Stopped(_) => AsOf::Stopped,
            Held::Copied(_) => AsOf::Copied,
        }
    }

    /// The memory of the process as it runs, if it does.
    pub(super) fn running(&self) -> Option<Live> {
        match self.held {
            Held::Running | Held::Untouched | Held::Copied(_) => Some(Live::new(self.pid)),
            Held::Standing | Held::Stopped(_) => None,
        }
    }

    /// For how long the process was stopped to copy it.
    pub(crate) fn copied_in(&self) -> Option<Duration> {
        match &self.held {
            Held::Copied(copy) => Some(copy.stopped()),
            Held::Running | Held::Untouched | Held::Standing | Held::Stopped(_) => None,
        }
    }

    /// Resumes the process.
    pub(crate) fn end(self) -> Price {
        match self.held {
            Held::Running | Held::Untouched | Held::Standing => Price::default(),
            Held::Stopped(stop) => Price {
                longest_stop: stop.end().map_or(Duration::ZERO, |ended| ended.lasted),
                leaves_zombie: false,
            },
            Held::Copied(copy) => {
                let gone = copy.end();
                Price {
                    longest_stop: gone.map_or(Duration::ZERO, |gone| gone.longest_stop),
                    leaves_zombie: gone.is_none_or(|gone| !gone.is_reaped),
                }
            }
        }
    }
}
