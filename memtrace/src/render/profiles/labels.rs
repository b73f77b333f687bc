//! Frames as viewers show them, each once.

use std::collections::HashMap;

use crate::{
    escape::clean,
    frames::{Frame, library, names},
    render::collapsed,
    view::{Filter, Shown, group::UNKNOWN_THREAD},
};

/// A frame, or a note that takes the place of frames.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Label<'a> {
    pub name: String,
    pub file: Option<String>,
    pub line: Option<u32>,
    pub module: Option<&'a str>,
    pub code: Code,
}

/// Whose code it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Code {
    /// No code.
    Note,
    Program,
    Library,
}

/// Distinct labels, numbered in the order in which they were first needed.
#[derive(Default)]
pub(super) struct Labels<'a> {
    pub all: Vec<Label<'a>>,
    numbers: HashMap<Label<'a>, usize>,
    /// Stacks share their frames, so most are known by their addresses.
    frames: HashMap<*const Frame, usize>,
}

impl<'a> Labels<'a> {
    /// The labels of a site's stack, root first.
    pub(super) fn stack(&mut self, shown: &Shown<'a>, filter: &Filter) -> Vec<usize> {
        let thread = filter.by_thread.then(|| match shown.stack.thread() {
            Some(name) => format!("thread {}", clean(name)),
            None => UNKNOWN_THREAD.into(),
        });
        let notes = thread.into_iter().chain(collapsed::missing(shown.stack));
        let mut stack: Vec<usize> = notes.map(|note| self.note(note)).collect();
        let frames = filter.frames(shown.stack);
        stack.extend(frames.into_iter().rev().map(|frame| self.frame(frame)));
        stack
    }

    pub(super) fn note(&mut self, name: String) -> usize {
        self.number(Label {
            name,
            file: None,
            line: None,
            module: None,
            code: Code::Note,
        })
    }

    fn frame(&mut self, frame: &'a Frame) -> usize {
        if let Some(number) = self.frames.get(&std::ptr::from_ref(frame)) {
            return *number;
        }
        let number = self.number(Label {
            name: names::name(frame),
            file: frame.file.as_deref().map(clean),
            line: frame.line,
            module: frame.module.as_deref(),
            code: match library::is_own(frame) {
                true => Code::Program,
                false => Code::Library,
            },
        });
        self.frames.insert(frame, number);
        number
    }

    fn number(&mut self, label: Label<'a>) -> usize {
        if let Some(number) = self.numbers.get(&label) {
            return *number;
        }
        self.all.push(label.clone());
        self.numbers.insert(label, self.all.len() - 1);
        self.all.len() - 1
    }
}
