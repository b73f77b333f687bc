//! Places at which the kernel refuses a probe because another tracer has one there.
//!
//! An instruction of a file has one semaphore (`ref_ctr_offset`) for all of its probes, of whichever tracer: the kernel
//! refuses those that differ from the first (`insert_uprobe`, kernel/events/uprobes.c). bcc's Python tools pass a random
//! one, so that they exclude all others, and one such place fails the link of a whole file. The kernel's log has the
//! other's semaphore, and a probe that passes the same is accepted.

use std::{collections::HashMap, fs, os::unix::fs::MetadataExt};

use aya_obj::generated::{bpf_attr, bpf_attr__bindgen_ty_13, bpf_cmd, bpf_task_fd_type};

use super::{TracerError, raw};
use crate::{probes::Probe, process::tasks};

/// The places of a file that other tracers have: their semaphores, or `None` if the place is left out.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    by_offset: HashMap<u64, Option<u64>>,
    /// Offsets from here on are in no memory of any process.
    end: u64,
}

/// By file. An entry stays to the end of the recording.
#[derive(Default)]
pub(super) struct Taken(HashMap<(u64, u64), Places>);

impl Taken {
    /// Those of an open file.
    pub(super) fn of(&mut self, file: &fs::File) -> &mut Places {
        // A file without a number has no probes either.
        let (key, size) = file
            .metadata()
            .map_or(((0, 0), u64::MAX), |it| ((it.dev(), it.ino()), it.size()));
        let places = self.0.entry(key).or_default();
        places.end = size.saturating_add(PAGE);
        places
    }
}

const PAGE: u64 = 4096;

impl Places {
    /// The semaphore to pass with a probe at `offset`: the other tracer's, or the probe's own; 0 is none.
    pub(super) fn semaphore(&self, probe: &Probe, offset: u64) -> u64 {
        let own = probe.usdt.and_then(|usdt| usdt.semaphore);
        let other = self.by_offset.get(&offset).copied().flatten();
        other.or(own).unwrap_or(0)
    }

    fn is_left_out(&self, probe: &Probe) -> bool {
        self.by_offset.get(&probe.file_offset) == Some(&None)
    }

    /// Offsets that are not in `known`: those that are shared with another tracer, and those that are left out.
    pub(super) fn new_since(&self, known: &Self) -> (Vec<u64>, Vec<u64>) {
        let is_new = |(offset, place): &(&u64, &Option<u64>)| {
            known
                .by_offset
                .get(offset)
                .is_none_or(|old| old.is_some() && place.is_none())
        };
        let new = self.by_offset.iter().filter(is_new);
        let (shared, left_out): (Vec<_>, Vec<_>) = new.partition(|(_, place)| place.is_some());
        let offsets =
            |places: Vec<(&u64, _)>| places.into_iter().map(|(&offset, _)| offset).collect();
        (offsets(shared), offsets(left_out))
    }

    /// Learns from the kernel's log why a probe was refused. False: the place is left out.
    fn learn(&mut self, probe: &Probe) -> bool {
        let passed = self.semaphore(probe, probe.file_offset);
        let has_own = probe.usdt.is_some_and(|usdt| usdt.semaphore.is_some());
        // The kernel raises a semaphore where the process has it in writable memory: if it is not one, that is a variable.
        let other = refused(&kernel_log(), probe.file_offset, passed)
            .filter(|&semaphore| !has_own && (semaphore == 0 || semaphore >= self.end));
        self.by_offset.insert(probe.file_offset, other);
        other.is_some()
    }
}

/// Attaches probes by links of as many as possible; the places that other tracers have are added to `places`.
///
/// # Errors
/// The kernel's, of any other kind.
pub(super) fn attach_around<L>(
    probes: &[&Probe],
    places: &mut Places,
    attach: &mut impl FnMut(&[&Probe], &Places) -> Result<L, TracerError>,
) -> Result<Vec<L>, TracerError> {
    let mut probes = probes.to_vec();
    probes.retain(|probe| !places.is_left_out(probe));
    if probes.is_empty() {
        return Ok(Vec::new());
    }
    let refused = |error: &TracerError| error.is(libc::EINVAL);
    match (attach(&probes, places), &probes[..]) {
        (Ok(link), _) => Ok(vec![link]),
        (Err(error), _) if !refused(&error) => Err(error),
        (Err(_), &[probe]) => {
            if !places.learn(probe) {
                return Ok(Vec::new());
            }
            match attach(&probes, places) {
                Err(error) if refused(&error) => {
                    places.by_offset.insert(probe.file_offset, None);
                    Ok(Vec::new())
                }
                attached => Ok(vec![attached?]),
            }
        }
        (Err(_), probes) => {
            let (first, rest) = probes.split_at(probes.len() / 2);
            let mut links = attach_around(first, places, attach)?;
            links.extend(attach_around(rest, places, attach)?);
            Ok(links)
        }
    }
}

