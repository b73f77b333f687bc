//! The roots: modules, frames of threads, and the interpreter's own state.

use super::{
    super::{
        memory::{Circle, Memory},
        reference::{Check, Label, Name, Reference, cost},
    },
    Python, dict,
    frames::{self, code_of},
    layout::flag,
    words::{Words, is_pointer},
};
use memtrace_common::python::{Interpreter, NONE};
use std::ops::Range;

/// Where a path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Root {
    /// An entry of `sys.modules`.
    Module(Name),
    /// A call that has not returned: address of its code object, and of the instruction as
    /// [`CodeObject::line`](crate::python::CodeObject::line) takes it.
    Frame { code: u64, instruction: u32 },
    /// The state of a thread: exceptions, thread-local variables, the context. `pthread_self` of it.
    Thread(u64),
    /// The interpreter's state.
    Interpreter,
    /// Functions called when the interpreter ends.
    AtExit,
}

/// Takes the roots, one by one.
pub(in super::super) type VisitRoot<'a> = dyn FnMut(Root, &Reference<'_>) + 'a;

/// Most interpreters, and threads of each; most frames of a thread. A list may be torn, or be a circle.
const MOST_INTERPRETERS: usize = 1 << 10;
const MOST_THREADS: usize = 1 << 16;
const MOST_FRAMES: usize = 1 << 20;

/// Walks of a thread's frames before an incomplete one is taken.
const TRIES: usize = 20;

impl Python {
    /// Modules come first.
    pub(in super::super) fn roots(&self, memory: &dyn Memory, visit: &mut VisitRoot<'_>) {
        let words = &mut Words::new(memory);
        let at = &self.at;
        let interpreters = interpreters(at, words);
        for &interpreter in &interpreters {
            self.modules(words, interpreter, visit);
        }
        for &interpreter in &interpreters {
            let first = words.at(interpreter + u64::from(at.interpreter_threads));
            for thread in list(words, first, at.thread_next, MOST_THREADS) {
                // The outermost first: among frames with the same object, it is the one that lives longest.
                for frame in self.frames(words.memory(), thread).into_iter().rev() {
                    self.frame(&mut words.again(), frame, visit);
                }
                let id = words.at(thread + u64::from(at.thread_id));
                let root = Root::Thread(id.unwrap_or(0));
                self.objects(words, thread, 0, self.layout.thread_size, root, visit);
            }
            self.at_exit(words, interpreter, visit);
            for part in self.layout.interpreter_words {
                let root = Root::Interpreter;
                self.objects(words, interpreter, part.start, part.end, root, visit);
            }
        }
    }

    /// Addresses of the states of interpreters and threads. Their own objects are among the roots; their other words
    /// lead to freed memory.
    pub(in super::super) fn states(&self, memory: &dyn Memory) -> Vec<u64> {
        let words = &mut Words::new(memory);
        let mut states = interpreters(&self.at, words);
        states.extend(self.threads(words));
        states
    }

    /// Memory of the frames of all threads, since 3.11 (`_PyStackChunk`, Python/pystate.c), and where the part in use of each
    /// ends. Frames are read one by one: the words behind them lead to freed memory.
    pub(in super::super) fn stacks(&self, memory: &dyn Memory) -> Vec<(Range<u64>, u64)> {
        /// Of a chunk: the one before, its size, and where its used part ended; then its words.
        const HEADER: u64 = 24;
        const LEAST: u64 = 16 << 10;
        const MOST: u64 = 1 << 30;
        let mut stacks = Vec::new();
        let words = &mut Words::new(memory);
        for thread in self.threads(words) {
            let words = &mut words.again();
            let fields = (0..self.layout.thread_size + HEADER).step_by(8);
            // The chunk, its top and its end are beside each other; nothing else is like them.
            for at in fields.map(|offset| thread + offset) {
                let [Some(chunk), Some(top), Some(end)] =
                    [0, 8, 16].map(|next| words.at(at + next))
                else {
                    break;
                };
                let size = end.wrapping_sub(chunk);
                let has_size = |size: u64| memory.word(chunk + 8) == Some(size);
                if is_pointer(chunk)
                    && (LEAST..MOST).contains(&size)
                    && (chunk + HEADER..=end).contains(&top)
                    && has_size(size)
                {
                    stacks.push((chunk..end, top));
                    let earlier =
                        std::iter::successors(memory.word(chunk), |&chunk| memory.word(chunk));
                    let mut circle = Circle::default();
                    for chunk in earlier.take_while(|&it| is_pointer(it) && !circle.closes(it)) {
                        let size = memory
                            .word(chunk + 8)
                            .filter(|size| (LEAST..MOST).contains(size));
                        let end = chunk + size.unwrap_or(0);
                        stacks.push((chunk..end, end));
                    }
                    break;
                }
            }
        }
        stacks
    }

