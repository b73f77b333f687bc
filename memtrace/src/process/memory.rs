//! A process's own figures from `/proc`: memory, faults, threads, children, and identity. Owns how
//! often the costly ones are read; does not know allocations.

use super::{is_zombie, smaps::Mapped};
use crate::{process_root, recording::MemorySample};
use procfs::{
    FromRead, ProcError,
    process::{Stat, all_processes},
};
use std::{
    fs, io,
    time::{Duration, Instant},
};

/// Who a process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub comm: String,
    /// Empty for a zombie or a kernel thread.
    pub cmdline: Vec<String>,
    pub ppid: u32,
    /// Clock ticks after boot; with the tgid it distinguishes a process from a later one.
    pub start_time: u64,
    /// Resident set, bytes.
    pub rss_bytes: u64,
}

/// The part of an [`Identity`] in which a forked child differs from its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Birth {
    pub comm: String,
    pub ppid: u32,
    pub start_time: u64,
}

/// As [`identity`], at the cost of one file: a forked child waits for it.
pub(crate) fn birth(tgid: u32) -> io::Result<Birth> {
    let stat = stat(tgid)?;
    Ok(Birth {
        comm: stat.comm,
        ppid: stat.ppid.try_into().unwrap_or(0),
        start_time: stat.starttime,
    })
}

/// The arguments of `tgid`; empty for a zombie or a kernel thread.
pub(crate) fn command_line(tgid: u32) -> io::Result<Vec<String>> {
    let cmdline = process_root::read_memory(tgid, "cmdline")?;
    Ok(arguments(&cmdline))
}

/// Reads who `tgid` is. An error means that the process is gone (`NotFound`) or hidden.
pub(crate) fn identity(tgid: u32) -> io::Result<Identity> {
    let stat = stat(tgid)?;
    let cmdline = command_line(tgid)?;
    let status = read(tgid, "status").unwrap_or_default();
    let rss_pages = stat.rss.saturating_mul(procfs::page_size());
    Ok(Identity {
        comm: stat.comm,
        cmdline,
        ppid: stat.ppid.try_into().unwrap_or(0),
        start_time: stat.starttime,
        // The kernel's per-CPU counters make the one in `stat` the coarser of the two.
        rss_bytes: bytes_of(&status, "VmRSS").unwrap_or(rss_pages),
    })
}

/// Reads the figures of `tgid` now. Unreadable figures are `None`; an error means that the process
/// is gone (`NotFound`) or hidden.
///
/// `costly` adds the expensive figures: for smaps the kernel takes the process's mmap lock and
/// walks its page tables, a kernel without `/proc/PID/task/TID/children` (CONFIG_PROC_CHILDREN)
/// needs the parent of every process to be read, and one before 6.2 has descriptors listed to be
/// counted.
pub(crate) fn sample(tgid: u32, costly: bool) -> io::Result<MemorySample> {
    let stat = stat(tgid)?;
    let status = read(tgid, "status").unwrap_or_default();
    let mapped = match costly {
        true => Mapped::read(tgid),
        false => Mapped::default(),
    };
    // A process that has ended has neither, which is not a count of 0.
    let has_ended = is_zombie(&stat);
    let counted = |cheap: fn(u32) -> Option<u64>, by_listing: fn(u32) -> Option<u64>| {
        let count = || cheap(tgid).or_else(|| costly.then(|| by_listing(tgid)).flatten());
        (!has_ended).then(count).flatten()
    };
    let children = counted(children, children_by_scan);
    let fds = counted(fds, fds_by_listing);
    let areas = mapped.areas.as_ref();
    Ok(MemorySample {
        rss_anon: bytes_of(&status, "RssAnon"),
        rss_file: bytes_of(&status, "RssFile"),
        rss_shmem: bytes_of(&status, "RssShmem"),
        pss: mapped.pss,
        private_dirty: mapped.private_dirty,
        shared_dirty: mapped.shared_dirty,
        swap: bytes_of(&status, "VmSwap"),
        anon_huge_pages: mapped.anon_huge_pages,
        lazy_free: mapped.lazy_free,
        vm_size: bytes_of(&status, "VmSize"),
        vm_pte: bytes_of(&status, "VmPTE"),
        threads: stat.num_threads.try_into().ok(),
        minor_faults: Some(stat.minflt),
        major_faults: Some(stat.majflt),
        children,
        vm_hwm: bytes_of(&status, "VmHWM"),
        vm_stk: bytes_of(&status, "VmStk"),
        vm_lck: bytes_of(&status, "VmLck"),
        vm_pin: bytes_of(&status, "VmPin"),
        hugetlb_pages: bytes_of(&status, "HugetlbPages"),
        threads_created: None,
        fds,
        maps: mapped.maps,
        anon_heap: areas.map(|areas| areas.heap),
        anon_arena: areas.map(|areas| areas.arena),
        anon_stack: areas.map(|areas| areas.stack),
        anon_file: areas.map(|areas| areas.file),
        anon_other: areas.map(|areas| areas.other),
        arenas: areas.map(|areas| areas.arenas),
    })
}

