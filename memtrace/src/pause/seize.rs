//! Becoming the tracer of a process that runs: of each of its threads, while it
//! makes more.

use std::{io, process};

use crate::process::{
    ptrace,
    tasks::{has_ended, threads, tracer_of},
};

/// The result: the threads that are traced now and were not before.
pub(super) fn seize_process(
    tgid: u32,
    with_children: bool,
    is_known: impl Fn(u32) -> bool,
) -> io::Result<Vec<u32>> {
    let mut seized = Vec::new();
    loop {
        let mut found_new = false;
        for tid in threads(tgid)? {
            if is_known(tid) || seized.contains(&tid) {
                continue;
            }
            match ptrace::seize(tid, with_children) {
                Ok(()) => {}
                // Made by a thread that was traced already, so it is too.
                Err(_) if tracer_of(tid) == Some(process::id()) => {}
                // It has ended, or is about to.
                Err(_) if has_ended(tid) => continue,
                Err(error) if seized.is_empty() => return Err(error),
                // Another tracer has this very thread.
                Err(_) => continue,
            }
            seized.push(tid);
            found_new = true;
        }
        // From now on every thread that is made is traced from its first instruction.
        if !found_new {
            break;
        }
    }
    match seized.is_empty() && !threads(tgid)?.into_iter().any(is_known) {
        true => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        false => Ok(seized),
    }
}

/// The threads of a process that this one traces and does not know.
pub(super) fn traced(tgid: u32, is_known: impl Fn(u32) -> bool) -> Vec<u32> {
    let mut threads = threads(tgid).unwrap_or_default();
    threads.retain(|&tid| !is_known(tid) && ptrace::traces(tid));
    threads
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn traced_threads_are_found_unless_they_are_known_as_root() {
        // Not a child of the test.
        let start = Command::new("sh")
            .args(["-c", "sleep 60 >&- 2>&- & echo $!"])
            .output();
        let tgid: u32 = String::from_utf8(start.unwrap().stdout)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        assert!(traced(tgid, |_| false).is_empty());
        assert_eq!(seize_process(tgid, false, |_| false).unwrap(), [tgid]);
        assert_eq!(traced(tgid, |_| false), [tgid]);
        assert!(traced(tgid, |_| true).is_empty());
        // SAFETY: kill takes two numbers.
        assert_eq!(unsafe { libc::kill(tgid.cast_signed(), libc::SIGKILL) }, 0);
    }
}
