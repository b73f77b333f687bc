//! The rest of the job: living descendants of the attached processes, which either join the
//! recording or are reported as untraced.

use std::time::Duration;

use super::{
    collector::{CollectError, Collector},
    process::Process,
    sink::Message,
    tables,
};
use crate::{
    clock,
    process::{self, job, maps, memory, target::Target},
    recording::{Meta, Origin, Untraced},
};

/// Limit on scans before recording starts; a shell may keep starting children. Those missed here
/// join once recording has started.
const LOOKS: u32 = 3;

/// Why a descendant is not traced although nothing went wrong.
const NOT_FOLLOWED: &str = "--no-follow";

/// Progress message while setting probes.
pub(super) fn doing(pid: u32, name: &str) -> String {
    let files = maps::read(pid).map_or(0, |mappings| maps::executable_files(&mappings).len());
    format!("setting probes in {files} files of process {pid} (`{name}`)")
}

impl Collector {
    /// Attaches to the living descendants of the traced processes, before recording begins.
    ///
    /// # Errors
    /// The store has failed.
    pub(super) fn join_all(
        &mut self,
        now_ns: u64,
        mut say: impl FnMut(String),
    ) -> Result<(), CollectError> {
        for _ in 0..LOOKS {
            let missing = self.not_attached();
            if missing.is_empty() {
                break;
            }
            for tgid in missing {
                self.join(tgid, now_ns, tables::AT_ATTACH, &mut say)?;
            }
        }
        Ok(())
    }

    /// Attaches to descendants forked between the last scan and the start of recording. Forks after
    /// that are reported by the kernel side. False once there are none.
    ///
    /// # Errors
    /// The store has failed.
    pub(super) fn join_late(&mut self, now_ns: u64) -> Result<bool, CollectError> {
        let missing = self.not_attached();
        for &tgid in &missing {
            // Others may wait for the collector meanwhile, so it does not wait for tables.
            self.join(tgid, now_ns, Duration::ZERO, &mut |_| {})?;
            self.observe(tgid, clock::monotonic_ns())?;
        }
        Ok(!missing.is_empty())
    }

    /// Records the living descendants as not traced.
    ///
    /// # Errors
    /// The store has failed.
    pub(super) fn leave_out(&mut self) -> Result<(), CollectError> {
        for tgid in self.not_attached() {
            self.not_traced(tgid, NOT_FOLLOWED)?;
        }
        Ok(())
    }

    /// Processes of the job that are not traced.
    pub(super) fn untraced(&self) -> &[Untraced] {
        &self.processes.untraced
    }

    /// The recording begins, with every attached process.
    ///
    /// # Errors
    /// The store has failed.
    pub(super) fn observe_all(&mut self, meta: &Meta) -> Result<(), CollectError> {
        self.send(Message::Begins(Box::new(meta.clone())))?;
        let attached = |process: &Process| process.row.origin == Origin::Attached;
        for tgid in self.processes.which(attached) {
            self.observe(tgid, meta.started_ns)?;
        }
        Ok(())
    }

    /// Living descendants that nothing is known of yet.
    fn not_attached(&self) -> Vec<u32> {
        let mut missing = job::descendants(&self.processes.which(|_| true));
        missing.retain(|&tgid| {
            !self.processes.is_traced(tgid)
                && !self.control.kernel.traces(tgid)
                && !self
                    .processes
                    .untraced
                    .iter()
                    .any(|known| known.tgid == tgid)
        });
        missing
    }

    fn join(
        &mut self,
        tgid: u32,
        now_ns: u64,
        patience: Duration,
        say: &mut impl FnMut(String),
    ) -> Result<(), CollectError> {
        let target = match Target::find(tgid) {
            Ok(target) => target,
            Err(error) => return self.not_traced(tgid, &error.to_string()),
        };
        say(doing(tgid, &target.name));
        match self.begin(tgid, Origin::Attached, now_ns, patience) {
            Ok(()) => Ok(()),
            Err(error @ CollectError::Store(_)) => Err(error),
            Err(error) => self.not_traced(tgid, &error.to_string()),
        }
    }

    fn not_traced(&mut self, tgid: u32, why: &str) -> Result<(), CollectError> {
        // A process that has ended meanwhile is left out.
        let Ok(identity) = memory::identity(tgid) else {
            return Ok(());
        };
        if process::has_ended(tgid) {
            return Ok(());
        }
        let of = Untraced {
            tgid,
            comm: identity.comm,
            cmdline: self.output.redactor.arguments(&identity.cmdline),
            why: why.to_owned(),
        };
        self.send(Message::Untraced(of.clone()))?;
        self.processes.untraced.push(of);
        Ok(())
    }
}
