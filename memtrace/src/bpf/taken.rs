//! Places at which the kernel refuses a probe because another tracer has one there.
//!
//! An instruction of a file has one semaphore (`ref_ctr_offset`) for all of its probes, of whichever tracer: the kernel
//! refuses those that differ from the first (`insert_uprobe`, kernel/events/uprobes.c). bcc's Python tools pass a random
//! one, so that they exclude all others, and one such place fails the link of a whole file.

use std::{
    collections::{HashMap, HashSet},
    fs,
    os::unix::fs::MetadataExt,
};

use aya_obj::generated::{bpf_attr, bpf_attr__bindgen_ty_13, bpf_cmd, bpf_task_fd_type};

use super::{TracerError, raw};
use crate::{probes::Probe, process::tasks};

/// Offsets in a file.
pub(super) type Offsets = HashSet<u64>;

/// By file: they are left alone for the rest of the recording.
#[derive(Default)]
pub(super) struct Taken(HashMap<(u64, u64), Offsets>);

impl Taken {
    /// Those of an open file.
    pub(super) fn of(&mut self, file: &fs::File) -> &mut Offsets {
        // A file without a number has no probes either.
        let key = file.metadata().map_or((0, 0), |it| (it.dev(), it.ino()));
        self.0.entry(key).or_default()
    }
}

/// Attaches probes by links of as many as possible; the places that are refused are added to `taken`.
///
/// # Errors
/// The kernel's, of any other kind.
pub(super) fn attach_around<L>(
    probes: &[&Probe],
    taken: &mut Offsets,
    attach: &mut impl FnMut(&[&Probe]) -> Result<L, TracerError>,
) -> Result<Vec<L>, TracerError> {
    let probes: Vec<&Probe> = probes
        .iter()
        .copied()
        .filter(|probe| !taken.contains(&probe.file_offset))
        .collect();
    if probes.is_empty() {
        return Ok(Vec::new());
    }
    match attach(&probes) {
        Ok(link) => Ok(vec![link]),
        Err(error) if error.is(libc::EINVAL) => {
            if let [probe] = probes[..] {
                taken.insert(probe.file_offset);
                return Ok(Vec::new());
            }
            let (first, rest) = probes.split_at(probes.len() / 2);
            let mut links = attach_around(first, taken, attach)?;
            links.extend(attach_around(rest, taken, attach)?);
            Ok(links)
        }
        Err(error) => Err(error),
    }
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
