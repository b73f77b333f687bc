//! Names of frames. They come from traced programs, so control characters in them are escaped.

use super::{Frame, symbol};
use crate::escape::clean;

/// A frame's function or, without one, its place: `module+0xoffset`.
pub(crate) fn name(frame: &Frame) -> String {
    if let Some(function) = &frame.function {
        return clean(function);
    }
    let module = clean(frame.module_name().unwrap_or("unknown"));
    match frame.file_offset {
        Some(offset) => format!("{module}+{offset:#x}"),
        None => module,
    }
}

/// The same without C++ parameters and template arguments.
pub(crate) fn plain(frame: &Frame) -> String {
    match &frame.function {
        Some(function) if !frame.is_python() => clean(&symbol::plain(function)),
        _ => name(frame),
    }
}

/// A frame's source location, `file:line`, as recorded.
pub(crate) fn source_line(frame: &Frame) -> Option<String> {
    let file = clean(frame.file.as_deref()?);
    Some(match frame.line {
        Some(line) => format!("{file}:{line}"),
        None => file,
    })
}

/// Python's names repeat (`<module>`, `__init__`): they come with their lines.
pub(crate) fn label(frame: &Frame) -> String {
    let name = name(frame);
    match source_line(frame) {
        Some(source) if frame.is_python() => format!("{name} ({source})"),
        _ if frame.inlined => name + " (inlined)",
        _ => name,
    }
}
