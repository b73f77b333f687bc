//! The only table of functions that start processes.

use super::{Frame, installed, symbol::plain};

/// Of the standard library of Python, by file, without their classes.
const PYTHON: &[(&str, &str)] = &[
    ("stdlib/multiprocessing/popen_fork.py", "_launch"),
    ("stdlib/multiprocessing/popen_forkserver.py", "_launch"),
    ("stdlib/multiprocessing/popen_spawn_posix.py", "_launch"),
    ("stdlib/subprocess.py", "_execute_child"),
];

/// Native ones, by their names: those of C libraries, of CPython, libuv, Java's runtime and Rust.
const NATIVE: &[&str] = &[
    "__libc_fork",
    "__spawni",
    "__spawnix",
    "_IO_new_proc_open",
    "do_system",
    "fork",
    "popen",
    "posix_spawn",
    "posix_spawnp",
    "system",
    "vfork",
    "os_fork",
    "subprocess_fork_exec",
    "uv_spawn",
    "Java_java_lang_ProcessImpl_forkAndExec",
    "std::process::Command::output",
    "std::process::Command::spawn",
    "std::process::Command::status",
];

/// Whether a function of a stack starts a process.
pub(crate) fn starts_process<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> bool {
    frames.into_iter().any(starts)
}

fn starts(frame: &Frame) -> bool {
    let Some(function) = frame.function.as_deref() else {
        return false;
    };
    if !frame.is_python() {
        return NATIVE.contains(&&*plain(function));
    }
    let name = function.rsplit('.').next().unwrap_or(function);
    let mut known = PYTHON.iter().filter(|(_, known)| *known == name);
    known.any(|(place, _)| frame.file.as_deref().and_then(installed).as_deref() == Some(*place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::fixture::{native, python};

    #[test]
    fn functions_that_start_processes_are_known() {
        let main = python("main", "/srv/main.py", 3);
        let popen = python(
            "Popen._execute_child",
            "/usr/lib/python3.12/subprocess.py",
            1885,
        );
        let own = python("_launch", "/srv/subprocess.py", 1);
        let [spawn, parse] = [
            native("__spawnix", "/usr/lib/libc.so.6"),
            native("spawn_points", "/srv/game"),
        ];
        for (frame, expected) in [
            (&popen, true),
            (&own, false),
            (&spawn, true),
            (&parse, false),
        ] {
            assert_eq!(starts_process([frame, &main]), expected, "{frame:?}");
        }
    }
}
