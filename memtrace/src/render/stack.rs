//! Frames and stacks as lines of text.

use std::{
    io::{self, Write},
    ptr,
};

use crate::{
    escape::clean,
    frames::{
        Frame, innermost_of_program,
        library::{self, Part},
        names, own_line,
    },
    units::plural,
};

/// Innermost lines that are always shown.
const LINES: usize = 12;

/// The location of a frame: its source line, and its file or language.
pub(super) fn place(frame: &Frame) -> String {
    let mut place = String::new();
    if let Some(source) = names::source_line(frame) {
        place += &format!("  {source}");
    }
    if frame.is_python() {
        place += "  [Python]";
    } else if let (Some(module), Some(_)) = (frame.module_name(), &frame.function) {
        place += &format!("  [{}]", clean(module));
    }
    place
}

/// A frame's name, and whether it was inlined.
fn name(frame: &Frame, full: bool) -> String {
    let name = match full {
        true => names::name(frame),
        false => names::plain(frame),
    };
    match frame.inlined {
        true => name + " (inlined)",
        false => name,
    }
}

/// A frame with all that is known of it; `full`: with C++'s parameters and template arguments.
pub(super) fn line(frame: &Frame, full: bool) -> String {
    let mut line = name(frame, full);
    line += &place(frame);
    if let (Some(why), None) = (&frame.unresolved, &frame.function) {
        line += &format!(" ({})", clean(&why.to_string()));
    }
    line
}

/// A stack line by line; unless `full`, each run of frames of one library is one line.
pub(super) fn lines(frames: &[&Frame], full: bool) -> Vec<String> {
    let parts = parts(frames, full).into_iter();
    parts.map(|part| words(&part, full)).collect()
}

pub(super) fn parts<'a>(frames: &[&'a Frame], full: bool) -> Vec<Part<'a>> {
    match full {
        true => frames.iter().copied().map(Part::Frame).collect(),
        false => library::fold(frames),
    }
}

/// A part of a stack as one line.
pub(super) fn words(part: &Part, full: bool) -> String {
    match part {
        Part::Frame(frame) => line(frame, full),
        Part::Folded(library, frames) => {
            let count = plural(frames.len() as u64, "frame");
            format!("… {count} in {}", clean(library))
        }
    }
}

/// Writes the first lines of a stack and, wherever they are, the innermost Python line and the program's own.
pub(super) fn in_short(out: &mut impl Write, frames: &[&Frame], full: bool) -> io::Result<()> {
    let python = || frames.iter().copied().filter(|frame| frame.is_python());
    let wanted = [python().next(), innermost_of_program(python())];
    for entry in first(parts(frames, full), LINES, &wanted) {
        writeln!(out, "        {}", entry.words(full))?;
    }
    Ok(())
}

/// The calls of a stack as names and places, in at most this many lines. If it has more, the first ones and the
/// program's own line are among them.
pub(crate) fn calls(frames: &[&Frame], most: usize) -> Vec<(String, String)> {
    let wanted = [own_line(frames)];
    let shown = |first_lines| first(parts(frames, false), first_lines, &wanted);
    let lengths = (0..=most).rev().map(shown);
    let entries = lengths.into_iter().find(|entries| entries.len() <= most);
    let entries = entries.unwrap_or_default().into_iter();
    entries
        .map(|entry| match entry {
            Entry::Part(Part::Frame(frame)) => {
                let source = names::source_line(frame);
                let module = || frame.function.as_ref().and(frame.module_name()).map(clean);
                let place = source.or_else(module);
                (name(frame, false), place.unwrap_or_default())
            }
            entry => (entry.words(false), String::new()),
        })
        .collect()
}

/// A line of a stack that is not shown in full.
enum Entry<'a> {
    Part(Part<'a>),
    /// Frames that are left out.
    LeftOut(u64),
}

impl Entry<'_> {
    fn words(&self, full: bool) -> String {
        match self {
            Entry::Part(part) => words(part, full),
            Entry::LeftOut(frames) => format!("… {}", plural(*frames, "more frame")),
        }
    }
}

/// The first parts of a stack, and the wanted frames wherever they are.
fn first<'a>(parts: Vec<Part<'a>>, lines: usize, wanted: &[Option<&Frame>]) -> Vec<Entry<'a>> {
    // The first of each: recursion has the same frame many times.
    let places = wanted.iter().map(|wanted| {
        let is_it = |part: &Part| match (part, wanted) {
            (Part::Frame(frame), Some(wanted)) => ptr::eq(*frame, *wanted),
            _ => false,
        };
        parts.iter().position(is_it)
    });
    let places: Vec<_> = places.collect();
    let mut entries = Vec::new();
    let mut left_out = 0;
    for (index, part) in parts.into_iter().enumerate() {
        if index >= lines && !places.contains(&Some(index)) {
            left_out += match part {
                Part::Frame(_) => 1,
                Part::Folded(_, frames) => frames.len() as u64,
            };
            continue;
        }
        if left_out > 0 {
            entries.push(Entry::LeftOut(left_out));
            left_out = 0;
        }
        entries.push(Entry::Part(part));
    }
    if left_out > 0 {
        entries.push(Entry::LeftOut(left_out));
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{FrameKind, fixture::python as python_frame};

    #[test]
    fn the_lines_of_python_are_shown_however_deep() {
        let native = Frame {
            kind: FrameKind::Native,
            ..python_frame("inner", "inner.cc", 1)
        };
        let installed = python_frame("linear", "/usr/lib/python3/site-packages/torch/x.py", 2);
        let mut stack = vec![&native; LINES + 2];
        let inner = installed.clone();
        let own = python_frame("step", "/home/u/train.py", 7);
        stack.extend([&inner, &installed, &own, &own, &native]);
        let mut out = Vec::new();
        in_short(&mut out, &stack, false).unwrap();
        let out = String::from_utf8(out).unwrap();
        let lines: Vec<_> = out.lines().skip(LINES).map(str::trim).collect();
        assert_eq!(
            lines,
            [
                "… 2 more frames",
                "linear  /usr/lib/python3/site-packages/torch/x.py:2  [Python]",
                "… 1 more frame",
                "step  /home/u/train.py:7  [Python]",
                "… 2 more frames"
            ]
        );
    }
}
