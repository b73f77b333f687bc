//! Stacks as the kernel side names them → stacks of the recording.

use std::collections::HashMap;

use memtrace_common::unwind::End;

use super::{addresses::Location, modules::ModuleIndex};
use crate::event::StackId;

/// Every distinct stack so far.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    by_frames: HashMap<(Vec<Location>, End), StackId>,
    by_key: HashMap<u64, StackId>,
    /// The first file on the way out that is not the leaf's, where there is one.
    callers: HashMap<StackId, ModuleIndex>,
    /// The leaf's file, where it is in one.
    leaves: HashMap<StackId, ModuleIndex>,
}

impl Stacks {
    /// Binds a kernel-side key to the stack with these frames and this end; the
    /// frames come back if the stack is new to the recording.
    pub(super) fn learn(
        &mut self,
        key: u64,
        frames: Vec<Location>,
        end: End,
    ) -> Option<(StackId, Vec<Location>)> {
        let next = StackId(u32::try_from(self.by_frames.len() + 1).unwrap_or(u32::MAX));
        let caller = caller(&frames);
        let leaf = frames.first().and_then(|location| match location {
            Location::File(module, _) => Some(*module),
            _ => None,
        });
        let id = *self.by_frames.entry((frames.clone(), end)).or_insert(next);
        self.by_key.insert(key, id);
        if let Some(caller) = caller.filter(|_| id == next) {
            self.callers.insert(id, caller);
        }
        if let Some(leaf) = leaf.filter(|_| id == next) {
            self.leaves.insert(id, leaf);
        }
        (id == next).then_some((id, frames))
    }

    /// The file whose code called that of the leaf's.
    pub(super) fn caller(&self, id: StackId) -> Option<ModuleIndex> {
        self.callers.get(&id).copied()
    }

    /// The file that the leaf is in.
    pub(super) fn leaf(&self, id: StackId) -> Option<ModuleIndex> {
        self.leaves.get(&id).copied()
    }

    /// The stack that a key stands for; `None` if its record was lost.
    pub(super) fn find(&self, key: u64) -> Option<StackId> {
        self.by_key.get(&key).copied()
    }
}

fn caller(frames: &[Location]) -> Option<ModuleIndex> {
    let mut files = frames.iter().map_while(|location| match location {
        Location::File(module, _) => Some(*module),
        _ => None,
    });
    let leaf = files.next()?;
    files.find(|module| *module != leaf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_walks_are_one_stack_whatever_their_keys() {
        let mut stacks = Stacks::default();
        let frames = vec![Location::Anonymous(7, 1), Location::Unmapped(2)];
        let (id, _) = stacks.learn(10, frames.clone(), End::Complete).unwrap();
        assert_ne!(id, StackId::UNKNOWN);
        assert_eq!(stacks.learn(11, frames.clone(), End::Complete), None);
        let (other, _) = stacks.learn(12, frames, End::NoRow).unwrap();
        assert_ne!(other, id);
        assert_eq!((stacks.find(10), stacks.find(11)), (Some(id), Some(id)));
        assert_eq!(stacks.find(99), None);
    }
}
