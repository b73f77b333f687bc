//! The collector's requests to the holder, and the holder's reports.

use std::time::{Duration, Instant};

use memtrace_common::{
    event::{Lifecycle, flags},
    loss::Reason,
};

use super::Collector;
use crate::{
    hold::{HoldError, Notice},
    process::{self, memory},
};

/// How long a stopped thread waits for unwind tables; shorter than the holder keeps it.
pub(super) const LONGEST_FOR_TABLES: Duration = Duration::from_secs(2);

/// A stopped thread whose probes are set, while unwind tables are being compiled.
pub(super) struct Waiting {
    life: Lifecycle,
    /// Numbers of the files its process maps.
    files: Vec<u32>,
    until: Instant,
}

impl Collector {
    /// Has a process traced, so that its threads can be stopped.
    pub(super) fn seize(&mut self, tgid: u32) {
        let Some(holder) = &mut self.holder else {
            return;
        };
        match holder.seize(tgid) {
            Ok(()) => {
                if let Some(process) = self.processes.get_mut(tgid) {
                    process.held = true;
                }
            }
            Err(error @ HoldError::Gone(_)) => self.without_holder(&error),
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
        if let Some(holder) = &mut self.holder
            && let Err(error) = holder.let_continue(life.header.tid)
        {
            self.without_holder(&error);
        }
    }

    /// As [`Collector::let_continue`], once these files have their unwind tables. Tables that take
    /// too long are loaded while the process runs; its stacks are marked.
    pub(super) fn continue_with_tables(&mut self, life: Lifecycle, files: Vec<u32>) {
        self.waiting.push(Waiting {
            life,
            files,
            until: Instant::now() + LONGEST_FOR_TABLES,
        });
        self.continue_ready();
    }

    /// Continues the threads that need not wait for tables any longer.
    pub(super) fn continue_ready(&mut self) {
        let now = Instant::now();
        let is_ready =
            |waiting: &mut Waiting| waiting.until <= now || self.tables.are_done(&waiting.files);
        let ready: Vec<_> = self.waiting.extract_if(.., is_ready).collect();
        for Waiting { life, .. } in ready {
            self.let_continue(&life);
        }
    }

    /// Continues every thread: recording is over.
    pub(super) fn continue_all(&mut self) {
        for Waiting { life, .. } in std::mem::take(&mut self.waiting) {
            self.let_continue(&life);
        }
    }

    /// No thread of the process waits any more: it has ended, executes another program or is left
    /// to another tracer. Continuing such a thread would let its number's next stop pass.
    pub(super) fn forget_waiting(&mut self, tgid: u32) {
        self.waiting
            .retain(|waiting| waiting.life.header.tgid != tgid);
    }

    /// Another process wants to trace one of ours, and was refused if the holder has it still.
    pub(super) fn give_up(&mut self, tgid: u32, to: u32) {
        if !self
            .holder
            .as_ref()
            .is_some_and(|holder| holder.traces(tgid))
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
        self.forget_waiting(tgid);
        // First, while exceptions can still pass the probes.
        self.no_longer_held(tgid);
        let left = self.holder.as_mut().map(|holder| holder.leave(tgid));
        if let Some(Err(error)) = left {
            self.without_holder(&error);
        }
    }

    /// Stops a process as a whole; false: it cannot be stopped.
    pub(super) fn halt(&mut self, tgid: u32) -> bool {
        if !self.is_held(tgid) {
            return false;
        }
        let halted = self.holder.as_mut().map(|holder| holder.halt(tgid));
        if let Some(Err(error)) = &halted {
            self.without_holder(error);
        }
        matches!(halted, Some(Ok(())))
    }

    /// Resumes a process that was stopped as a whole.
    pub(super) fn go_on(&mut self, tgid: u32) {
        if let Some(Err(error)) = self.holder.as_mut().map(|holder| holder.go_on(tgid)) {
            self.without_holder(&error);
        }
    }

    /// Reads the reports of the holder's own actions.
    pub(super) fn hear_holder(&mut self) {
        let Some(holder) = &mut self.holder else {
            return;
        };
        match holder.notices() {
            Ok(notices) => {
                for notice in notices {
                    match notice {
                        Notice::LetGo { .. } => self.lost(Reason::NotStopped),
                        Notice::NotRestored { .. } => self.lost(Reason::ReturnNotRestored),
                        Notice::Left { tgid } => self.no_longer_held(tgid),
                        Notice::Seized { .. } => {}
                    }
                }
            }
            Err(error) => self.without_holder(&error),
        }
    }

    /// Whether threads of the process can be stopped.
    pub(super) fn is_held(&self, tgid: u32) -> bool {
        let process = self.processes.get(tgid);
        self.holder.is_some() && process.is_some_and(|process| process.held)
    }

    /// A process that cannot be stopped any more loses the probes that need it.
    fn no_longer_held(&mut self, tgid: u32) {
        let Some(process) = self.processes.get_mut(tgid) else {
            return;
        };
        process.held = false;
        if process.unwinders.is_some() {
            self.detach_probes(tgid);
            self.probe(tgid);
        }
    }

    /// The kernel has let every thread go; from now on none is stopped.
    fn without_holder(&mut self, error: &HoldError) {
        tracing::warn!(
            "{error}; processes are no longer stopped while probes are set, so the first \
             allocations of children and new libraries are missed (`not_stopped` counts how often)"
        );
        self.holder = None;
        self.kernel.let_stopped_go();
        for tgid in self.processes.which(|_| true) {
            self.no_longer_held(tgid);
        }
        if let Err(error) = self.kernel.set_holder(0) {
            tracing::debug!("{error}");
        }
    }
}
