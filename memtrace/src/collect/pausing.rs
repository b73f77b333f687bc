//! The pauses of threads: the collector's requests to the pauser, and the pauser's reports.

use std::time::Instant;

use memtrace_common::{
    event::{Lifecycle, flags},
    loss::Reason,
};

use super::{
    collector::Collector,
    control::{LONGEST_FOR_TABLES, Waiting},
};
use crate::{
    pause::{Notice, PauseError},
    process::{self, memory},
};

impl Collector {
    /// Handles everything that does not come through the ring buffer.
    pub(super) fn look_around(&mut self) {
        self.hear_pauser();
        self.continue_ready();
        self.refresh_code();
    }

    /// Has a process traced, so that its threads can be stopped.
    pub(super) fn seize(&mut self, tgid: u32) {
        let Some(pauser) = &mut self.control.pauser else {
            return;
        };
        match pauser.seize(tgid) {
            Ok(()) => {
                if let Some(process) = self.processes.get_mut(tgid) {
                    process.pausable = true;
                }
            }
            Err(error @ PauseError::Gone(_)) => self.without_pauser(&error),
            // Its end is detected by the next check.
            Err(_) if process::has_ended(tgid) => {}
            Err(error) => tracing::warn!(
                "{error}: it is not stopped while probes are set, so the first allocations of its children and of newly loaded libraries are missed (`not_stopped` counts how often)"
            ),
        }
    }

    /// Continues a thread that was stopped, if it was.
    pub(super) fn let_continue(&mut self, life: &Lifecycle) {
        if life.header.flags & flags::FAILED != 0 {
            return;
        }
        if let Some(pauser) = &mut self.control.pauser
            && let Err(error) = pauser.let_continue(life.header.tid)
        {
            self.without_pauser(&error);
        }
    }

    /// As [`Collector::let_continue`], once these files have their unwind tables. Tables that take
    /// too long are loaded while the process runs; its stacks are marked.
    pub(super) fn continue_with_tables(&mut self, life: Lifecycle, files: Vec<u32>) {
        self.control.waiting.push(Waiting {
            life,
            files,
            until: Instant::now() + LONGEST_FOR_TABLES,
        });
        self.continue_ready();
    }

    /// Continues the threads that need not wait for tables any longer.
    pub(super) fn continue_ready(&mut self) {
        let now = Instant::now();
        let is_ready = |waiting: &mut Waiting| {
            waiting.until <= now || self.control.tables.are_done(&waiting.files)
        };
        let ready: Vec<_> = self.control.waiting.extract_if(.., is_ready).collect();
        for Waiting { life, .. } in ready {
            self.let_continue(&life);
        }
    }

    /// Continues every thread: recording is over.
    pub(super) fn continue_all(&mut self) {
        for Waiting { life, .. } in std::mem::take(&mut self.control.waiting) {
            self.let_continue(&life);
        }
    }

    /// Another process wants to trace one of ours, and was refused if the pauser has it still.
    pub(super) fn give_up(&mut self, tgid: u32, to: u32) {
        if !self
            .control
            .pauser
            .as_ref()
            .is_some_and(|pauser| pauser.traces(tgid))
        {
            return;
        }
        let Some(process) = self.processes.get_mut(tgid) else {
            return;
        };
        // A debugger attaches to each thread.
        if std::mem::replace(&mut process.given_up, true) {
            return;
        }
        let who = memory::identity(to).map_or_else(
            |_| format!("process {to}"),
            |identity| format!("`{}`", identity.comm),
        );
        tracing::warn!(
            "{who} tried to trace process {tgid} and was refused, because memtrace holds it; memtrace has released it, so try again"
        );
        self.control.forget_waiting(tgid);
        // First, while exceptions can still pass the probes.
        self.no_longer_pausable(tgid);
        let left = self
            .control
            .pauser
            .as_mut()
            .map(|pauser| pauser.release(tgid));
        if let Some(Err(error)) = left {
            self.without_pauser(&error);
        }
    }

    /// Stops a process as a whole; false: it cannot be stopped.
    pub(super) fn halt(&mut self, tgid: u32) -> bool {
        if !self.can_pause(tgid) {
            return false;
        }
        let halted = self.control.pauser.as_mut().map(|pauser| pauser.halt(tgid));
        if let Some(Err(error)) = &halted {
            self.without_pauser(error);
        }
        matches!(halted, Some(Ok(())))
    }

    /// Resumes a process that was stopped as a whole.
    pub(super) fn go_on(&mut self, tgid: u32) {
        if let Some(Err(error)) = self
            .control
            .pauser
            .as_mut()
            .map(|pauser| pauser.go_on(tgid))
        {
            self.without_pauser(&error);
        }
    }

    /// Reads the reports of the pauser's own actions.
    pub(super) fn hear_pauser(&mut self) {
        let Some(pauser) = &mut self.control.pauser else {
            return;
        };
        match pauser.notices() {
            Ok(notices) => {
                for notice in notices {
                    match notice {
                        Notice::LetGo { .. } => self.accounts.lost(Reason::NotStopped),
                        Notice::NotRestored { .. } => self.accounts.lost(Reason::ReturnNotRestored),
                        Notice::Left { tgid } => self.no_longer_pausable(tgid),
                        Notice::Seized { .. } => {}
                    }
                }
            }
            Err(error) => self.without_pauser(&error),
        }
    }

    /// Whether threads of the process can be stopped.
    pub(super) fn can_pause(&self, tgid: u32) -> bool {
        let process = self.processes.get(tgid);
        self.control.pauser.is_some() && process.is_some_and(|process| process.pausable)
    }

    /// A process that cannot be stopped any more loses the probes that need it.
    fn no_longer_pausable(&mut self, tgid: u32) {
        let Some(process) = self.processes.get_mut(tgid) else {
            return;
        };
        process.pausable = false;
        if process.unwinders.is_some() {
            self.detach_probes(tgid);
            self.probe(tgid);
        }
    }

    /// The kernel has let every thread go; from now on none is stopped.
    fn without_pauser(&mut self, error: &PauseError) {
        tracing::warn!(
            "{error}; processes are no longer stopped while probes are set, so the first \
             allocations of children and new libraries are missed (`not_stopped` counts how often)"
        );
        self.control.pauser = None;
        self.control.kernel.let_stopped_go();
        for tgid in self.processes.which(|_| true) {
            self.no_longer_pausable(tgid);
        }
        if let Err(error) = self.control.kernel.set_pauser(0) {
            tracing::debug!("{error}");
        }
    }
}
