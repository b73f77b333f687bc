//! Following: births, execs and ends of processes, and the probes that each
//! needs before it may run on.

use std::{collections::BTreeSet, time::Instant};

use memtrace_common::{
    code_map::{self, KnownFile, mapping_kind},
    event::{Kind, Lifecycle, Stop, flags},
    loss::Reason,
    process::FileKey,
};

use aya::maps::MapError;

use super::{
    CollectError, Collector,
    holding::LONGEST_FOR_TABLES,
    location::ModuleIndex,
    processes::{Ended, Process},
    sink::Message,
    tables::Job,
};
use crate::{
    bpf::{self, code_maps::CodeError},
    event::{Action, Event},
    process::{
        self,
        maps::{self, MapsError},
        memory, target,
    },
    recording::{Origin, ProcessRow},
};

/// A file that the kernel side is to know, see [`Collector::announce`].
pub(super) struct Unannounced {
    key: FileKey,
    known: KnownFile,
    until: Instant,
}

impl Collector {
    pub(super) fn lifecycle(&mut self, kind: Kind, life: Lifecycle) -> Result<(), CollectError> {
        let tgid = life.header.tgid;
        match kind {
            Kind::Fork => self.forked(life),
            Kind::Exec => {
                self.apply(&life.header, Action::Exec);
                self.forget_waiting(tgid);
                let gone = self.processes.exec(tgid);
                self.forget_code(tgid, gone);
                if let Some(verifier) = &self.verifier {
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
                self.apply(&life.header, Action::Exit { status });
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
            && self.abilities.heap
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
        self.ledger.apply(&Event {
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
        if let Some(verifier) = &self.verifier {
            verifier.forked(parent, child);
        }
        if !self.kernel.code_forked(parent, child)
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
            self.is_32_bit(tgid, is_32_bit);
        }
    }

    pub(super) fn is_32_bit(&mut self, tgid: u32, is_32_bit: bool) {
        let Some(process) = self.processes.get_mut(tgid) else {
            return;
        };
        let known = std::mem::replace(&mut process.is_32_bit, is_32_bit);
        if is_32_bit && !known {
            tracing::warn!(
                "process {tgid} executes a 32-bit program, which is not supported: nothing is recorded for it"
            );
            self.lost(Reason::Program32Bit);
        }
    }

    /// Brings a child, or a process after exec, up to date.
    fn adopt(&mut self, tgid: u32, parent: u32, now_ns: u64) -> Result<(), CollectError> {
        let Some(id) = self.ledger.process_of(tgid) else {
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
                let mut process = Process::new(row, self.sampling.least_rest);
                process.fingerprint.start_time = start_time;
                if let Some(old) = self.processes.trace(tgid, process) {
                    self.removal.add(old.links);
                    self.removal.add(old.unwinding_links);
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
            self.folding.ended(&process.row, &mut self.ledger);
        }
        Ok(())
    }

    /// Drops the state of a process, and returns it.
    pub(super) fn forget(&mut self, tgid: u32) -> Option<Process> {
        self.forget_waiting(tgid);
        let Ended { process, image } = self.processes.end(tgid);
        self.kernel.code_ended(tgid);
        self.forget_code(tgid, image);
        if let Some(verifier) = &self.verifier {
            verifier.forgotten(tgid);
        }
        let mut process = process?;
        self.removal.add(std::mem::take(&mut process.links));
        self.removal
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
                self.ledger.apply(&Event {
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

    /// Takes a new snapshot of the code of each process whose code has changed.
    pub(super) fn refresh_code(&mut self) {
        for tgid in self.kernel.code_requests() {
            let has_changed = self.kernel.is_code_behind(tgid);
            if !self.processes.is_traced(tgid) || !self.processes.may_look(tgid, has_changed) {
                continue;
            }
            if let Err(error) = self.inspect(tgid) {
                tracing::debug!("{error}");
            }
        }
        self.announce();
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
            process.held = life.header.flags & flags::FAILED == 0;
        }
        let mut files = Vec::new();
        // A child of a process with threads may have been copied while another one mapped code.
        if Stop::try_from(life.value) != Ok(Stop::Fork) || self.kernel.is_code_behind(tgid) {
            // A process that ended meanwhile has nothing left to inspect.
            match self.inspect(tgid) {
                Ok(mapped) => files = mapped,
                Err(error) => tracing::debug!("{error}"),
            }
            self.announce();
        }
        self.probe(tgid);
        if Stop::try_from(life.value) == Ok(Stop::Exec) {
            self.adopt(tgid, 0, life.header.time_ns)?;
            self.describe(tgid)?;
        }
        self.continue_with_tables(life, files);
        Ok(())
    }

    /// Inspects a process's mappings and publishes them to the kernel side. A newly found allocator
    /// is probed in every process that has its probes: a process that maps it later then needs no
    /// stop. Returns the numbers of its files.
    pub(super) fn inspect(&mut self, tgid: u32) -> Result<Vec<u32>, MapsError> {
        let begun = Instant::now();
        let files_before = self.modules.len();
        // Before the mappings: changes made while they are read are logged.
        let sequence = self.kernel.code_sequence(tgid);
        let mappings = maps::read(tgid)?;
        let mut found = Vec::new();
        let mut unwinder = false;
        let mut code = Vec::new();
        let mut previous = None;
        for mapping in mappings
            .iter()
            .filter(|mapping| mapping.permissions.execute)
        {
            let file = match self.modules.open(tgid, mapping) {
                Ok((index, new)) => {
                    if new {
                        self.introduce(tgid, index);
                        if !self.modules.get(index).probes.is_empty() {
                            found.push(index);
                        }
                        unwinder |= !self.modules.get(index).unwinding.is_empty();
                    }
                    self.uses(tgid, index);
                    // Executable data, such as a runtime's cache of generated code.
                    self.modules
                        .get(index)
                        .is_elf()
                        .then_some((index, mapping.file_offset))
                }
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    tracing::debug!("{error}");
                    self.lost(Reason::FileChanged);
                    None
                }
                // It is changing at this moment: the change is logged, and triggers another inspection.
                Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                    tracing::debug!("{error}");
                    None
                }
                Err(error) => {
                    if let Some(path) = mapping.path.clone().filter(|_| mapping.ino != 0)
                        && !process::has_ended(tgid)
                        && self.warned.insert(path.clone())
                    {
                        tracing::warn!("cannot open `{}`: {error}", path.display());
                        self.lost(Reason::AttachFailed);
                    }
                    None
                }
            };
            self.processes
                .addresses_mut(tgid)
                .insert(mapping.start, mapping.end, file);
            let index = file.map(|(index, _)| index);
            let mapping = self.modules.code(mapping, index, self.page_size);
            if let (Some(index), Some(mapping)) = (index, mapping)
                && previous.replace(index) != Some(index)
            {
                self.look_for_python(tgid, index, mapping.bias);
            }
            code.extend(mapping);
        }
        if let (Some(verifier), Ok(sequence)) = (&mut self.verifier, &sequence) {
            verifier.mapped(tgid, *sequence, &mappings, &self.modules);
        }
        self.publish(tgid, sequence, &code);
        if unwinder {
            self.found_unwinder();
        }
        for index in found {
            for tgid in self.probed() {
                self.probe_module(tgid, index);
            }
        }
        // The first look at a file is made once.
        if self.modules.len() == files_before {
            self.processes.looked(tgid, begun.elapsed(), code.len());
        }
        let files = code
            .iter()
            .filter(|mapping| mapping.kind == mapping_kind::FILE);
        let files: BTreeSet<u32> = files.map(|mapping| mapping.exec).collect();
        Ok(files.into_iter().collect())
    }

    fn look_for_python(&mut self, tgid: u32, index: ModuleIndex, bias: u64) {
        let module = self.modules.get(index);
        // The layer `python` needs the interpreter even if stacks are without Python frames.
        if let Some(interpreter) = self.pythons.mapped(index, module, bias)
            && self.processes.set_interpreter(tgid, interpreter)
            && self.finds_python_frames(tgid)
        {
            match self.kernel.set_interpreter(tgid, Some(interpreter)) {
                Ok(()) => self.see_code_ends(tgid),
                Err(error) => {
                    tracing::warn!("stacks of process {tgid} have no Python frames: {error}");
                }
            }
        }
    }

    /// Whether the kernel side looks for a process's Python frames. Even `--no-python` needs them, to summarise imports.
    pub(super) fn finds_python_frames(&self, tgid: u32) -> bool {
        let imports = self.imports.as_ref();
        self.abilities.python_frames
            || self.saw_start(tgid) && imports.is_some_and(|imports| !imports.are_over(tgid))
    }

    /// Lets the kernel side rely on what it has read of code objects. Without it, it reads them again for each stack.
    fn see_code_ends(&mut self, tgid: u32) {
        let finds_python_frames = self.finds_python_frames(tgid);
        let interpreter = self.processes.interpreter(tgid).copied();
        let Some((interpreter, process)) = interpreter.zip(self.processes.get_mut(tgid)) else {
            return;
        };
        let index = ModuleIndex(interpreter.exec);
        let module = self.modules.get(index);
        let Some(offset) = module.code_dealloc.filter(|_| finds_python_frames) else {
            return;
        };
        if process.code_ends != Some(index) {
            let attached = self
                .kernel
                .attach_code_dealloc(tgid, &module.file.file, offset);
            match attached {
                Ok(links) => process.links.extend(links),
                Err(error) => {
                    tracing::debug!("{error}");
                    return;
                }
            }
            process.code_ends = Some(index);
        }
        if let Err(error) = self.kernel.set_code_ends(tgid, Some(interpreter.exec)) {
            tracing::debug!("{error}");
        }
    }

    fn publish(&mut self, tgid: u32, sequence: Result<u64, MapError>, code: &[code_map::Mapping]) {
        let published = sequence
            .map_err(CodeError::from)
            .and_then(|sequence| self.kernel.publish_code(tgid, sequence, code));
        if let Err(error) = published {
            // A process that has ended meanwhile has no more stacks.
            tracing::debug!("the kernel side has no code map of process {tgid}: {error}");
        }
    }

    fn introduce(&mut self, tgid: u32, index: ModuleIndex) {
        let module = self.modules.get(index);
        let key = FileKey {
            ino: module.file.key.ino,
            dev: module.file.key.dev,
            version: if self.abilities.has_file_versions {
                module.version
            } else {
                0
            },
        };
        self.unannounced.push(Unannounced {
            key,
            known: module.known(index),
            until: Instant::now() + LONGEST_FOR_TABLES,
        });
        self.report_lacking(index);
        match self.modules.reopen(index) {
            Ok(file) => {
                let module = self.modules.get(index);
                if self.abilities.unwinds {
                    match file.try_clone() {
                        Ok(file) => self.tables.add(Job {
                            exec: index.0,
                            path: module.file.path.display().to_string(),
                            file,
                            build_id: module.build_id.clone(),
                        }),
                        Err(error) => tracing::warn!(
                            "cannot load unwind tables for `{}`: {error}",
                            module.file.path.display()
                        ),
                    }
                }
                let message = Message::Module {
                    index,
                    path: module.file.path.display().to_string(),
                    file,
                    build_id: module.build_id.clone(),
                    tgid,
                };
                // A store that has failed shows at the next interval.
                let _ = self.sink.send(message);
            }
            Err(error) => tracing::warn!(
                "cannot symbolize `{}`: {error}",
                self.modules.get(index).file.path.display()
            ),
        }
    }

    /// Announces to the kernel side which files no longer need a stop: those whose tables are
    /// loaded, or take too long. A process that maps another one meanwhile is stopped as well, and
    /// waits too, if it can.
    pub(super) fn announce(&mut self) {
        let now = Instant::now();
        let nobody_waits = self.holder.is_none();
        let is_due = |file: &mut Unannounced| {
            nobody_waits || file.until <= now || self.tables.are_done(&[file.known.exec])
        };
        let due: Vec<_> = self.unannounced.extract_if(.., is_due).collect();
        for Unannounced { key, known, .. } in due {
            if let Err(error) = self.kernel.file_known(key, known) {
                tracing::debug!("{error}");
            }
        }
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
            && let Err(error) = self.kernel.set_code_ends(tgid, None)
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
        for index in self.modules.allocators() {
            self.probe_module(tgid, index);
        }
        self.see_code_ends(tgid);
    }

    fn probe_module(&mut self, tgid: u32, index: ModuleIndex) {
        let probes = self.harmless(tgid, index);
        if !probes.is_empty() {
            self.attach_to(tgid, index, &probes);
        }
    }
}
