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

/// The function of C that a stub of cgo calls: `_cgo_5889f35c3b43_Cfunc__Cmalloc` is `C.malloc`.
pub(super) fn called_by_go(function: &str) -> Option<&str> {
    let (_, name) = function.strip_prefix("_cgo_")?.split_once("_Cfunc_")?;
    let name = name.strip_prefix("_C").unwrap_or(name);
    (!name.is_empty()).then_some(name)
}

/// The same without C++ parameters and template arguments.
pub(crate) fn plain(frame: &Frame) -> String {
    if let Some(name) = frame.function.as_deref().and_then(called_by_go) {
        return format!("C.{} (called by Go code)", clean(name));
    }
    match &frame.function {
        Some(function) if function.starts_with("Unsafe_AllocateMemory") => {
            "Unsafe.allocateMemory (Java's direct buffers use it)".into()
        }
        Some(function) if !frame.is_python() => clean(&symbol::plain(function)),
        _ => name(frame),
    }
}

/// A frame's source location, `file:line`, as recorded; not that of a stub of cgo, which no one wrote.
pub(crate) fn source_line(frame: &Frame) -> Option<String> {
    if frame.function.as_deref().and_then(called_by_go).is_some() {
        return None;
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::fixture::native;

    #[test]
    fn stubs_of_cgo_are_named_as_in_go() {
        let mut stub = native("_cgo_5889f35c3b43_Cfunc__Cmalloc", "/srv/server");
        stub.file = Some("/tmp/go-build/_cgo_export.c".into());
        assert_eq!(plain(&stub), "C.malloc (called by Go code)");
        assert_eq!(source_line(&stub), None);
        let own = native("_cgo_5889f35c3b43_Cfunc_make_table", "/srv/server");
        assert_eq!(plain(&own), "C.make_table (called by Go code)");
        assert_eq!(
            plain(&native("_cgo_topofstack", "/srv/server")),
            "_cgo_topofstack"
        );
    }
}
