//! The traced processes' facts: their state at exec, the libraries they load later, and the changes
//! at the end.
//!
//! A library counts from the moment it is mapped, so that short-lived processes have theirs too.
//! Slow lookups are made by the store's thread.

use std::sync::Arc;

use super::{
    collector::{CollectError, Collector},
    location::ModuleIndex,
    look::Look,
    process::Fingerprint,
    sink::Message,
};
use crate::{
    host::{
        self,
        libraries::{self, Library},
        python::Launch,
    },
    process::memory,
};

impl Collector {
    /// Notes that a process executes a file.
    pub(super) fn uses(&mut self, tgid: u32, index: ModuleIndex) {
        if let Some(process) = self.processes.get_mut(tgid)
            && self.naming.modules.get(index).library.is_some()
        {
            process.fingerprint.changed |= process.fingerprint.libraries.insert(index);
        }
    }

    /// Reports the facts of a process. To be called when it runs a program not reported yet, or
    /// when something may have changed.
    pub(super) fn describe(&mut self, tgid: u32) -> Result<(), CollectError> {
        let Some(process) = self.processes.get_mut(tgid) else {
            return Ok(());
        };
        let source = &self.accounts.sampling.source;
        let launch = Launch::read(tgid);
        let environ = launch.as_ref().and_then(Launch::environ);
        let facts = host::process(source, process.row.id, tgid, environ, &self.output.redactor);
        process.fingerprint.launch = launch.map(Arc::new);
        process.fingerprint.start_time = memory::start_time(tgid).unwrap_or(0);
        self.output.sink.send(Message::Facts(facts))?;
        self.look(tgid)
    }

    /// Reports the libraries added since the last report, of every process.
    pub(super) fn describe_libraries(&mut self) -> Result<(), CollectError> {
        let changed = self.processes.which(|process| process.fingerprint.changed);
        for tgid in changed {
            self.report_libraries(tgid)?;
            self.look(tgid)?;
        }
        Ok(())
    }

    /// Reports the changes in the processes that still run.
    ///
    /// # Errors
    /// The store has failed.
    pub(super) fn describe_all(&mut self) -> Result<(), CollectError> {
        let executed = self
            .processes
            .which(|process| process.fingerprint.launch.is_some());
        for tgid in executed {
            if memory::identity(tgid).is_ok() {
                self.describe(tgid)?;
            }
        }
        Ok(())
    }

    /// Reports the libraries of one process, if some were added.
    pub(super) fn report_libraries(&mut self, tgid: u32) -> Result<(), CollectError> {
        let Some(process) = self.processes.get_mut(tgid) else {
            return Ok(());
        };
        let fingerprint = &mut process.fingerprint;
        if !std::mem::take(&mut fingerprint.changed) {
            return Ok(());
        }
        let program = fingerprint.launch.as_ref().map(|launch| launch.program());
        let libraries = fingerprint.libraries.iter();
        let libraries =
            libraries.filter_map(|&index| self.naming.modules.get(index).library.as_ref());
        let facts = libraries::facts(process.row.id, libraries, program, &self.output.redactor);
        Ok(self.output.sink.send(Message::Facts(facts))?)
    }

    fn look(&mut self, tgid: u32) -> Result<(), CollectError> {
        let Some(process) = self.processes.get(tgid) else {
            return Ok(());
        };
        let Fingerprint {
            libraries,
            launch: Some(launch),
            start_time,
            ..
        } = &process.fingerprint
        else {
            return Ok(());
        };
        let libraries = libraries.iter();
        let path = |library: &Library| library.path.clone();
        let files = libraries
            .filter_map(|&index| self.naming.modules.get(index).library.as_ref().map(path));
        let look = Look {
            process: process.row.id,
            tgid,
            start_time: *start_time,
            launch: Arc::clone(launch),
            files: files.collect(),
        };
        Ok(self.output.sink.send(Message::Look(Box::new(look)))?)
    }

    /// A forked child inherits its parent's facts.
    pub(super) fn inherit_facts(&mut self, parent: u32, child: u32) -> Result<(), CollectError> {
        self.report_libraries(parent)?;
        let Some(process) = self.processes.get(parent) else {
            return Ok(());
        };
        let (parent, libraries) = (process.row.id, process.fingerprint.libraries.clone());
        let launch = process.fingerprint.launch.clone();
        let Some(process) = self.processes.get_mut(child) else {
            return Ok(());
        };
        let start_time = process.fingerprint.start_time;
        process.fingerprint = Fingerprint {
            libraries,
            changed: false,
            launch,
            start_time,
        };
        let child = process.row.id;
        Ok(self
            .output
            .sink
            .send(Message::InheritFacts { parent, child })?)
    }

    /// Another program begins: the facts reported so far do not apply to it.
    pub(super) fn forget_facts(&mut self, tgid: u32) -> Result<(), CollectError> {
        let Some(process) = self.processes.get_mut(tgid) else {
            return Ok(());
        };
        process.fingerprint = Fingerprint::default();
        process.cgroup = None;
        let process = process.row.id;
        Ok(self.output.sink.send(Message::ForgetFacts(process))?)
    }
}