/// Samples one process; its costly figures only at a distance, and only as often as they take at
/// most 1 % of the time; in between they are `None`.
#[derive(Debug)]
pub(crate) struct Sampler {
    tgid: u32,
    started: Instant,
    budget: Budget,
}

impl Sampler {
    /// The costly figures are read at the distance `least_rest` at least.
    pub(crate) fn new(tgid: u32, least_rest: Duration) -> Self {
        Self {
            tgid,
            started: Instant::now(),
            budget: Budget::new(least_rest),
        }
    }

    /// As [`sample`]; also returns whether it had the costly figures.
    pub(crate) fn sample(&mut self) -> io::Result<(MemorySample, bool)> {
        let begin = self.started.elapsed();
        let costly = self.budget.allows(begin);
        let sample = sample(self.tgid, costly);
        if costly {
            let end = self.started.elapsed();
            self.budget.spent(end, end.saturating_sub(begin));
        }
        Ok((sample?, costly))
    }
}

/// Keeps something costly to a share of the time: after it took `cost`, it
/// rests for `cost * REST`, and for a least time. Times count from any fixed moment.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    not_before: Duration,
    least_rest: Duration,
}

impl Budget {
    /// 1 of 100 parts is spent, 99 are rest.
    const REST: u32 = 99;

    pub(crate) fn new(least_rest: Duration) -> Self {
        Self {
            not_before: Duration::ZERO,
            least_rest,
        }
    }

    pub(crate) fn allows(&self, now: Duration) -> bool {
        now >= self.not_before
    }

    pub(crate) fn spent(&mut self, now: Duration, cost: Duration) {
        let rest = cost.saturating_mul(Self::REST).max(self.least_rest);
        self.not_before = now.saturating_add(rest);
    }
}

/// Clock ticks from boot to the start of a process, as [`Identity::start_time`].
///
/// # Errors
/// It is gone or hidden.
pub(crate) fn start_time(tgid: u32) -> io::Result<u64> {
    Ok(stat(tgid)?.starttime)
}

/// Parses `/proc/PID/stat`; the name need not be UTF-8.
pub(super) fn stat(tgid: u32) -> io::Result<Stat> {
    let bytes = fs::read(format!("/proc/{tgid}/stat"))?;
    Stat::from_read(bytes.as_slice()).map_err(|error| match error {
        ProcError::NotFound(_) => io::ErrorKind::NotFound.into(),
        ProcError::PermissionDenied(_) => io::ErrorKind::PermissionDenied.into(),
        ProcError::Io(error, _) => error,
        other => io::Error::other(other.to_string()),
    })
}

