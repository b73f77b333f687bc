//! Handles records of the kernel side one by one: their subjects, and stacks as the recording has
//! them.

use memtrace_common::{
    event::{Kind, Stack},
    loss::Reason,
    python::Code,
    unwind::{End, Word},
};

use super::{
    addresses::Addresses,
    collector::{CollectError, Collector},
    imports,
    location::Location,
    sink::Message,
    stacks::{Owner, Walk},
};
use crate::{
    bpf::decode::{self, Record},
    event::StackId,
    python::CodeObject,
    recording::Origin,
};

impl Collector {
    /// Handles one record of the ring buffer.
    ///
    /// # Errors
    /// The store has failed; anything else is counted.
    pub(super) fn handle(&mut self, bytes: &[u8]) -> Result<(), CollectError> {
        self.accounts.received += 1;
        match decode::decode(bytes) {
            Ok((kind, Record::Stack(stack, frames))) => {
                debug_assert_eq!(kind, Kind::Stack);
                self.new_stack(stack, frames)
            }
            Ok((_, Record::PythonCode(code, areas))) => {
                self.runs(code.header.tgid, code.image);
                self.naming.stacks.forget_last();
                let Some(interpreter) = self.processes.interpreter(code.header.tgid) else {
                    return Ok(());
                };
                let (id, object, is_new) = self.naming.pythons.learn(interpreter, code, areas);
                self.learn_imports(code, &object);
                if is_new {
                    self.output.sink.send(Message::Code(id, object))?;
                }
                Ok(())
            }
            Ok((kind, Record::Alloc(alloc))) => {
                self.allocated(kind, alloc);
                Ok(())
            }
            Ok((kind, Record::Free(free))) => {
                self.freed(kind, free);
                Ok(())
            }
            Ok((kind, Record::Unmap(unmap))) => {
                self.unmapped(kind, *unmap);
                Ok(())
            }
            Ok((kind, Record::Map(map))) => {
                self.mapped(kind, *map);
                Ok(())
            }
            Ok((kind, Record::Lifecycle(life))) => self.lifecycle(kind, *life),
            Ok((_, Record::Verify(sample))) => {
                if let Some(verifier) = &mut self.walks.verifier {
                    verifier.sample(sample);
                }
                Ok(())
            }
            Ok((_, Record::DeviceAlloc(alloc))) => {
                self.device_alloc(*alloc);
                Ok(())
            }
            Ok((_, Record::DeviceReport(report))) => {
                self.device_report(*report);
                Ok(())
            }
            Ok((kind, Record::DeviceRange(range))) => {
                self.device_range(kind, *range);
                Ok(())
            }
            Ok((_, Record::Timing(timing))) => {
                self.walks.timings.add(timing);
                Ok(())
            }
            Err(error) => {
                tracing::debug!("{error}");
                self.accounts.lost(Reason::Undecodable);
                Ok(())
            }
        }
    }

    pub(super) fn stack_id(&mut self, key: u64) -> StackId {
        match self.naming.stacks.find(key) {
            Some(id) => id,
            None => {
                // Key 0 was counted by the kernel side.
                if key != 0 {
                    self.accounts.lost(Reason::UnknownStack);
                }
                StackId::UNKNOWN
            }
        }
    }

