//! Which function a word on a stack belongs to.

use super::super::memory::Memory;
use super::{Modules, Threads};
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

    /// Name of the function whose frame, on the stack of a thread as it is now, an address is in.
    pub(super) fn at(
        &self,
        memory: &(impl Memory + Sync + ?Sized),
        modules: &Modules,
        tid: u32,
        address: u64,
    ) -> Option<String> {
        let (registers, copy) = self.threads.with(tid, |thread| {
            let registers = arch::unwinding_from(thread.registers.as_ref()?);
            Some((registers, copy(memory, registers.sp, address)))
        })??;
        let pc = frame_of(modules, registers, &copy, address)?;
        self.name(modules, pc)
    }

    /// Name of the function that a thread is in now.
    pub(super) fn current(&self, modules: &Modules, tid: u32) -> Option<String> {
        let registers = self.threads.with(tid, |thread| thread.registers)??;
        self.name(modules, arch::unwinding_from(&registers).pc)
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

/// An address in the code whose frame `address` is in.
fn frame_of(modules: &Modules, from: Registers, copy: &StackCopy, address: u64) -> Option<u64> {
    let mut at = from;
    // For a caller, only the address after the call is known, which may belong to another function.
    let mut pc = at.pc;
    for _ in 0..MAX_FRAMES {
        if address < at.sp {
            return None;
        }
        let module = modules.containing(pc)?;
        let file = modules.open(module)?;
        let bytes = FileBytes::new(&file);
        let rule = unwind::rule_at(&bytes, pc.wrapping_sub(module.bias))?;
        let caller = step(rule, &at, copy).ok()?;
        if caller.registers.sp > address {
            return Some(pc);
        }
        at = caller.registers;
        pc = match caller.slot {
            0 => at.pc,
            _ => at.pc.wrapping_sub(1),
        };
    }
    None
}
