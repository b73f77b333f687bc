//! Which function a word on a stack belongs to.

use super::super::memory::Memory;
use super::{Modules, Threads, modules::Module};
use crate::{
    arch,
    file::FileBytes,
    names::{ModuleKey, Place},
    process_root::Root,
    unwind,
};
use memtrace_common::unwind::{Memory as Stack, Registers, step};
use std::{cell::RefCell, collections::HashMap};

/// Most frames that are walked.
const MAX_FRAMES: usize = 1000;

/// Most of a stack that is copied, bytes.
const MAX_COPY: u64 = 1 << 20;

/// Bytes copied beyond the word, which usually include the end of the frame.
const BEYOND: u64 = 16 << 10;

/// Names functions of stacks.
pub(super) struct Functions {
    pid: u32,
    threads: Threads,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// By the start of the file in memory.
    files: HashMap<u64, ModuleKey>,
    names: HashMap<u64, Option<String>>,
}

/// The part of a stack that was copied while its thread was stopped.
struct StackCopy {
    start: u64,
    bytes: Vec<u8>,
}

impl Stack for StackCopy {
    fn read(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let word = self.bytes.get(at..)?.first_chunk()?;
        Some(u64::from_le_bytes(*word))
    }
}

impl Functions {
    pub(super) fn new(pid: u32, threads: Threads) -> Self {
        Self {
            threads,
            pid,
            state: RefCell::default(),
        }
    }

    /// Name of the function whose frame, on the stack of a thread as it is now, an address is in, as [`Functions::named`].
    pub(super) fn at(
        &self,
        memory: &(impl Memory + Sync + ?Sized),
        modules: &Modules,
        tid: u32,
        address: u64,
    ) -> Option<String> {
        let (registers, copy) = self.stack(memory, tid, Some(address))?;
        self.named(modules, frames_from(modules, registers, &copy, address))
    }

    /// Name of the function that a thread is in now, as [`Functions::named`].
    pub(super) fn current(
        &self,
        memory: &(impl Memory + Sync + ?Sized),
        modules: &Modules,
        tid: u32,
    ) -> Option<String> {
        let (registers, copy) = self.stack(memory, tid, None)?;
        let mut frames = frames_from(modules, registers, &copy, registers.sp).peekable();
        match frames.peek() {
            Some(_) => self.named(modules, frames),
            // Nothing says how to leave it.
            None => self.named(modules, std::iter::once(registers.pc)),
        }
    }

    /// Name of the first function of these. For one of the C library, also the function that called it: a word of its
    /// frame, or one of its registers, may be a variable of that one, which it keeps for it.
    fn named(&self, modules: &Modules, mut pcs: impl Iterator<Item = u64>) -> Option<String> {
        let pc = pcs.next()?;
        let name = self.name(modules, pc)?;
        let is_of_libc = |pc: &u64| modules.containing(*pc).is_some_and(Module::is_libc);
        let caller = match is_of_libc(&pc) {
            true => pcs.find(|pc| !is_of_libc(pc)),
            false => None,
        };
        Some(match caller.and_then(|pc| self.name(modules, pc)) {
            Some(caller) => format!("{}, called by {}", called(&name), called(&caller)),
            None => called(&name),
        })
    }

    /// Registers of a thread, and its stack up to an address; `None`: where it is now.
    fn stack(
        &self,
        memory: &(impl Memory + Sync + ?Sized),
        tid: u32,
        address: Option<u64>,
    ) -> Option<(Registers, StackCopy)> {
        self.threads.with(tid, |thread| {
            let registers = arch::unwinding_from(thread.registers.as_ref()?);
            let copy = copy(memory, registers.sp, address.unwrap_or(registers.sp));
            Some((registers, copy))
        })?
    }

    /// Name of the function that an address is in.
    fn name(&self, modules: &Modules, pc: u64) -> Option<String> {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        if let Some(name) = state.names.get(&pc) {
            return name.clone();
        }
        let module = modules.containing(pc)?;
        let mut namer = modules.namer();
        let key = match state.files.get(&module.range.start) {
            Some(&key) => key,
            None => {
                let file = modules.open(module)?;
                let root = Root::of_process(self.pid).ok();
                let key = namer.add(Modules::path(module), file, None, root);
                state.files.insert(module.range.start, key);
                key
            }
        };
        let place = Place::VirtOffset(pc.wrapping_sub(module.bias));
        let mut name = None;
        namer.name(key, &[place], |named| {
            name = named
                .frames
                .into_iter()
                .next_back()
                .and_then(|frame| frame.function);
        });
        state.names.insert(pc, name.clone());
        name
    }
}

fn copy(memory: &(impl Memory + ?Sized), sp: u64, address: u64) -> StackCopy {
    let wanted = address
        .saturating_sub(sp)
        .saturating_add(BEYOND)
        .min(MAX_COPY);
    let mut bytes = vec![0; wanted as usize];
    if !memory.read(sp, &mut bytes) {
        // The stack ends before.
        let mut len = 0;
        while len < bytes.len() {
            let page = 4096 - (sp as usize + len) % 4096;
            let end = (len + page).min(bytes.len());
            if !memory.read(sp + len as u64, &mut bytes[len..end]) {
                break;
            }
            len = end;
        }
        bytes.truncate(len);
    }
    StackCopy { start: sp, bytes }
}

/// Addresses in the code of the function whose frame `address` is in, and of its callers.
fn frames_from<'a>(
    modules: &'a Modules,
    from: Registers,
    copy: &'a StackCopy,
    address: u64,
) -> impl Iterator<Item = u64> + 'a {
    // For a caller, only the address after the call is known, which may belong to another function.
    let mut next = (address >= from.sp).then_some((from, from.pc));
    let frames = std::iter::from_fn(move || {
        let (at, pc) = next?;
        let caller = || {
            let module = modules.containing(pc)?;
            let file = modules.open(module)?;
            let bytes = FileBytes::new(&file);
            let rule = unwind::rule_at(&bytes, pc.wrapping_sub(module.bias))?;
            step(rule, &at, copy).ok()
        };
        let caller = caller();
        next = caller.as_ref().map(|caller| {
            let behind = u64::from(caller.slot != 0);
            (caller.registers, caller.registers.pc.wrapping_sub(behind))
        });
        // Where its frame ends is not known without its caller.
        Some((pc, caller?.registers.sp))
    });
    let is_inside = move |&(_, end): &(u64, u64)| end > address;
    let frames = frames
        .take(MAX_FRAMES)
        .skip_while(move |frame| !is_inside(frame));
    frames.map(|(pc, _)| pc)
}

/// A function's name as a call: demangled ones have their parameters already.
fn called(name: &str) -> String {
    match name.ends_with(')') {
        true => name.to_owned(),
        false => format!("{name}()"),
    }
}
