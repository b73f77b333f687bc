//! The code that a process runs: its files are numbered, described to the kernel side, and given their unwind tables.

use std::{collections::BTreeSet, time::Instant};

use memtrace_common::{code_map::mapping_kind, loss::Reason, process::FileKey};

use super::{
    collector::Collector,
    control::{LONGEST_FOR_TABLES, Unannounced},
    location::ModuleIndex,
    modules::ModuleError,
    sink::Message,
    tables::Job,
};
use crate::process::{
    self,
    files::OpenError,
    maps::{self, MapsError},
};

impl Collector {
    /// Takes a new snapshot of the code of each process whose code has changed.
    pub(super) fn refresh_code(&mut self) {
        for tgid in self.control.kernel.code_requests() {
            let has_changed = self.control.kernel.is_code_behind(tgid);
            if !self.processes.is_traced(tgid) || !self.processes.may_look(tgid, has_changed) {
                continue;
            }
            if let Err(error) = self.inspect(tgid) {
                tracing::debug!("{error}");
            }
        }
        self.control.announce();
    }

    /// Inspects a process's mappings and publishes them to the kernel side. A newly found allocator
    /// is probed in every process that has its probes: a process that maps it later then needs no
    /// stop. Returns the numbers of its files.
    pub(super) fn inspect(&mut self, tgid: u32) -> Result<Vec<u32>, MapsError> {
        let begun = Instant::now();
        let files_before = self.naming.modules.len();
        // Before the mappings: changes made while they are read are logged.
        let sequence = self.control.kernel.code_sequence(tgid);
        let mappings = maps::read(tgid)?;
        let mut found = Vec::new();
        let mut unwinder = false;
        let mut code = Vec::new();
        let mut previous = None;
        for mapping in mappings
            .iter()
            .filter(|mapping| mapping.permissions.execute)
        {
            let file = match self.naming.modules.open(tgid, mapping) {
                Ok((index, new)) => {
                    if new {
                        self.introduce(tgid, index);
                        if !self.naming.modules.get(index).probes.is_empty() {
                            found.push(index);
                        }
                        unwinder |= !self.naming.modules.get(index).unwinding.is_empty();
                    }
                    self.uses(tgid, index);
                    // Executable data, such as a runtime's cache of generated code.
                    self.naming
                        .modules
                        .get(index)
                        .is_elf()
                        .then_some((index, mapping.file_offset))
                }
                Err(error @ ModuleError::Changing) => {
                    tracing::debug!("{error}");
                    self.accounts.lost(Reason::FileChanged);
                    None
                }
                // The change is logged, and triggers another inspection.
                Err(error @ ModuleError::Open(OpenError::Replaced)) => {
                    tracing::debug!("{error}");
                    None
                }
                Err(error) => {
                    if let Some(path) = mapping.path.clone().filter(|_| mapping.ino != 0)
                        && !process::has_ended(tgid)
                        && self.control.warned.insert(path.clone())
                    {
                        tracing::warn!("cannot open `{}`: {error}", path.display());
                        self.accounts.lost(Reason::AttachFailed);
                    }
                    None
                }
            };
            self.processes
                .addresses_mut(tgid)
                .insert(mapping.start, mapping.end, file);
            let index = file.map(|(index, _)| index);
            let mapping = self
                .naming
                .modules
                .code(mapping, index, self.naming.page_size);
            if let (Some(index), Some(mapping)) = (index, mapping)
                && previous.replace(index) != Some(index)
            {
                self.look_for_python(tgid, index, mapping.bias);
            }
            code.extend(mapping);
        }
        if let (Some(verifier), Ok(sequence)) = (&mut self.walks.verifier, &sequence) {
            verifier.mapped(tgid, *sequence, &mappings, &self.naming.modules);
        }
        self.control.publish(tgid, sequence, &code);
        if unwinder {
            self.found_unwinder();
        }
        for index in found {
            for tgid in self.probed() {
                self.probe_module(tgid, index);
            }
        }
        // The first look at a file is made once.
        if self.naming.modules.len() == files_before {
            self.processes.looked(tgid, begun.elapsed(), code.len());
        }
        let files = code
            .iter()
            .filter(|mapping| mapping.kind == mapping_kind::FILE);
        let files: BTreeSet<u32> = files.map(|mapping| mapping.exec).collect();
        Ok(files.into_iter().collect())
    }

    pub(super) fn look_for_python(&mut self, tgid: u32, index: ModuleIndex, bias: u64) {
        let module = self.naming.modules.get(index);
        // The layer `python` needs the interpreter even if stacks are without Python frames.
        if let Some(interpreter) = self.naming.pythons.mapped(index, module, bias)
            && self.processes.set_interpreter(tgid, interpreter)
            && self.finds_python_frames(tgid)
        {
            match self.control.kernel.set_interpreter(tgid, Some(interpreter)) {
                Ok(()) => self.see_code_ends(tgid),
                Err(error) => {
                    tracing::warn!("stacks of process {tgid} have no Python frames: {error}");
                }
            }
        }
    }

    /// Whether the kernel side looks for a process's Python frames. Even `--no-python` needs them, to summarise imports.
    pub(super) fn finds_python_frames(&self, tgid: u32) -> bool {
        let imports = self.naming.imports.as_ref();
        self.control.abilities.python_frames
            || self.saw_start(tgid) && imports.is_some_and(|imports| !imports.are_over(tgid))
    }

    /// Lets the kernel side rely on what it has read of code objects. Without it, it reads them again for each stack.
    pub(super) fn see_code_ends(&mut self, tgid: u32) {
        let finds_python_frames = self.finds_python_frames(tgid);
        let interpreter = self.processes.interpreter(tgid).copied();
        let Some((interpreter, process)) = interpreter.zip(self.processes.get_mut(tgid)) else {
            return;
        };
        let index = ModuleIndex(interpreter.exec);
        let module = self.naming.modules.get(index);
        let Some(offset) = module.code_dealloc.filter(|_| finds_python_frames) else {
            return;
        };
        if process.code_ends != Some(index) {
            let attached = self
                .control
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
        if let Err(error) = self
            .control
            .kernel
            .set_code_ends(tgid, Some(interpreter.exec))
        {
            tracing::debug!("{error}");
        }
    }

    pub(super) fn introduce(&mut self, tgid: u32, index: ModuleIndex) {
        let module = self.naming.modules.get(index);
        let key = FileKey {
            ino: module.file.key.ino,
            dev: module.file.key.dev,
            version: if self.control.abilities.has_file_versions {
                module.version
            } else {
                0
            },
        };
        self.control.unannounced.push(Unannounced {
            key,
            known: module.known(index),
            until: Instant::now() + LONGEST_FOR_TABLES,
        });
        self.report_lacking(index);
        match self.naming.modules.reopen(index) {
            Ok(file) => {
                let module = self.naming.modules.get(index);
                if self.control.abilities.unwinds {
                    match file.try_clone() {
                        Ok(file) => self.control.tables.add(Job {
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
                let _ = self.output.sink.send(message);
            }
            Err(error) => tracing::warn!(
                "cannot symbolize `{}`: {error}",
                self.naming.modules.get(index).file.path.display()
            ),
        }
    }
}
