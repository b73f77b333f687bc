//! Time that the kernel spends in the programs of a collector, as it counts it itself.

use anyhow::{Context, Result, ensure};
use std::{collections::HashMap, fs};

/// While it is set the kernel counts (Documentation/admin-guide/sysctl/kernel.rst).
const SETTING: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// Counting, until it is dropped.
pub(super) struct Counting {
    before: String,
}

impl Counting {
    pub(super) fn begin() -> Result<Self> {
        let before =
            fs::read_to_string(SETTING).with_context(|| format!("cannot read {SETTING}"))?;
        fs::write(SETTING, "1").with_context(|| format!("cannot write {SETTING}"))?;
        Ok(Self { before })
    }

    /// What process `pid` holds of programs has run so long in all while there was counting, ns.
    pub(super) fn run_ns(&self, pid: u32) -> Result<u64> {
        let folder = format!("/proc/{pid}/fdinfo");
        let mut programs = HashMap::new();
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {folder}"))? {
            // A descriptor can be closed meanwhile.
            let text = fs::read_to_string(entry?.path()).unwrap_or_default();
            programs.extend(program(&text));
        }
        ensure!(!programs.is_empty(), "process {pid} holds no program");
        Ok(programs.values().sum())
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        // What could be done about an error is to say so.
        if let Err(error) = fs::write(SETTING, &self.before) {
            eprintln!("bench: cannot put {SETTING} back: {error}");
        }
    }
}

/// A program's id and how long it has run, ns, from what its descriptor tells; `None` of another one.
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
    fn programs_are_told_from_links_and_maps() {
        let link = "link_type:\tperf\nlink_id:\t9\nprog_tag:\t0a\nprog_id:\t7\n";
        let of_program = "prog_type:\t2\nprog_id:\t7\nrun_time_ns:\t1200\nrun_cnt:\t3\n";
        assert_eq!(program(of_program), Some((7, 1200)));
        assert_eq!(program(link), None);
        assert_eq!(program("map_type:\t2\nmap_id:\t3\n"), None);
    }
}
