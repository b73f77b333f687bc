//! The searched process: it runs, or is stopped.

use super::{
    error::Error,
    memory::Live,
    native::{Stop, StopError, Threads},
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
}

/// See the module. Dropping it resumes the process.
pub(crate) struct Subject {
    pid: u32,
    /// The program it executed at the first look.
    execution: Option<Execution>,
    access: Access,
}

enum Access {
    Running,
    Untouched,
    Standing,
    Stopped(Stop),
}

impl Subject {
    /// A process to be read in the way of `reading`, from now on.
    ///
    /// # Errors
    /// It cannot be stopped.
    pub(crate) fn new(pid: u32, reading: Reading) -> Result<Self, Error> {
        let failed = |error: StopError| Error::Held(error.to_string());
        let execution = Execution::of(pid);
        let access = match reading {
            Reading::Running => Access::Running,
            Reading::Untouched => Access::Untouched,
            Reading::Standing if Threads::stand_still(pid) => Access::Standing,
            Reading::Standing => Access::Untouched,
            Reading::Stopped(is_over) => {
                Access::Stopped(Stop::until(pid, is_over).map_err(failed)?)
            }
        };
        Ok(Self {
            pid,
            execution,
            access,
        })
    }

    /// The process itself.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn threads(&self) -> Threads {
        match &self.access {
            Access::Running => Threads::Running(self.pid),
            Access::Untouched | Access::Standing => Threads::untouched(self.pid),
            Access::Stopped(stop) => Threads::Stopped(stop.threads().into()),
        }
    }

    /// Whether the process has executed another program meanwhile. One that has ended has not.
    pub(super) fn is_replaced(&self) -> bool {
        let now = Execution::of(self.pid);
        now.is_some_and(|now| self.execution.as_ref().is_none_or(|it| it.differs(&now)))
    }

    /// Whether it runs and is never stopped.
    pub(super) fn is_untouched(&self) -> bool {
        matches!(self.access, Access::Untouched)
    }

    /// Whether the registers of its threads are unknown.
    pub(super) fn lacks_registers(&self) -> bool {
        matches!(self.access, Access::Untouched | Access::Standing)
    }

    pub(super) fn as_of(&self) -> AsOf {
        match self.access {
            Access::Running | Access::Untouched => AsOf::Running,
            Access::Standing | Access::Stopped(_) => AsOf::Stopped,
        }
    }

    /// The memory of the process as it runs, if it does.
    pub(super) fn running(&self) -> Option<Live> {
        match self.access {
            Access::Running | Access::Untouched => Some(Live::new(self.pid)),
            Access::Standing | Access::Stopped(_) => None,
        }
    }

    /// Resumes the process; how long it was stopped.
    pub(crate) fn end(self) -> Duration {
        match self.access {
            Access::Running | Access::Untouched | Access::Standing => Duration::ZERO,
            Access::Stopped(stop) => stop.end().map_or(Duration::ZERO, |ended| ended.lasted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs,
        io::{Read, Write},
        process::{Command, Stdio},
        thread,
    };

    #[test]
    fn another_program_is_noticed() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo; read line; exec cat"]);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        output.read_exact(&mut [0]).unwrap();
        let subject = Subject::new(child.id(), Reading::Running).unwrap();
        assert!(!subject.is_replaced());
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"\n").unwrap();
        while fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap() != "cat\n" {
            thread::yield_now();
        }
        assert!(subject.is_replaced());
        drop(input);
        child.wait().unwrap();
    }
}
