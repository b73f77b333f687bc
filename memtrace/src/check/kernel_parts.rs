//! Parts of the kernel that recordings profit from, and how probes are set. Reading is separate from judging.

use super::outcome::Check;
use std::{fs, io};

pub(super) fn checks() -> [Check; 2] {
    [
        control_groups(fs::read_to_string("/proc/self/mountinfo")),
        pressure(fs::read_to_string("/proc/pressure/memory")),
    ]
}

/// Where the kernel counts the memory of groups (proc_pid_mountinfo(5)).
fn control_groups(mounts: io::Result<String>) -> Check {
    const NAME: &str = "control groups";
    let Ok(mounts) = mounts else {
        return Check::unknown(NAME, "`/proc/self/mountinfo` cannot be read").optional();
    };
    let mut kinds = mounts.lines().filter_map(|line| {
        let mut words = line.split_once(" - ")?.1.split(' ');
        let kind = words.next()?;
        Some((kind, words.nth(1).unwrap_or_default()))
    });
    let counts_memory = |(kind, options): &(&str, &str)| {
        *kind == "cgroup" && options.split(',').any(|option| option == "memory")
    };
    if kinds.clone().any(|mount| counts_memory(&mount)) {
        Check::ok(NAME, "version 1")
    } else if kinds.any(|(kind, _)| kind == "cgroup2") {
        Check::ok(NAME, "version 2")
    } else {
        Check::missing(
            NAME,
            "none that counts memory is mounted",
            "a group's memory and limits are not recorded without `/sys/fs/cgroup`",
        )
        .optional()
    }
}

fn pressure(read: io::Result<String>) -> Check {
    const NAME: &str = "memory pressure";
    match read {
        Ok(_) => Check::ok(NAME, "`/proc/pressure/memory`"),
        Err(error) => Check::missing(
            NAME,
            format!("`/proc/pressure/memory`: {error}"),
            "it is not recorded; a kernel with CONFIG_PSI=y has it, some only with the boot option `psi=1`",
        )
        .optional(),
    }
}

/// How probes are set; `all_at_once`: a link has all of a file, `sessions`: a program serves both ends of malloc.
pub(super) fn probes(all_at_once: bool, sessions: bool) -> Check {
    const NAME: &str = "probes";
    match (all_at_once, sessions) {
        (true, true) => Check::ok(
            NAME,
            "all of a file at once; one program for both ends of malloc",
        ),
        (true, false) => Check::ok(NAME, "all of a file at once")
            .help("a call of malloc costs less with Linux 6.13 or later"),
        (false, _) => Check::ok(NAME, "one by one, a perf event each").help(
            "attaching and ending take longer; Linux 6.10 and later set all probes of a file at once",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::outcome::Outcome, *};

    #[test]
    fn version_1_counts_memory_where_it_has_the_controller() {
        const UNIFIED: &str =
            "38 31 0:35 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        const MEMORY: &str =
            "41 31 0:38 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";
        const OTHER: &str =
            "42 31 0:39 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n";
        let found = |mounts: &[&str]| control_groups(Ok(mounts.concat()));
        assert_eq!(found(&[UNIFIED, MEMORY]).detail, "version 1");
        assert_eq!(found(&[UNIFIED, OTHER]).detail, "version 2");
        let none = found(&[OTHER]);
        assert_eq!((none.outcome, none.required), (Outcome::Missing, false));
    }

    #[test]
    fn absent_pressure_is_no_obstacle() {
        let absent = pressure(Err(io::Error::from_raw_os_error(libc::ENOENT)));
        assert_eq!((absent.outcome, absent.required), (Outcome::Missing, false));
        assert_eq!(pressure(Ok("some".to_owned())).outcome, Outcome::Ok);
    }

    #[test]
    fn slower_ways_say_what_is_slower() {
        assert_eq!(probes(true, true).help, None);
        assert!(probes(true, false).help.unwrap().contains("6.13"));
        assert!(probes(false, false).help.unwrap().contains("6.10"));
    }
}
