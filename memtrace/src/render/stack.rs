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
        names,
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

/// A frame with all that is known of it; `full`: with C++'s parameters and template arguments.
pub(super) fn line(frame: &Frame, full: bool) -> String {
    let mut line = match full {
        true => names::name(frame),
        false => names::plain(frame),
    };
    if frame.inlined {
        line += " (inlined)";
    }
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
    let parts = parts(frames, full);
    // The first of each: recursion has the same frame many times.
    let wanted = wanted.map(|wanted| {
        let is_it = |part: &Part| match (part, wanted) {
            (Part::Frame(frame), Some(wanted)) => ptr::eq(*frame, wanted),
            _ => false,
        };
        parts.iter().position(is_it)
    });
    let mut left_out = 0;
    for (index, part) in parts.into_iter().enumerate() {
        if index >= LINES && !wanted.contains(&Some(index)) {
            left_out += match part {
                Part::Frame(_) => 1,
                Part::Folded(_, frames) => frames.len() as u64,
            };
            continue;
        }
        gap(out, left_out)?;
        left_out = 0;
        writeln!(out, "        {}", words(&part, full))?;
    }
    gap(out, left_out)
}

fn gap(out: &mut impl Write, frames: u64) -> io::Result<()> {
    if frames > 0 {
        writeln!(out, "        … {}", plural(frames, "more frame"))?;
    }
    Ok(())
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
