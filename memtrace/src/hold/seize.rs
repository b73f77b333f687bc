//! Becoming the tracer of a process that runs: of each of its threads, while it
//! makes more.

use std::{fs, io, process};

use super::ptrace;

/// What came of it: the threads that are traced now and were not before.
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
                // Somebody else traces this very thread.
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

/// Threads of a process.
fn threads(tgid: u32) -> io::Result<Vec<u32>> {
    let entries = fs::read_dir(format!("/proc/{tgid}/task"))?;
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect())
}

/// The process that a thread belongs to.
pub(super) fn tgid_of(tid: u32) -> Option<u32> {
    field(&status(tid)?, "Tgid")
}

/// The process that traces a thread; 0: none.
pub(super) fn tracer_of(tid: u32) -> Option<u32> {
    field(&status(tid)?, "TracerPid")
}

/// The name of a process; nothing if it is gone.
pub(super) fn name_of(tgid: u32) -> String {
    let comm = fs::read(format!("/proc/{tgid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&comm).trim_end().to_owned()
}

/// The number of a thread in the innermost pid namespace that has it.
pub(super) fn own_number_of(tid: u32) -> Option<u32> {
    field_words(&status(tid)?, "NSpid")?.last()?.parse().ok()
}

/// The pid namespace of a thread.
pub(super) fn namespace_of(tid: u32) -> Option<std::path::PathBuf> {
    fs::read_link(format!("/proc/{tid}/ns/pid")).ok()
}

fn has_ended(tid: u32) -> bool {
    match status(tid) {
        None => true,
        Some(status) => matches!(
            field_words(&status, "State").and_then(|words| words.into_iter().next()),
            Some("Z" | "X")
        ),
    }
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