    fn new_stack(&mut self, stack: &Stack, frames: &[u64]) -> Result<(), CollectError> {
        let Ok(end) = End::try_from(stack.end) else {
            self.accounts.lost(Reason::Undecodable);
            return Ok(());
        };
        let (tgid, image) = (stack.header.tgid, stack.image);
        let owner = Owner::of(frames, tgid, image);
        if owner == Some(Owner::Image(image)) {
            self.runs(tgid, image);
        }
        let unknown = Addresses::default();
        let addresses = self.processes.addresses(tgid).unwrap_or(&unknown);
        let (modules, pythons) = (&self.naming.modules, &self.naming.pythons);
        let summary = self.naming.imports.as_ref().and_then(|imports| {
            imports.summarise(tgid, frames, |code, fingerprint| {
                pythons
                    .find(image, code, fingerprint)
                    .map(|(_, object)| object)
            })
        });
        let end = summary.as_ref().map_or(end, |_| End::Complete);
        let kept = match self.control.abilities.python_frames {
            true => summary,
            // Python frames were found only to summarise imports.
            false => summary.or_else(|| imports::native(frames)),
        };
        let lost_python = kept.is_some() && !self.control.abilities.python_frames;
        let frames = kept.as_deref().unwrap_or(frames);
        let locate = |index: usize| {
            Some(match Word::decode(frames[index]) {
                Some(Word::File { exec, vaddr }) => modules.locate(exec, vaddr),
                Some(Word::Absolute(addr)) => addresses.locate(tgid, image, addr),
                Some(Word::Python(code)) => {
                    let at = frames.get(index + 1).copied().and_then(Word::decode);
                    return pythons.locate(image, code, at);
                }
                // Handled with the previous word.
                Some(Word::PythonAt { .. }) => return None,
                None => Location::Unmapped(frames[index]),
            })
        };
        let walk = Walk {
            key: stack.stack,
            image,
            words: frames,
            end,
            comm: stack.comm,
            owner,
        };
        self.naming.stacks.learn(&walk, locate);
        if end == End::Truncated && lost_python {
            // Without Python frames, there is room for the whole of such a stack.
            self.end_imports(tgid);
        }
        if self.naming.stacks.has_much_news() {
            self.hand_over_stacks()?;
        }
        Ok(())
    }

    /// Has the imports of a process that was seen to start summarised.
    fn learn_imports(&mut self, code: &Code, object: &CodeObject) {
        let tgid = code.header.tgid;
        if !self.saw_start(tgid) {
            return;
        }
        let imports = self.naming.imports.as_mut();
        if let Some(files) = imports.and_then(|imports| imports.learn(code, object))
            && let Err(error) = self.control.kernel.set_imports(tgid, Some(files))
        {
            tracing::debug!("imports of process {tgid} are not summarised: {error}");
        }
    }

    /// Whether a process began while it was recorded.
    pub(super) fn saw_start(&self, tgid: u32) -> bool {
        let process = self.processes.get(tgid);
        process.is_some_and(|process| process.row.origin != Origin::Attached)
    }

    /// Ends the imports of processes that have had no new module for a while.
    pub(super) fn end_old_imports(&mut self, now_ns: u64) {
        let imports = self.naming.imports.as_mut();
        let ended = imports.map(|imports| imports.take_ended(now_ns));
        for tgid in ended.unwrap_or_default() {
            self.end_imports(tgid);
        }
    }

    /// From now on, stacks of imports are as whole as others.
    pub(super) fn end_imports(&mut self, tgid: u32) {
        let Some(imports) = &mut self.naming.imports else {
            return;
        };
        imports.end(tgid);
        let mut ended = self.control.kernel.set_imports(tgid, None);
        if !self.control.abilities.python_frames {
            ended = ended.and(self.control.kernel.set_interpreter(tgid, None));
        }
        if let Err(error) = ended {
            tracing::debug!("imports of process {tgid} are still summarised: {error}");
        }
    }

    /// A forked child does not begin with imports.
    pub(super) fn inherit_imports(&mut self, parent: u32, child: u32) {
        if self.control.abilities.python_frames || self.processes.interpreter(child).is_none() {
            return;
        }
        if self.finds_python_frames(parent) {
            self.end_imports(child);
        } else if let Some(imports) = &mut self.naming.imports {
            imports.end(child);
        }
    }

    /// A process runs this image; noted so that its state can be dropped later.
    pub(super) fn runs(&mut self, tgid: u32, image: u64) {
        let gone = self.processes.runs(tgid, image);
        self.forget_image(gone);
    }

    /// A process has ended, or executes another program; `image` is one that no process runs any
    /// more.
    pub(super) fn forget_code(&mut self, tgid: u32, image: Option<u64>) {
        if let Some(imports) = &mut self.naming.imports {
            imports.forget(tgid);
        }
        self.naming.stacks.forget(Owner::Process(tgid));
        self.forget_image(image);
    }

    pub(super) fn forget_image(&mut self, image: Option<u64>) {
        if let Some(image) = image {
            self.naming.pythons.forget_image(image);
            self.naming.stacks.forget(Owner::Image(image));
        }
    }
}
