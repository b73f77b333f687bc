//! What a frame is called. Names come from traced programs, so control
//! characters in them are escaped.

use super::Frame;
use crate::escape::clean;

/// A frame's function or, where there is none, where its code is: `module+0xoffset`.
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

/// Where a frame is in its source, `file:line`, as recorded.
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

/// A demangled name without arguments, template arguments and the type that it returns.
pub(crate) fn plain(function: &str) -> String {
    let mut plain = String::new();
    let mut depth = 0_usize;
    for (at, c) in function.char_indices() {
        match c {
            '<' if at > 0 && !function[..at].ends_with("operator") => depth += 1,
            '>' if depth > 0 => depth -= 1,
            '(' if depth == 0 && at > 0 => break,
            _ if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    match plain.split_once(' ') {
        Some((_, name)) if !plain.starts_with(['<', '(']) => name.to_owned(),
        _ => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_arguments_and_results() {
        for (name, expected) in [
            ("void std::vector<A<B>>::f<C>(D<E>)", "std::vector::f"),
            ("list_resize", "list_resize"),
            (
                "<alloc::vec::Vec<T> as X>::extend",
                "<alloc::vec::Vec as X>::extend",
            ),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
        ] {
            assert_eq!(plain(name), expected);
        }
    }
}