    fn modules(
        &self,
        words: &mut Words<'_>,
        interpreter: u64,
        visit: &mut VisitRoot<'_>,
    ) -> Option<()> {
        let at = interpreter + self.layout.modules;
        let modules = words.at(at).filter(|&it| is_pointer(it))?;
        let is_there = Check::equal(at, modules);
        let memory = words.memory();
        dict::entries(
            &self.layout,
            words,
            modules,
            &mut |key, target, in_dict: &[Check]| {
                let is_name = |ty: &super::types::Type| ty.flags & flag::STR != 0;
                if !self.types.of(memory, key).is_some_and(|ty| is_name(&ty)) {
                    return;
                }
                let mut checks = [is_there; 5];
                let count = in_dict.len().min(4);
                checks[1..=count].copy_from_slice(&in_dict[..count]);
                let reference = Reference {
                    target,
                    label: Label::Value(key),
                    cost: cost::TYPED,
                    checks: &checks[..=count],
                };
                visit(Root::Module(Name::Object(key)), &reference);
            },
        );
        Some(())
    }

    /// Calls of all threads that have not returned, see [`Root::Frame`]: code object and instruction.
    pub(in super::super) fn calls(&self, memory: &dyn Memory) -> Vec<(u64, u32)> {
        let words = &mut Words::new(memory);
        let threads = self.threads(words);
        let frames = threads.iter().flat_map(|&it| self.frames(memory, it));
        let calls = frames.filter_map(|frame| self.call(words, frame));
        calls.map(|(code, _, at)| (code, at)).collect()
    }

    /// Addresses of the states of threads.
    fn threads(&self, words: &mut Words<'_>) -> Vec<u64> {
        let mut threads = Vec::new();
        for interpreter in interpreters(&self.at, words) {
            let first = words.at(interpreter + u64::from(self.at.interpreter_threads));
            threads.extend(list(words, first, self.at.thread_next, MOST_THREADS));
        }
        threads
    }

    /// Frames of a thread, the innermost first. The thread runs on, so a walk may end in a frame that has returned: then
    /// it is tried again, and the longest one counts.
    fn frames(&self, memory: &dyn Memory, thread: u64) -> Vec<u64> {
        let mut frames = Vec::new();
        for _ in 0..TRIES {
            let mut walked = Vec::new();
            let is_whole = self.walk(memory, thread, &mut walked).is_some();
            if is_whole || walked.len() > frames.len() {
                frames = walked;
            }
            if is_whole {
                break;
            }
        }
        frames
    }

    /// The addresses of a thread's frames; `None` if they do not end as those of a thread do.
    fn walk(&self, memory: &dyn Memory, thread: u64, frames: &mut Vec<u64>) -> Option<()> {
        let at = &self.at;
        let words = &mut Words::new(memory);
        let mut frame = words.at(thread + u64::from(at.thread_frame))?;
        if at.cframe_frame != NONE && is_pointer(frame) {
            frame = words.at(frame + u64::from(at.cframe_frame))?;
        }
        let mut circle = Circle::default();
        while frame != 0 {
            if !is_pointer(frame) || circle.closes(frame) || frames.len() >= MOST_FRAMES {
                return None;
            }
            frames.push(frame);
            frame = words.at(frame + u64::from(at.frame_previous))?;
        }
        Some(())
    }