/// The kernel's log, as far as it may be read.
fn kernel_log() -> String {
    const READ_ALL: i32 = 3; // SYSLOG_ACTION_READ_ALL
    let mut log = vec![0_u8; 1 << 20];
    // SAFETY: the kernel writes at most `len` bytes.
    let read = unsafe { libc::klogctl(READ_ALL, log.as_mut_ptr().cast(), log.len() as i32) };
    log.truncate(usize::try_from(read).unwrap_or(0));
    String::from_utf8_lossy(&log).into_owned()
}

/// The semaphore in the last message about a probe at `offset` that was refused because it had the semaphore `new`.
fn refused(log: &str, offset: u64, new: u64) -> Option<u64> {
    let (at, to) = (format!(" offset: {offset:#x} "), format!("(new): {new:#x}"));
    let message = log.lines().rev().find(|line| {
        line.contains("ref_ctr_offset mismatch") && line.contains(&at) && line.ends_with(&to)
    })?;
    let (_, rest) = message.split_once("(old): 0x")?;
    u64::from_str_radix(rest.split_once(' ')?.0, 16).ok()
}

/// The process that probes a place of a file by a BPF program, as far as the kernel reports it.
pub(crate) fn other_tracer(offset: u64) -> Option<String> {
    let own = std::process::id();
    let numbers = fs::read_dir("/proc").ok()?.filter_map(|entry| {
        let pid = entry.ok()?.file_name().to_str()?.parse::<u32>().ok()?;
        (pid != own).then_some(pid)
    });
    let mut events = numbers.flat_map(|pid| {
        let fds = fs::read_dir(format!("/proc/{pid}/fd"));
        let fds = fds.into_iter().flatten().filter_map(move |entry| {
            let path = entry.ok()?.path();
            let is_event = fs::read_link(&path).ok()?.to_str()? == "anon_inode:[perf_event]";
            let fd = path.file_name()?.to_str()?.parse::<u32>().ok()?;
            is_event.then_some((pid, fd))
        });
        fds.collect::<Vec<_>>()
    });
    let (pid, _) = events.find(|&(pid, fd)| probed_by(pid, fd) == Some(offset))?;
    Some(format!("`{}` ({pid})", tasks::name_of(pid)))
}

/// The offset at which a process's perf event is a uprobe with a program.
fn probed_by(pid: u32, fd: u32) -> Option<u64> {
    // SAFETY: an all-zero attribute is a valid one.
    let mut attr: bpf_attr = unsafe { std::mem::zeroed() };
    attr.task_fd_query = bpf_attr__bindgen_ty_13 {
        pid,
        fd,
        // SAFETY: as above.
        ..unsafe { std::mem::zeroed() }
    };
    raw::query(bpf_cmd::BPF_TASK_FD_QUERY, &mut attr).ok()?;
    // SAFETY: the kernel has filled this member.
    let found = unsafe { attr.task_fd_query };
    let is = |kind: bpf_task_fd_type| found.fd_type == kind as u32;
    let is_uprobe =
        is(bpf_task_fd_type::BPF_FD_TYPE_UPROBE) || is(bpf_task_fd_type::BPF_FD_TYPE_URETPROBE);
    is_uprobe.then_some(found.probe_offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_refusal_at_the_place_counts() {
        let line = |offset, old, new| {
            format!(
                "<4>[ 7957.932766] ref_ctr_offset mismatch. inode: 0x9c8015 offset: {offset} \
                 ref_ctr_offset(old): {old} ref_ctr_offset(new): {new}\n"
            )
        };
        let log = [
            line("0x16910", "0x1000", "0x0"),
            line("0x16910", "0x7fa4c0de", "0x0"),
            line("0x169100", "0x2000", "0x0"),
            line("0x16910", "0x3000", "0x8"),
            "<6>[ 7958.000000] other\n".to_owned(),
        ]
        .concat();
        assert_eq!(refused(&log, 0x16910, 0), Some(0x7fa4_c0de));
        assert_eq!(refused(&log, 0x16910, 8), Some(0x3000));
        assert_eq!(refused(&log, 0x16910, 0x10), None);
        assert_eq!(refused(&log, 0x1691, 0), None);
    }
}
