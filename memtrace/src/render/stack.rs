//! Frames and stacks as lines of text.

use std::{
    io::{self, Write},
    ptr,
};

use crate::{
    escape::clean,
    frames::{Frame, innermost_of_program, names},
    units::plural,
};

/// Innermost frames that are always shown.
const FRAMES: usize = 6;

/// Where a frame is: its source line, and its file or language.
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

/// A frame with all that is known of it.
pub(super) fn line(frame: &Frame) -> String {
    let mut line = names::name(frame);
    if frame.inlined {
        line += " (inlined)";
    }
    line += &place(frame);
    if let (Some(why), None) = (&frame.unresolved, &frame.function) {
        line += &format!(" ({})", clean(&why.to_string()));
    }
    line
}

/// Writes the first frames and, wherever they are, the innermost Python line and the program's own.
pub(super) fn in_short(out: &mut impl Write, frames: &[&Frame]) -> io::Result<()> {
    let python = || frames.iter().copied().filter(|frame| frame.is_python());
    let lines = [python().next(), innermost_of_program(python())];
    // The first of each: recursion has the same frame many times.
    let lines = lines.map(|wanted| {
        let is_line = |frame: &&Frame| wanted.is_some_and(|wanted| ptr::eq(wanted, *frame));
        frames.iter().position(is_line)
    });
    let mut left_out = 0;
    for (index, frame) in frames.iter().enumerate() {
        if index >= FRAMES && !lines.contains(&Some(index)) {
            left_out += 1;
            continue;
        }
        gap(out, left_out)?;
        left_out = 0;
        writeln!(out, "        {}", line(frame))?;
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
        let mut stack = vec![&native; FRAMES + 2];
        let inner = installed.clone();
        let own = python_frame("step", "/home/u/train.py", 7);
        stack.extend([&inner, &installed, &own, &own, &native]);
        let mut out = Vec::new();
        in_short(&mut out, &stack).unwrap();
        let out = String::from_utf8(out).unwrap();
        let lines: Vec<_> = out.lines().skip(FRAMES).map(str::trim).collect();
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
