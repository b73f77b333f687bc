//! The stacks of a page as one tree: strings, frames and nodes refer to each other by their places.

use std::collections::HashMap;

use serde::Serialize;

use crate::{
    escape::clean,
    frames::{Frame, library, names},
};

/// The kind of a frame, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Own = 0,
    Library = 1,
    /// Stands for missing frames.
    Note = 2,
}

/// Distinct texts.
#[derive(Debug, Default)]
pub(super) struct Strings {
    list: Vec<String>,
    places: HashMap<String, usize>,
}

impl Strings {
    pub(super) fn add(&mut self, text: String) -> usize {
        if let Some(place) = self.places.get(&text) {
            return *place;
        }
        let place = self.list.len();
        self.list.push(text.clone());
        self.places.insert(text, place);
        place
    }
}

/// The part of a page's data that its stacks are made of.
#[derive(Debug, Default, Serialize)]
pub(super) struct Stacks {
    strings: Vec<String>,
    /// Places of name and location in the strings, and kind.
    frames: Vec<(usize, usize, u8)>,
    /// Of each node, the distance to its parent, which comes before it; 0: a root.
    parents: Vec<usize>,
    node_frames: Vec<usize>,
    /// Name and location of program lines.
    lines: Vec<(usize, usize)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Tree {
    strings: Strings,
    frames: Vec<(usize, usize, u8)>,
    frame_places: HashMap<(usize, usize, u8), usize>,
    /// Frames met before, by address: most are met many times.
    met: HashMap<*const Frame, usize>,
    /// Parent and frame.
    nodes: Vec<(Option<usize>, usize)>,
    children: HashMap<(Option<usize>, usize), usize>,
    lines: Vec<(usize, usize)>,
    line_places: HashMap<String, usize>,
}

/// The location of a frame: its source line or its file.
fn location(frame: &Frame) -> String {
    let file = || frame.module_name().map(clean).unwrap_or_default();
    names::source_line(frame).unwrap_or_else(file)
}

impl Tree {
    /// The place of a frame.
    pub(super) fn frame(&mut self, frame: &Frame) -> usize {
        if let Some(place) = self.met.get(&std::ptr::from_ref(frame)) {
            return *place;
        }
        let inlined = if frame.inlined { " (inlined)" } else { "" };
        let kind = match library::is_own(frame) {
            true => Kind::Own,
            false => Kind::Library,
        };
        let place = self.named(names::plain(frame) + inlined, location(frame), kind);
        self.met.insert(std::ptr::from_ref(frame), place);
        place
    }

    /// The place of a note in the place of frames.
    pub(super) fn note(&mut self, text: &str) -> usize {
        self.named(clean(text), String::new(), Kind::Note)
    }

    fn named(&mut self, name: String, location: String, kind: Kind) -> usize {
        let frame = (
            self.strings.add(name),
            self.strings.add(location),
            kind as u8,
        );
        let next = self.frames.len();
        let place = *self.frame_places.entry(frame).or_insert(next);
        if place == next {
            self.frames.push(frame);
        }
        place
    }

    /// The node of a stack, given its frames, outermost first; at least one.
    pub(super) fn node(&mut self, frames: impl IntoIterator<Item = usize>) -> usize {
        let mut node = None;
        for frame in frames {
            let next = self.nodes.len();
            let place = *self.children.entry((node, frame)).or_insert(next);
            if place == next {
                self.nodes.push((node, frame));
            }
            node = Some(place);
        }
        node.unwrap_or_default()
    }

    /// The place of a program line, which is the same for equal keys.
    pub(super) fn line(&mut self, key: String, frame: Option<&Frame>) -> usize {
        if let Some(place) = self.line_places.get(&key) {
            return *place;
        }
        let (name, location) = match frame {
            Some(frame) => (names::plain(frame), location(frame)),
            None => (clean(&key), String::new()),
        };
        let line = (self.strings.add(name), self.strings.add(location));
        let place = self.lines.len();
        self.lines.push(line);
        self.line_places.insert(key, place);
        place
    }

    /// The finished tree.
    pub(super) fn stacks(self) -> Stacks {
        let nodes = self.nodes.iter().enumerate();
        let parents = nodes.map(|(place, (parent, _))| parent.map_or(0, |parent| place - parent));
        Stacks {
            strings: self.strings.list,
            parents: parents.collect(),
            node_frames: self.nodes.iter().map(|(_, frame)| *frame).collect(),
            frames: self.frames,
            lines: self.lines,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::fixture::python;

    #[test]
    fn equal_callers_are_one_node() {
        let mut tree = Tree::default();
        let frames = [
            python("main", "/a.py", 1),
            python("f", "/a.py", 2),
            python("g", "/a.py", 3),
        ];
        let [main, f, g] = [0, 1, 2].map(|index| tree.frame(&frames[index]));
        assert_eq!(tree.frame(&frames[1].clone()), f, "an equal frame");
        let first = tree.node([main, f]);
        let second = tree.node([main, g]);
        assert_eq!(tree.node([main, f]), first);
        let stacks = tree.stacks();
        assert_eq!(stacks.parents, [0, 1, 2]);
        assert_eq!(stacks.node_frames[first], f);
        assert_eq!(stacks.node_frames[second], g);
        let (name, location, kind) = stacks.frames[g];
        assert_eq!(stacks.strings[name], "g");
        assert_eq!(stacks.strings[location], "/a.py:3");
        assert_eq!(kind, Kind::Own as u8);
    }
}
