//! Threads, from `/proc`.

use std::{fs, io, path::PathBuf};

/// Threads of a process.
pub(crate) fn threads(tgid: u32) -> io::Result<Vec<u32>> {
    let entries = fs::read_dir(format!("/proc/{tgid}/task"))?;
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect())
}

/// The process that a thread belongs to.
pub(crate) fn tgid_of(tid: u32) -> Option<u32> {
    field(&status(tid)?, "Tgid")
}

/// Whether this is the first thread of a process that memtrace has launched.
pub(crate) fn is_child(tid: u32) -> bool {
    let status = status(tid);
    let number = |name| status.as_deref().and_then(|status| field(status, name));
    number("Tgid") == Some(tid) && number("PPid") == Some(std::process::id())
}

/// The process that traces a thread; 0: none.
pub(crate) fn tracer_of(tid: u32) -> Option<u32> {
    field(&status(tid)?, "TracerPid")
}

/// The name of a process; nothing if it is gone.
pub(crate) fn name_of(tgid: u32) -> String {
    let comm = fs::read(format!("/proc/{tgid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&comm).trim_end().to_owned()
}

/// The number of a thread in the innermost pid namespace that has it.
pub(crate) fn own_number_of(tid: u32) -> Option<u32> {
    field_words(&status(tid)?, "NSpid")?.last()?.parse().ok()
}

/// The pid namespace of a thread.
pub(crate) fn namespace_of(tid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{tid}/ns/pid")).ok()
}

/// Whether a thread has ended, or is about to be gone.
pub(crate) fn has_ended(tid: u32) -> bool {
    state(tid).is_none_or(|state| matches!(state, 'Z' | 'X'))
}

/// Stack pointer of a thread that waits in the kernel.
pub(crate) fn blocked_at(tid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{tid}/syscall")).ok()?;
    // `NUMBER ARGUMENTS… SP PC`, or `running`.
    let mut words = text.split_whitespace().rev();
    let sp = words.nth(1)?.strip_prefix("0x")?;
    u64::from_str_radix(sp, 16).ok().filter(|&sp| sp != 0)
}

/// Whether a thread of a process is in execve(2). Until the call ends, PTRACE_SEIZE of any of its threads waits.
pub(crate) fn is_executing(tgid: u32) -> bool {
    let number = |tid: u32| {
        let text = fs::read_to_string(format!("/proc/{tid}/syscall")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    let executes = |tid| matches!(number(tid), Some(libc::SYS_execve | libc::SYS_execveat));
    threads(tgid).unwrap_or_default().into_iter().any(executes)
}

/// Whether a thread is in the kernel and hears nothing, as one that waits for a disk.
pub(crate) fn is_uninterruptible(tid: u32) -> bool {
    state(tid) == Some('D')
}

/// Whether a thread does not run and is not about to: it is stopped, waits for a disk or the like, or has ended.
pub(crate) fn stands_still(tid: u32) -> bool {
    state(tid).is_none_or(|state| matches!(state, 't' | 'T' | 'D' | 'Z' | 'X'))
}

/// Whether a thread is stopped by a signal such as SIGSTOP.
pub(crate) fn is_stopped(tid: u32) -> bool {
    state(tid) == Some('T')
}

/// Whether a thread has a handler for a signal that is pending, or for one that is being delivered.
pub(crate) fn handles_signal(tid: u32, delivered: Option<i32>) -> bool {
    status(tid).is_some_and(|status| status_handles(&status, delivered))
}

fn status_handles(status: &str, delivered: Option<i32>) -> bool {
    let set = |name| {
        let word = field_words(status, name).and_then(|words| words.first().copied());
        word.and_then(|word| u64::from_str_radix(word, 16).ok())
            .unwrap_or(0)
    };
    let delivered =
        delivered.and_then(|signal| 1_u64.checked_shl(signal.unsigned_abs().wrapping_sub(1)));
    let pending = (set("SigPnd") | set("ShdPnd")) & !set("SigBlk");
    (pending | delivered.unwrap_or(0)) & set("SigCgt") != 0
}

/// As `ps` shows it; `None`: the thread is gone.
fn state(tid: u32) -> Option<char> {
    let status = status(tid)?;
    field_words(&status, "State")?.first()?.chars().next()
}

fn status(tid: u32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{tid}/status")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn field_words<'a>(status: &'a str, name: &str) -> Option<Vec<&'a str>> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(|words| words.split_whitespace().collect())
}

fn field(status: &str, name: &str) -> Option<u32> {
    field_words(status, name)?.first()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handled_signal_is_caught_and_not_blocked() {
        // SIGUSR1 (10) is caught.
        let handles = |pending: &str, blocked: &str, delivered| {
            let status = format!(
                "Name:\tx\nSigPnd:\t{pending}\nShdPnd:\t0\nSigBlk:\t{blocked}\nSigCgt:\t0000000000000200\n"
            );
            status_handles(&status, delivered)
        };
        assert!(handles("0000000000000200", "0", None));
        assert!(!handles("0000000000000200", "0000000000000200", None));
        assert!(!handles("0000000000000100", "0", None));
        assert!(handles("0", "0", Some(libc::SIGUSR1)));
        assert!(!handles("0", "0", Some(libc::SIGTERM)));
        assert!(!handles("0", "0", Some(0)));
    }
}
