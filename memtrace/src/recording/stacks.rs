//! The stacks of a recording, which share their callers and the frames of each
//! location: a program that loads large libraries has hundreds of thousands of
//! stacks of some hundred frames. Frames are looked up when a stack is shown.

use std::{collections::HashMap, iter, sync::Arc};

use super::{LocationId, Node, NodeId};
use crate::{
    event::StackId,
    frames::{Fold, Frame, Wrappers},
};
use memtrace_common::unwind::End;

/// All stacks of a recording.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stacks {
    pub(super) wrappers: Wrappers,
    /// By id, from 1.
    pub(super) locations: Vec<Box<[Arc<Frame>]>>,
    /// By id, from 1. A parent's id is smaller than its own.
    pub(super) nodes: Vec<Node>,
    pub(super) stacks: HashMap<StackId, Known>,
}

/// Properties of a stack besides its frames.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) node: NodeId,
    pub(super) end: End,
    pub(super) thread: Option<Arc<str>>,
}

/// One stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack<'a> {
    all: &'a Stacks,
    known: Option<&'a Known>,
}

impl Stacks {
    /// A stack; without frames and without an end if none could be taken, or its record was lost.
    pub(crate) fn get(&self, id: StackId) -> Stack<'_> {
        Stack {
            all: self,
            known: self.stacks.get(&id),
        }
    }

    /// All distinct frames, in no order; some more than once.
    pub(crate) fn frames(&self) -> impl Iterator<Item = &Frame> {
        self.locations.iter().flatten().map(Arc::as_ref)
    }

    fn location(&self, id: LocationId) -> &[Arc<Frame>] {
        let index = (id.0 as usize).checked_sub(1);
        let location = index.and_then(|index| self.locations.get(index));
        location.map_or(&[], |frames| frames)
    }

    fn node(&self, id: NodeId) -> Option<Node> {
        self.nodes.get((id.0 as usize).checked_sub(1)?).copied()
    }
}

impl<'a> Stack<'a> {
    /// Why its walk ended; `None`: no stack could be taken, or its record was lost.
    pub(crate) fn end(self) -> Option<End> {
        self.known.map(|known| known.end)
    }

    /// See [`super::StackRow::thread`].
    pub(crate) fn thread(self) -> Option<&'a str> {
        self.known.and_then(|known| known.thread.as_deref())
    }

    /// Whether there are no frames.
    pub(crate) fn is_empty(self) -> bool {
        self.frames().next().is_none()
    }

    /// Its frames, leaf first.
    pub(crate) fn frames(self) -> impl Iterator<Item = &'a Frame> {
        let locations = self.nodes().map(|node| self.all.location(node.location));
        locations.flatten().map(Arc::as_ref)
    }

    /// Number of frames at its leaf that lead to an allocator.
    pub(crate) fn wrappers(self) -> usize {
        self.all.wrappers.leading(self.frames())
    }

    /// Its frames without those that lead to an allocator, leaf first.
    pub(crate) fn of_caller(self) -> impl Iterator<Item = &'a Frame> {
        self.frames().skip(self.wrappers())
    }

    /// The frames that are left when it is folded, leaf first.
    pub(crate) fn shown(self, fold: Fold) -> Vec<&'a Frame> {
        fold.of(self.frames().collect(), self.wrappers())
    }

    /// The frame at which its walk ended.
    pub(crate) fn outermost(self) -> Option<&'a Frame> {
        let node = self.nodes().last()?;
        self.all.location(node.location).last().map(Arc::as_ref)
    }

    fn nodes(self) -> impl Iterator<Item = Node> {
        let innermost = self.known.and_then(|known| self.all.node(known.node));
        iter::successors(innermost, move |node| self.all.node(node.parent))
    }
}

#[cfg(test)]
impl Stacks {
    /// Adds a stack, or replaces it.
    pub(crate) fn put(
        &mut self,
        id: StackId,
        end: End,
        thread: Option<&str>,
        frames: impl IntoIterator<Item = Frame, IntoIter: DoubleEndedIterator>,
    ) {
        let mut node = NodeId::ROOT;
        for frame in frames.into_iter().rev() {
            self.locations.push(Box::new([Arc::new(frame)]));
            self.nodes.push(Node {
                parent: node,
                location: LocationId(self.locations.len() as u32),
            });
            node = NodeId(self.nodes.len() as u32);
        }
        let thread = thread.map(Into::into);
        self.stacks.insert(id, Known { node, end, thread });
    }

    /// Takes a stack away.
    pub(crate) fn remove(&mut self, id: StackId) {
        self.stacks.remove(&id);
    }
}
