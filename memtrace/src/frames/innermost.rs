//! The line of a Python program's own among its frames.

use super::{Frame, installed};

/// Functions that run an event loop, by file. The frames outside only started it.
const LOOPS: &[(&str, &[&str])] = &[
    (
        "stdlib/asyncio/base_events.py",
        &["run_forever", "run_until_complete", "_run_once"],
    ),
    ("stdlib/asyncio/events.py", &["_run"]),
    ("stdlib/asyncio/runners.py", &["run"]),
    ("stdlib/sched.py", &["run"]),
    (
        "stdlib/socketserver.py",
        &["serve_forever", "_handle_request_noblock"],
    ),
    ("stdlib/tkinter/__init__.py", &["mainloop", "__call__"]),
    (
        "site-packages/celery/worker/loops.py",
        &["asynloop", "synloop"],
    ),
    ("site-packages/eventlet/hubs/hub.py", &["run"]),
    ("site-packages/gevent/hub.py", &["run"]),
    (
        "site-packages/kombu/asynchronous/hub.py",
        &["run_forever", "run_once", "create_loop"],
    ),
    (
        "site-packages/paho/mqtt/client.py",
        &["loop_forever", "loop", "_loop"],
    ),
    (
        "site-packages/pika/adapters/select_connection.py",
        &["start", "poll"],
    ),
    ("site-packages/simpy/core.py", &["run", "step"]),
    ("site-packages/trio/_core/_run.py", &["run", "unrolled_run"]),
    (
        "site-packages/twisted/internet/base.py",
        &["run", "mainLoop", "runUntilCurrent"],
    ),
    (
        "site-packages/twisted/internet/epollreactor.py",
        &["doPoll"],
    ),
    (
        "site-packages/twisted/internet/posixbase.py",
        &["_doReadOrWrite"],
    ),
    ("site-packages/uvloop/__init__.py", &["run", "wrapper"]),
];

/// `function` may have its class before it.
fn runs_loop(file: &str, function: &str) -> bool {
    let name = function.rsplit('.').next().unwrap_or(function);
    let of_file = LOOPS.iter().find(|(loops, _)| *loops == file);
    of_file.is_some_and(|(_, functions)| functions.contains(&name))
}

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
        let function = frame.function.as_deref().unwrap_or_default();
        if !runs_loop(file, function) {
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
        let [streams, client, run, own, main, pool, ask] = [
            ("read", "/usr/lib/python3.12/asyncio/streams.py", 5),
            (
                "get",
                "/venv/lib/python3.12/site-packages/aiohttp/client.py",
                6,
            ),
            ("Handle._run", "/usr/lib/python3.12/asyncio/events.py", 7),
            ("handle", "/srv/handlers.py", 8),
            ("<module>", "/srv/main.py", 9),
            (
                "submit",
                "/usr/lib/python3.12/concurrent/futures/thread.py",
                10,
            ),
            (
                "BaseEventLoop.run_in_executor",
                "/usr/lib/python3.12/asyncio/base_events.py",
                11,
            ),
        ]
        .map(|(function, file, line)| python(function, file, line));
        let line = |frames: &[&Frame]| {
            innermost_of_program(frames.iter().copied()).and_then(|frame| frame.line)
        };
        assert_eq!(line(&[&streams, &client, &own, &run, &main]), Some(8));
        assert_eq!(line(&[&streams, &client, &run, &main]), Some(6));
        assert_eq!(line(&[&streams, &run, &main]), Some(5));
        assert_eq!(line(&[&run, &run, &main]), Some(9), "the loop itself");
        assert_eq!(line(&[&pool, &ask, &own, &run, &main]), Some(8), "a call");
    }
}
