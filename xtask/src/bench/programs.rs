//! Time that the kernel spends in the programs of a collector, as it counts it itself.

use anyhow::{Context, Result, ensure};
use std::{
    collections::HashMap,
    fs, io,
    os::fd::{FromRawFd, OwnedFd},
};

/// While this lives the kernel measures the run time of all BPF programs on the machine.
pub(super) struct Counting {
    _descriptor: OwnedFd,
}

/// BPF_ENABLE_STATS of `enum bpf_cmd`, and its attributes for BPF_STATS_RUN_TIME
/// (include/uapi/linux/bpf.h; Linux 5.8).
const ENABLE_STATS: libc::c_int = 32;
const RUN_TIME: u32 = 0;

impl Counting {
    pub(super) fn begin() -> Result<Self> {
        let attributes = RUN_TIME;
        let size = size_of_val(&attributes);
        // SAFETY: the command reads as many bytes as are passed.
        let descriptor =
            unsafe { libc::syscall(libc::SYS_bpf, ENABLE_STATS, &raw const attributes, size) };
        let number = i32::try_from(descriptor).unwrap_or(-1);
        ensure!(
            number >= 0,
            "the kernel does not measure the run time of BPF programs: {}",
            io::Error::last_os_error()
        );
        // SAFETY: the system call gave it to us.
        let _descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        Ok(Self { _descriptor })
    }

    /// Run time of the programs that process `pid` holds, while it was measured, ns. Over all
    /// processes: programs at system calls run for any caller.
    pub(super) fn run_ns(&self, pid: u32) -> Result<u64> {
        let folder = format!("/proc/{pid}/fdinfo");
        let mut programs = HashMap::new();
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {folder}"))? {
            // Other descriptors can be closed meanwhile.
            let text = fs::read_to_string(entry?.path()).unwrap_or_default();
            programs.extend(program(&text));
        }
        ensure!(!programs.is_empty(), "process {pid} has no BPF programs");
        Ok(programs.values().sum())
    }
}

/// A program's id and its run time, ns, from its descriptor; `None` for other descriptors.
fn program(text: &str) -> Option<(u64, u64)> {
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.strip_prefix(':')?.trim().parse().ok()
    };
    Some((number("prog_id")?, number("run_time_ns")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_distinguished_from_links_and_maps() {
        let link = "link_type:\tperf\nlink_id:\t9\nprog_tag:\t0a\nprog_id:\t7\n";
        let of_program = "prog_type:\t2\nprog_id:\t7\nrun_time_ns:\t1200\nrun_cnt:\t3\n";
        assert_eq!(program(of_program), Some((7, 1200)));
        assert_eq!(program(link), None);
        assert_eq!(program("map_type:\t2\nmap_id:\t3\n"), None);
    }
}
