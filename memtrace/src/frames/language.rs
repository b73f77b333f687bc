//! The language that a program's own line is written in.

use super::{Frame, names};

/// Languages whose programs free memory in different ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    C,
    Cpp,
    Rust,
    Python,
    /// Memory of C that Go code requested by cgo.
    Cgo,
}

/// That of a stack: Python if any frame is, otherwise by the source or the name of the program's own line.
pub(crate) fn language<'a>(
    frames: impl Iterator<Item = &'a Frame>,
    own: Option<&Frame>,
) -> Option<Language> {
    if frames.into_iter().any(Frame::is_python) {
        return Some(Language::Python);
    }
    let own = own?;
    if own
        .function
        .as_deref()
        .and_then(names::called_by_go)
        .is_some()
    {
        return Some(Language::Cgo);
    }
    let ending = own.file.as_deref().and_then(|file| file.rsplit_once('.'));
    match ending.map(|(_, ending)| ending) {
        Some("c") => Some(Language::C),
        Some("rs") => Some(Language::Rust),
        Some("cc" | "cpp" | "cxx" | "c++" | "C" | "hh" | "hpp" | "hxx") => Some(Language::Cpp),
        // A header may be of either.
        Some("h") | None => of_name(own.function.as_deref()?),
        Some(_) => None,
    }
}

/// C++ names have parameters, those of C have nothing but a name.
fn of_name(function: &str) -> Option<Language> {
    let is_plain = |character: char| character.is_alphanumeric() || character == '_';
    if function.contains('(') {
        return Some(Language::Cpp);
    }
    function.chars().all(is_plain).then_some(Language::C)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::fixture::{native, python};

    #[test]
    fn a_language_is_that_of_the_source_or_the_name() {
        let of = |function: &str, file: &str| {
            let mut frame = native(function, "/srv/program");
            frame.file = (!file.is_empty()).then(|| file.into());
            language([&frame].into_iter(), Some(&frame))
        };
        assert_eq!(of("grow", "/src/grow.c"), Some(Language::C));
        assert_eq!(of("grow", "/src/grow.cc"), Some(Language::Cpp));
        assert_eq!(of("grow", "/src/grow.rs"), Some(Language::Rust));
        assert_eq!(of("grow(int)", "/src/grow.h"), Some(Language::Cpp));
        assert_eq!(of("grow(int)", ""), Some(Language::Cpp));
        assert_eq!(of("grow", ""), Some(Language::C));
        assert_eq!(of("jobs::grow", ""), None);
        assert_eq!(of("grow", "/src/grow.go"), None);
        assert_eq!(of("_cgo_1f_Cfunc_f", "/src/cgo.c"), Some(Language::Cgo));
        let own = python("grow", "/srv/grow.py", 1);
        let (alloc, none) = (
            native("alloc", "/lib/libfoo.so"),
            language([].into_iter(), None),
        );
        let frames = [&alloc, &own];
        assert_eq!(
            language(frames.into_iter(), Some(&alloc)),
            Some(Language::Python)
        );
        assert_eq!(none, None);
    }
}
