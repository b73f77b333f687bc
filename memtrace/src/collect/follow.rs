//! Following: births, execs and ends of processes, and the probes that each
//! needs before it may run on.

use memtrace_common::{
    event::{Kind, Lifecycle, Stop, flags},
    loss::Reason,
};

use super::{
    collector::{CollectError, Collector},
    location::ModuleIndex,
    process::Process,
    processes::Ended,
    sink::Message,
};
use crate::{
    bpf::{self},
    event::{Action, Event},
    process::{self, memory, target},
    recording::{Origin, ProcessRow},
};

impl Collector {
    pub(super) fn lifecycle(&mut self, kind: Kind, life: Lifecycle) -> Result<(), CollectError> {
        let tgid = life.header.tgid;
        match kind {
            Kind::Fork => self.forked(life),
            Kind::Exec => {
                self.accounts.apply(&life.header, Action::Exec);
                self.control.forget_waiting(tgid);
                let gone = self.processes.exec(tgid);
                self.forget_code(tgid, gone);
                if let Some(verifier) = &self.walks.verifier {
                    verifier.forgotten(tgid);
                }
                // A thread other than the leader called exec: the probes were scoped to the old leader. They are removed
                // before the new ones are set, while the process waits.
                if life.other != tgid {
                    self.detach_probes(tgid);
                }
                self.adopt(tgid, 0, life.header.time_ns)?;
                self.look_for_32_bit(tgid);
                self.forget_facts(tgid)
            }
            Kind::Exit => {
                let status = u32::try_from(life.value).unwrap_or(u32::MAX);
                self.accounts.apply(&life.header, Action::Exit { status });
                self.ended(tgid, Some(status), life.header.time_ns)
            }
            _ => self.stopped(life),
        }
    }

    /// Warns if no allocation function could be probed, so that an empty heap is not mistaken for a result.
    pub(super) fn warn_without_probes(&self, tgid: u32) {
        if self
            .processes
            .get(tgid)
            .is_some_and(|process| process.is_32_bit)
        {
            return;
        }
        if let Some(Process { row, links, .. }) = self.processes.get(tgid)
            && links.is_empty()
            && self.control.abilities.heap
        {
            tracing::warn!(
                "process {tgid} (`{}`) has no symbols of allocation functions: only its address \
                 space (vm) is recorded; name them with `--allocator PATH[:PREFIX]`",
                row.comm
            );
        }
    }

    fn forked(&mut self, life: Lifecycle) -> Result<(), CollectError> {
        let (child, parent) = (life.header.tgid, life.other);
        let known = self.processes.get(child);
        if known.is_some_and(|process| process.row.origin == Origin::Attached) {
            // Found while its parent was still in fork: it has joined on its own.
            return Ok(());
        }
        let shared_vm = life.header.flags & flags::SHARED_VM != 0;
        self.accounts.ledger.apply(&Event {
            time_ns: life.header.time_ns,
            tgid: parent,
            tid: life.header.tid,
            action: Action::Fork { child, shared_vm },
        });
        if shared_vm {
            // It runs in the parent's memory until its exec makes it a process of its own.
            return Ok(());
        }
        let gone = self.processes.fork(parent, child);
        self.forget_image(gone);
        if let Some(verifier) = &self.walks.verifier {
            verifier.forked(parent, child);
        }
        if !self.control.kernel.code_forked(parent, child)
            && let Err(error) = self.inspect(child)
        {
            tracing::debug!("{error}");
        }
        self.inherit_imports(parent, child);
        self.adopt(child, parent, life.header.time_ns)?;
        self.inherit_facts(parent, child)
    }

    /// Warns that nothing is recorded for a 32-bit program: its system calls are not those of the
    /// tracepoints, and its arguments are in other places.
    pub(super) fn look_for_32_bit(&mut self, tgid: u32) {
        // A vanished process keeps its facts, or those of its launch.
        if let Ok(is_32_bit) = target::runs_32_bit(tgid) {
            self.set_32_bit(tgid, is_32_bit);
        }
    }

    pub(super) fn set_32_bit(&mut self, tgid: u32, is_32_bit: bool) {
        let Some(process) = self.processes.get_mut(tgid) else {
            return;
        };
        let known = std::mem::replace(&mut process.is_32_bit, is_32_bit);
        if is_32_bit && !known {
            tracing::warn!(
                "process {tgid} executes a 32-bit program, which is not supported: nothing is recorded for it"
            );
            self.accounts.lost(Reason::Program32Bit);
        }
    }

    /// Brings a child, or a process after exec, up to date.
    fn adopt(&mut self, tgid: u32, parent: u32, now_ns: u64) -> Result<(), CollectError> {
        let Some(id) = self.accounts.ledger.process_of(tgid) else {
            return Ok(());
        };
        let birth = memory::birth(tgid).ok();
        let known = self
            .processes
            .get(tgid)
            .filter(|process| process.row.id == id);
        // A child's is its parent's.
        let mut cmdline = match known.is_some() || !self.processes.is_traced(parent) {
            true => memory::command_line(tgid).ok(),
            false => None,
        };
        let mut row = match known {
            Some(process) => process.row.clone(),
            None => {
                // A vanished child had, until its exec, its parent's facts.
                let like = self.processes.get(parent).map(|process| &process.row);
                ProcessRow {
                    id,
                    tgid,
                    ppid: parent,
                    origin: Origin::Child,
                    comm: like.map_or_else(String::new, |row| row.comm.clone()),
                    cmdline: like.map_or_else(Vec::new, |row| row.cmdline.clone()),
                    started_ns: now_ns,
                    ended_ns: None,
                    exit_status: None,
                    rss_at_start: None,
                    folded: None,
                }
            }
        };
        let mut start_time = 0;
        if let Some(birth) = birth {
            row.comm = birth.comm;
            row.ppid = birth.ppid;
            row.cmdline = cmdline.take().unwrap_or(row.cmdline);
            start_time = birth.start_time;
        }
        self.send(Message::Process(row.clone()))?;
        match self
            .processes
            .get_mut(tgid)
            .filter(|process| process.row.id == id)
        {
            Some(process) => process.row = row,
            None => {
                let mut process = Process::new(row, self.accounts.sampling.least_rest);
                process.fingerprint.start_time = start_time;
                if let Some(old) = self.processes.trace(tgid, process) {
                    self.control.removal.add(old.links);
                    self.control.removal.add(old.unwinding_links);
                }
            }
        }
        Ok(())
    }

