//! Stacks of Python's imports.

use super::Frame;

/// Files of the import system, which is frozen into the interpreter.
const IMPORT_SYSTEM: &str = "<frozen importlib.";

/// Whether a stack belongs to an import: modules that a program loads once stay.
pub(crate) fn is_import<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> bool {
    frames.into_iter().any(|frame| {
        let file = frame.file.as_deref();
        frame.is_python() && file.is_some_and(|file| file.starts_with(IMPORT_SYSTEM))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::fixture::python;

    #[test]
    fn an_import_is_known_by_the_import_system() {
        let module = python("<module>", "/srv/shapes.py", 3);
        let load = python("_find_and_load", "<frozen importlib._bootstrap>", 1178);
        let main = python("<module>", "/srv/main.py", 1);
        assert!(is_import([&module, &load, &main]));
        assert!(!is_import([&module, &main]));
    }
}