/// A file of the process; names in it need not be UTF-8.
pub(super) fn read(tgid: u32, file: &str) -> io::Result<String> {
    let bytes = fs::read(format!("/proc/{tgid}/{file}"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Value of a line `KEY:  N kB`, in bytes.
pub(crate) fn bytes_of(text: &str, key: &str) -> Option<u64> {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let kilobytes: u64 = value.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// Arguments end with a zero byte each, unless the process wrote over them.
pub(crate) fn arguments(cmdline: &[u8]) -> Vec<String> {
    let cmdline = cmdline.strip_suffix(b"\0").unwrap_or(cmdline);
    if cmdline.is_empty() {
        return Vec::new();
    }
    cmdline
        .split(|byte| *byte == 0)
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect()
}

/// Children of all threads; `None` if the kernel does not list them.
fn children(tgid: u32) -> Option<u64> {
    let mut count = None;
    for task in fs::read_dir(format!("/proc/{tgid}/task")).ok()?.flatten() {
        // A thread may end while the others are read.
        let Ok(children) = fs::read_to_string(task.path().join("children")) else {
            continue;
        };
        *count.get_or_insert(0) += children.split_whitespace().count() as u64;
    }
    count
}

/// Open descriptors: since Linux 6.2 the size of the folder (fs/proc/fd.c, proc_fd_getattr).
fn fds(tgid: u32) -> Option<u64> {
    let count = fs::metadata(format!("/proc/{tgid}/fd")).ok()?.len();
    (count > 0).then_some(count)
}

fn fds_by_listing(tgid: u32) -> Option<u64> {
    Some(fs::read_dir(format!("/proc/{tgid}/fd")).ok()?.count() as u64)
}

fn children_by_scan(tgid: u32) -> Option<u64> {
    let children = all_processes().ok()?.filter(|process| {
        let parent = process
            .as_ref()
            .ok()
            .and_then(|process| process.stat().ok())
            .and_then(|stat| u32::try_from(stat.ppid).ok());
        parent == Some(tgid)
    });
    Some(children.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_costly_reading_rests_ninety_nine_times_its_cost() {
        let ms = Duration::from_millis;
        let mut budget = Budget::default();
        assert!(budget.allows(ms(0)), "the first is always read");
        budget.spent(ms(20), ms(20));
        assert!(!budget.allows(ms(1999)));
        assert!(budget.allows(ms(2000)));
        // It became cheaper: the rest becomes shorter.
        budget.spent(ms(2001), ms(1));
        assert!(!budget.allows(ms(2099)));
        assert!(budget.allows(ms(2100)));

        let mut distant = Budget::new(ms(1000));
        distant.spent(ms(1), ms(1));
        assert!(!distant.allows(ms(1000)));
        assert!(distant.allows(ms(1001)));
    }

    #[test]
    fn over_a_long_time_at_most_one_percent_is_spent() {
        let mut budget = Budget::default();
        let mut spent = Duration::ZERO;
        for second in 0..10_000u64 {
            let now = Duration::from_secs(second);
            if budget.allows(now) {
                let cost = Duration::from_millis(1 + second % 70);
                spent += cost;
                budget.spent(now + cost, cost);
            }
        }
        assert!(spent <= Duration::from_secs(100), "{spent:?}");
        assert!(spent >= Duration::from_secs(10), "{spent:?}");
    }

    #[test]
    fn a_line_of_kilobytes_becomes_bytes() {
        let text = "Pss_Dirty:  9 kB\nPss:                 355 kB\nThreads:\t4\nHuge: 99999999999999999 kB\n";
        assert_eq!(bytes_of(text, "Pss"), Some(355 * 1024));
        assert_eq!(bytes_of(text, "Threads"), None);
        assert_eq!(bytes_of(text, "Huge"), None);
        assert_eq!(bytes_of(text, "Swap"), None);
    }

    #[test]
    fn arguments_keep_empty_ones() {
        assert_eq!(arguments(b"a\0\0c\0"), ["a", "", "c"]);
        assert_eq!(arguments(b"renamed title"), ["renamed title"]);
        assert_eq!(arguments(b""), [""; 0]);
    }

    #[test]
    fn this_process_can_be_sampled() {
        let block = std::hint::black_box(vec![1u8; 8 << 20]);
        let figures = sample(std::process::id(), true).unwrap();
        for (name, value) in [
            ("rss_anon", figures.rss_anon),
            ("pss", figures.pss),
            ("private_dirty", figures.private_dirty),
            ("vm_size", figures.vm_size),
        ] {
            assert!(value.unwrap() >= block.len() as u64, "{name} {value:?}");
        }
        assert!(figures.threads.unwrap() >= 1);
        assert!(figures.minor_faults.unwrap() > 0);
        for present in [
            figures.rss_file,
            figures.rss_shmem,
            figures.shared_dirty,
            figures.swap,
            figures.anon_huge_pages,
            figures.lazy_free,
            figures.vm_pte,
            figures.major_faults,
            figures.vm_hwm,
            figures.vm_stk,
            figures.fds,
            figures.maps,
            figures.arenas,
        ] {
            assert!(present.is_some(), "{figures:?}");
        }
        let cheap = sample(std::process::id(), false).unwrap();
        assert_eq!(
            (cheap.pss, cheap.maps, cheap.anon_other),
            (None, None, None)
        );
        assert!(cheap.rss_anon.is_some() && cheap.swap.is_some());
    }

    #[test]
    fn children_and_identity_of_a_child_are_seen() {
        let mut shell = Command::new("sh")
            .args(["-c", "exec 3<&0; cat <&3 & echo started; wait"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let tgid = shell.id();
        let mut line = [0; 8];
        io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut line).unwrap();

        assert_eq!(sample(tgid, true).unwrap().children, Some(1));
        let identity = identity(tgid).unwrap();
        assert_eq!(identity.comm, "sh");
        assert_eq!(identity.cmdline[..2], ["sh", "-c"]);
        assert_eq!(identity.ppid, std::process::id());
        assert!(identity.rss_bytes > 0 && identity.start_time > 0);

        shell.kill().unwrap();
        shell.wait().unwrap();
        assert!(sample(tgid, true).is_err());
        assert!(super::identity(tgid).is_err());
    }

    #[test]
    fn a_sampler_reads_the_costly_figures_first_and_then_rests() {
        let mut sampler = Sampler::new(std::process::id(), Duration::ZERO);
        let (first, costly) = sampler.sample().unwrap();
        assert!(first.pss.is_some() && costly);
        let rest_until = sampler.budget.not_before;
        let (second, costly) = sampler.sample().unwrap();
        assert_eq!(second.pss.is_some(), costly);
        // The rest is over only if the machine was suspended meanwhile.
        assert!(!costly || sampler.started.elapsed() >= rest_until);
    }
}
