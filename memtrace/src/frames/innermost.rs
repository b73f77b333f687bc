//! The line of a Python program's own among its frames.

use super::{Frame, installed};

/// Files that run an event loop. The frames outside only started it.
const LOOPS: &[&str] = &[
    "stdlib/asyncio/base_events.py",
    "stdlib/asyncio/events.py",
    "stdlib/asyncio/runners.py",
    "site-packages/trio/_core/_run.py",
    "site-packages/uvloop/__init__.py",
];

/// The innermost of Python's frames that is of no installed package and not of the standard library. Without one, the
/// innermost one; if it runs in an event loop, rather that of a package.
pub(crate) fn innermost_of_program<'a>(
    python: impl Iterator<Item = &'a Frame>,
) -> Option<&'a Frame> {
    let is_of_program = |frame: &Frame| frame.file.is_some() && !frame.is_installed();
    let (mut of_loop, mut of_library, mut of_package) = (None, None, None);
    for frame in python {
        if is_of_program(frame) {
            return Some(frame);
        }
        let file = frame.file.as_deref().and_then(installed);
        let file = file.as_deref().unwrap_or_default();
        if !LOOPS.contains(&file) {
            of_library = of_library.or(Some(frame));
            let is_package = !file.starts_with("stdlib/");
            of_package = of_package.or(Some(frame).filter(|_| is_package));
        } else if of_library.is_some() {
            return of_package.or(of_library);
        } else {
            of_loop = of_loop.or(Some(frame));
        }
    }
    of_library.or(of_loop)
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

    #[test]
    fn what_runs_in_an_event_loop_is_not_of_the_line_that_started_it() {
        let [streams, client, run, own, main] = [
            ("/usr/lib/python3.12/asyncio/streams.py", 5),
            ("/venv/lib/python3.12/site-packages/aiohttp/client.py", 6),
            ("/usr/lib/python3.12/asyncio/events.py", 7),
            ("/srv/handlers.py", 8),
            ("/srv/main.py", 9),
        ]
        .map(|(file, line)| python("f", file, line));
        let line = |frames: &[&Frame]| {
            innermost_of_program(frames.iter().copied()).and_then(|frame| frame.line)
        };
        assert_eq!(line(&[&streams, &client, &own, &run, &main]), Some(8));
        assert_eq!(line(&[&streams, &client, &run, &main]), Some(6));
        assert_eq!(line(&[&streams, &run, &main]), Some(5));
        assert_eq!(line(&[&run, &run, &main]), Some(9), "the loop itself");
    }
}