    pub(super) fn ended(
        &mut self,
        tgid: u32,
        status: Option<u32>,
        now_ns: u64,
    ) -> Result<(), CollectError> {
        if self
            .processes
            .get(tgid)
            .is_some_and(|process| process.row.origin == Origin::Launched)
        {
            self.warn_without_probes(tgid);
        }
        self.report_libraries(tgid)?;
        if let Some(mut process) = self.forget(tgid) {
            process.row.ended_ns = Some(now_ns);
            process.row.exit_status = status;
            self.send(Message::Process(process.row.clone()))?;
            self.accounts
                .folding
                .ended(&process.row, &mut self.accounts.ledger);
        }
        Ok(())
    }

    /// Drops the state of a process, and returns it.
    pub(super) fn forget(&mut self, tgid: u32) -> Option<Process> {
        self.control.forget_waiting(tgid);
        let Ended { process, image } = self.processes.end(tgid);
        self.control.kernel.code_ended(tgid);
        self.forget_code(tgid, image);
        if let Some(verifier) = &self.walks.verifier {
            verifier.forgotten(tgid);
        }
        let mut process = process?;
        self.control.removal.add(std::mem::take(&mut process.links));
        self.control
            .removal
            .add(std::mem::take(&mut process.unwinding_links));
        Some(process)
    }

    /// Processes that are gone but whose end was not reported. To be called before the ring buffer
    /// is read: an end that is still in it comes first.
    pub(super) fn vanished(&self) -> Vec<u32> {
        self.processes
            .which(|process| process::has_ended(process.row.tgid))
    }

    /// Ends those of `vanished` whose end was not among the records read since.
    ///
    /// # Errors
    /// The store has failed.
    pub(super) fn bury(&mut self, vanished: &[u32], now_ns: u64) -> Result<(), CollectError> {
        for &tgid in vanished {
            if self.processes.is_traced(tgid) {
                let action = Action::Exit { status: 0 };
                self.accounts.ledger.apply(&Event {
                    time_ns: now_ns,
                    tgid,
                    tid: tgid,
                    action,
                });
                self.ended(tgid, None, now_ns)?;
            }
        }
        Ok(())
    }

    /// A process waits for its probes (or, with `--no-stop`, runs on without).
    fn stopped(&mut self, life: Lifecycle) -> Result<(), CollectError> {
        let tgid = life.header.tgid;
        match Stop::try_from(life.value) {
            Ok(Stop::Tracer) => {
                self.give_up(tgid, life.other);
                return Ok(());
            }
            Ok(Stop::EntryPoint) => {
                self.probe_entry_points(tgid);
                self.let_continue(&life);
                return Ok(());
            }
            // Its stacks are marked until its next snapshot.
            Ok(Stop::Behind) if !self.processes.may_look(tgid, true) => {
                self.let_continue(&life);
                return Ok(());
            }
            _ => {}
        }
        if let Some(process) = self.processes.get_mut(tgid) {
            process.pausable = life.header.flags & flags::FAILED == 0;
        }
        let mut files = Vec::new();
        // A child of a process with threads may have been copied while another one mapped code.
        if Stop::try_from(life.value) != Ok(Stop::Fork) || self.control.kernel.is_code_behind(tgid)
        {
            // A process that ended meanwhile has nothing left to inspect.
            match self.inspect(tgid) {
                Ok(mapped) => files = mapped,
                Err(error) => tracing::debug!("{error}"),
            }
            self.control.announce();
        }
        self.probe(tgid);
        if Stop::try_from(life.value) == Ok(Stop::Exec) {
            self.adopt(tgid, 0, life.header.time_ns)?;
            self.describe(tgid)?;
        }
        self.continue_with_tables(life, files);
        Ok(())
    }

    /// Removes the probes of a process.
    pub(super) fn detach_probes(&mut self, tgid: u32) {
        let Some(process) = self.processes.get_mut(tgid) else {
            return;
        };
        process.probed = false;
        process.unwinders = None;
        // Before its probe goes with the others.
        if process.code_ends.take().is_some()
            && let Err(error) = self.control.kernel.set_code_ends(tgid, None)
        {
            tracing::debug!("{error}");
        }
        bpf::detach(std::mem::take(&mut process.links));
        // Exceptions may have to pass those until they are gone.
        bpf::detach(std::mem::take(&mut process.unwinding_links));
    }

    /// Attaches every known allocator's probes, unless the process has them.
    pub(super) fn probe(&mut self, tgid: u32) {
        match self.processes.get_mut(tgid) {
            Some(process) if !process.probed => process.probed = true,
            _ => return,
        }
        for index in self.naming.modules.allocators() {
            self.probe_module(tgid, index);
        }
        self.see_code_ends(tgid);
    }

    pub(super) fn probe_module(&mut self, tgid: u32, index: ModuleIndex) {
        let probes = self.harmless(tgid, index);
        if !probes.is_empty() {
            self.attach_to(tgid, index, &probes);
        }
    }
}