    /// Code object of a frame, the proof of it, and the instruction.
    fn call(&self, words: &mut Words<'_>, frame: u64) -> Option<(u64, Check, u32)> {
        let at = &self.at;
        // Since 3.12 there are marks between frames, see `Interpreter::frame_boundary`.
        if at.minor >= 12 && words.memory().byte(frame + u64::from(at.frame_boundary))? >= 3 {
            return None;
        }
        let (code, of_code) = code_of(words, frame, at.frame_code.into())?;
        let place = frame + u64::from(at.frame_instruction);
        let instruction = if at.code_instructions == NONE {
            words.memory().half(place)?
        } else {
            let begin = code + u64::from(at.code_instructions);
            words.at(place)?.wrapping_sub(begin) as u32
        };
        Some((code, of_code, instruction))
    }

    fn frame(&self, words: &mut Words<'_>, frame: u64, visit: &mut VisitRoot<'_>) -> Option<()> {
        let (code, of_code, instruction) = self.call(words, frame)?;
        let root = Root::Frame { code, instruction };
        frames::references(
            &self.layout,
            words,
            frame,
            code,
            &[of_code],
            &mut |reference| visit(root, reference),
        )
    }

    /// Words of a structure that are objects.
    fn objects(
        &self,
        words: &mut Words<'_>,
        structure: u64,
        start: u64,
        end: u64,
        root: Root,
        visit: &mut VisitRoot<'_>,
    ) {
        for offset in (start..end).step_by(8) {
            let at = structure + offset;
            let Some(target) = words.at(at) else { continue };
            if self.is_object(words.memory(), target) {
                let reference = Reference {
                    target,
                    label: Label::Word(offset),
                    cost: cost::INCIDENTAL,
                    checks: &[Check::equal(at, target)],
                };
                visit(root, &reference);
            }
        }
    }

    /// How many functions are registered by `atexit`; `None`: they are in a list, or their place is not known.
    pub(in super::super) fn at_exit_length(&self, memory: &dyn Memory) -> Option<u64> {
        let offset = self.layout.atexit?;
        let interpreters = interpreters(&self.at, &mut Words::new(memory)).into_iter();
        let lengths = interpreters.filter_map(|it| memory.half(it + offset + 8));
        Some(lengths.map(u64::from).sum())
    }

    /// Functions registered by `atexit` and their arguments; since 3.14 they are in a list.
    fn at_exit(
        &self,
        words: &mut Words<'_>,
        interpreter: u64,
        visit: &mut VisitRoot<'_>,
    ) -> Option<()> {
        const MOST: u64 = 1 << 20;
        let at = interpreter + self.layout.atexit?;
        let table = words.at(at).filter(|&it| is_pointer(it))?;
        let count = words.memory().half(at + 8)?;
        for index in 0..u64::from(count).min(MOST) {
            let slot = table + index * 8;
            let entry = words.at(slot)?;
            if !is_pointer(entry) {
                continue;
            }
            let mut entries = words.again();
            for (offset, what) in [(0, "a function"), (8, "arguments"), (16, "arguments")] {
                let target = entries.at(entry + offset)?;
                if is_pointer(target) {
                    let reference = Reference {
                        target,
                        label: Label::Internal(what),
                        cost: cost::TYPED,
                        checks: &[
                            Check::equal(at, table),
                            Check::equal(slot, entry),
                            Check::equal(entry + offset, target),
                        ],
                    };
                    visit(Root::AtExit, &reference);
                }
            }
        }
        Some(())
    }
}

/// Addresses of the interpreters' states.
pub(super) fn interpreters(at: &Interpreter, words: &mut Words<'_>) -> Vec<u64> {
    let first = words.at(at.runtime + u64::from(at.runtime_interpreters));
    list(words, first, at.interpreter_next, MOST_INTERPRETERS)
}

/// The elements of a linked list.
fn list(words: &mut Words<'_>, first: Option<u64>, next: u32, most: usize) -> Vec<u64> {
    let mut elements = Vec::new();
    let mut element = first.filter(|&it| is_pointer(it));
    let mut circle = Circle::default();
    while let Some(it) = element.filter(|&it| elements.len() < most && !circle.closes(it)) {
        elements.push(it);
        element = words
            .at(it + u64::from(next))
            .filter(|&next| is_pointer(next));
    }
    elements
}
