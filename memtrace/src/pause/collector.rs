//! The collector as the pauser sees it: at work, stopped, or on its way out.

use std::{fs, io, os::unix::fs::FileExt};

/// `PF_EXITING`, include/linux/sched.h: set when a process begins to exit. Its descriptors are
/// closed one by one after that, which takes seconds if they are probes.
const EXITING: u32 = 4;

/// Whether someone can allow a thread to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    AtWork,
    /// By a signal or a debugger.
    Stopped,
    Ending,
}

/// The process that started this one.
pub(super) struct Collector {
    /// Opened once: another process with its number has another file.
    stat: fs::File,
}

impl Collector {
    pub(super) fn of_this_process() -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let parent = unsafe { libc::getppid() };
        Ok(Self {
            stat: fs::File::open(format!("/proc/{parent}/stat"))?,
        })
    }

    pub(super) fn state(&self) -> State {
        state(&self.stat())
    }

    /// Whether it has ended, and its descriptors are closed.
    pub(super) fn is_gone(&self) -> bool {
        is_gone(&self.stat())
    }

    /// Empty if it is gone.
    fn stat(&self) -> String {
        let mut buffer = [0; 1024];
        let len = self.stat.read_at(&mut buffer, 0).unwrap_or(0);
        String::from_utf8_lossy(&buffer[..len]).into_owned()
    }
}

/// Fields 3 and 20: a leader that has ended while other threads run on is a zombie too.
fn is_gone(stat: &str) -> bool {
    let fields: Vec<&str> = fields(stat).collect();
    match fields.first() {
        None => true,
        Some(&("Z" | "X")) => fields
            .get(17)
            .is_none_or(|threads| matches!(*threads, "0" | "1")),
        Some(_) => false,
    }
}

/// Fields 3 and 9 of `/proc/PID/stat` (proc_pid_stat(5)).
fn state(stat: &str) -> State {
    let mut fields = fields(stat);
    let state = fields.next();
    let flags = fields.nth(5).and_then(|flags| flags.parse::<u32>().ok());
    match (state, flags) {
        (_, Some(flags)) if flags & EXITING != 0 => State::Ending,
        (Some("Z" | "X") | None, _) => State::Ending,
        (Some("T" | "t"), _) => State::Stopped,
        _ => State::AtWork,
    }
}

/// Fields from the third on.
fn fields(stat: &str) -> impl Iterator<Item = &str> {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields.split_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_behind_any_name() {
        for (text, expected) in [
            ("7 (a) T) S 1 7 7 0 -1 4194560 1 0", State::AtWork),
            ("7 (memtrace) R 1 7 7 0 -1 4194304 1 0", State::AtWork),
            ("7 (memtrace) T 1 7 7 0 -1 4194304 1 0", State::Stopped),
            ("7 (memtrace) t 1 7 7 0 -1 4194304 1 0", State::Stopped),
            ("7 (memtrace) R 1 7 7 0 -1 4194308 1 0", State::Ending),
            ("7 (memtrace) Z 1 7 7 0 -1 4194304 1 0", State::Ending),
            ("", State::Ending),
        ] {
            assert_eq!(state(text), expected, "{text}");
        }
    }

    #[test]
    fn a_process_is_gone_with_its_last_thread() {
        let stat = |state, threads| {
            format!("7 (memtrace) {state} 1 7 7 0 -1 4194308 1 0 0 0 0 0 0 0 20 0 {threads} 0 5")
        };
        assert!(!is_gone(&stat("R", 1)));
        assert!(!is_gone(&stat("Z", 3)));
        assert!(is_gone(&stat("Z", 1)));
        assert!(is_gone(""));
    }
}
