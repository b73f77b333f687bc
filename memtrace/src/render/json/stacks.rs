//! Stacks and frames of a report, each once: sites and others refer to them by their places in lists.

use std::collections::HashMap;

use serde::{Serialize, Serializer};

use crate::{
    event::StackId,
    frames::{Frame, interpreter_marks},
    hash::FastMap,
    recording::Stacks,
    view::health,
};

/// The lists `stacks` and `frames`.
pub(super) struct StackTable<'a> {
    all: &'a Stacks,
    /// In the order of the list.
    listed: Vec<StackId>,
    places: FastMap<StackId, u32>,
}

/// A place in the list `stacks`; one without frames if no stack could be taken.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Place(u32);

impl<'a> StackTable<'a> {
    pub(super) fn new(all: &'a Stacks) -> Self {
        Self {
            all,
            listed: Vec::new(),
            places: FastMap::default(),
        }
    }

    /// Lists a stack, if it is not yet.
    pub(super) fn add(&mut self, id: StackId) -> Place {
        let next = self.listed.len() as u32;
        let place = *self.places.entry(id).or_insert(next);
        if place == next {
            self.listed.push(id);
        }
        Place(place)
    }

    /// Both lists, complete now.
    pub(super) fn lists(&self) -> (ListedStacks<'_>, Vec<&'a Frame>) {
        let mut frames: Vec<&'a Frame> = Vec::new();
        let mut places: HashMap<*const Frame, u32> = HashMap::new();
        for id in &self.listed {
            for frame in self.all.get(*id).frames() {
                // Stacks share their frames.
                places.entry(frame).or_insert_with(|| {
                    frames.push(frame);
                    frames.len() as u32 - 1
                });
            }
        }
        let stacks = ListedStacks {
            table: self,
            places,
        };
        (stacks, frames)
    }
}

/// The list `stacks`. Its elements are generated one at a time while it is written.
pub(super) struct ListedStacks<'a> {
    table: &'a StackTable<'a>,
    places: HashMap<*const Frame, u32>,
}

#[derive(Serialize)]
struct ListedStack<'a> {
    end: &'static str,
    thread: Option<&'a str>,
    /// Places in the list `frames`, the leaf's first.
    frames: Vec<u32>,
    /// Number of frames at the leaf that are an allocator's own.
    wrappers: usize,
    /// Indices in `frames` of the Python interpreter's own.
    interpreter: Vec<usize>,
}

impl Serialize for ListedStacks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.table.listed.iter().map(|id| {
            let stack = self.table.all.get(*id);
            let frames: Vec<&Frame> = stack.frames().collect();
            let marks = interpreter_marks(&frames).into_iter().enumerate();
            ListedStack {
                end: health::name(stack.end()),
                thread: stack.thread(),
                wrappers: stack.wrappers(),
                interpreter: marks.filter(|(_, mark)| *mark).map(|(at, _)| at).collect(),
                frames: frames
                    .iter()
                    .filter_map(|frame| self.places.get(&std::ptr::from_ref(*frame)).copied())
                    .collect(),
            }
        }))
    }
}
