//! The line of a Python program's own among its frames.

use super::Frame;

/// The innermost of Python's frames that is of no installed package and not of the standard library;
/// of a program that is installed itself, the innermost one.
pub(crate) fn innermost_of_program<'a>(
    mut python: impl Iterator<Item = &'a Frame>,
) -> Option<&'a Frame> {
    let is_of_program = |frame: &&Frame| frame.file.is_some() && !frame.is_installed();
    let innermost = python.next()?;
    if is_of_program(&innermost) {
        return Some(innermost);
    }
    python.find(is_of_program).or(Some(innermost))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::fixture::python;

    #[test]
    fn a_programs_line_is_outside_installed_files() {
        let [linear, json, own, main] = [
            (
                "/venv/lib/python3.11/site-packages/torch/nn/functional.py",
                5,
            ),
            ("/usr/lib/python3.11/json/decoder.py", 6),
            ("/srv/train.py", 7),
            ("/srv/main.py", 8),
        ]
        .map(|(file, line)| python("f", file, line));
        let line = |frames: &[&Frame]| {
            innermost_of_program(frames.iter().copied()).and_then(|frame| frame.line)
        };
        assert_eq!(line(&[&linear, &json, &own, &main]), Some(7));
        assert_eq!(line(&[&main, &own]), Some(8));
        assert_eq!(
            line(&[&json, &linear]),
            Some(6),
            "a program that is installed"
        );
        assert_eq!(line(&[]), None);
    }
}
