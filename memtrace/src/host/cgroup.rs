//! Control groups of processes, versions 1 and 2: their places, their use, and their limits.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

pub(crate) use super::level::Level;
use super::{Facts, Source, system::counter};
use crate::{process::memory::Budget, recording::CgroupSample};

/// Version 1 expresses "no limit" as the largest multiple of a page (PAGE_COUNTER_MAX of
/// include/linux/page_counter.h).
const UNLIMITED: u64 = i64::MAX as u64 & !0xffff;

/// A group, for one controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Group {
    version: u8,
    /// Below the mount, as `/proc/PID/cgroup` has it.
    path: String,
    mount: PathBuf,
}

impl Group {
    /// The group of process `tgid` for a controller such as `memory`; `None` if that is not
    /// mounted.
    fn of(source: &Source, tgid: u32, controller: &str) -> Option<Self> {
        let groups = source.text(&format!("proc/{tgid}/cgroup"))?;
        let (version, path) = group_path(&groups, controller)?;
        let (root, mount) = mount(source.mounts()?, version, controller)?;
        // The mount shows the hierarchy from its root on; a group outside cannot be seen.
        let below = Path::new(path).strip_prefix(root).ok()?;
        let hidden = below.components().any(|part| part.as_os_str() == "..");
        let mount = Path::new(mount).strip_prefix("/").ok()?.to_owned();
        (!hidden).then(|| Self {
            version,
            path: below.display().to_string(),
            mount,
        })
    }

    fn text(&self, source: &Source, file: &str) -> Option<String> {
        source.text(self.mount.join(&self.path).join(file).to_str()?)
    }

    fn number(&self, source: &Source, file: &str) -> Option<u64> {
        self.text(source, file)?.trim().parse().ok()
    }

    fn sample(&self, source: &Source) -> CgroupSample {
        let stat = self.text(source, "memory.stat").unwrap_or_default();
        if self.version == 2 {
            let events = self.text(source, "memory.events").unwrap_or_default();
            return CgroupSample {
                current: self.number(source, "memory.current"),
                anon: counter(&stat, "anon"),
                file: counter(&stat, "file"),
                shmem: counter(&stat, "shmem"),
                slab: counter(&stat, "slab"),
                kernel: counter(&stat, "kernel"),
                sock: counter(&stat, "sock"),
                swap: self.number(source, "memory.swap.current"),
                events_high: counter(&events, "high"),
                events_max: counter(&events, "max"),
                events_oom: counter(&events, "oom"),
                events_oom_kill: counter(&events, "oom_kill"),
            };
        }
        let oom = self.text(source, "memory.oom_control").unwrap_or_default();
        CgroupSample {
            current: self.number(source, "memory.usage_in_bytes"),
            anon: counter(&stat, "total_rss"),
            file: counter(&stat, "total_cache"),
            shmem: counter(&stat, "total_shmem"),
            slab: None,
            kernel: self.number(source, "memory.kmem.usage_in_bytes"),
            sock: self.number(source, "memory.kmem.tcp.usage_in_bytes"),
            swap: counter(&stat, "total_swap"),
            events_high: None,
            events_max: self.number(source, "memory.failcnt"),
            events_oom: None,
            events_oom_kill: counter(&oom, "oom_kill"),
        }
    }

    /// The groups whose limits of memory hold for this one, itself among them, and how full they are.
    fn levels(&self, source: &Source, swap_free: u64) -> Vec<(PathBuf, Level)> {
        let above = Path::new(&self.path).ancestors();
        let levels = above.filter_map(|path| {
            let group = Group {
                path: path.to_str()?.to_owned(),
                ..self.clone()
            };
            Some((self.mount.join(path), group.level(source, swap_free)?))
        });
        levels.collect()
    }

    /// `None`: it has no limit of its own.
    fn level(&self, source: &Source, swap_free: u64) -> Option<Level> {
        let (current, file, shared) = match self.version {
            2 => ("memory.current", "file", "shmem"),
            _ => ("memory.usage_in_bytes", "total_cache", "total_shmem"),
        };
        let limit = self.limit_file();
        let limit = self.number(source, limit).filter(|&it| it < UNLIMITED)?;
        let current = self.number(source, current)?;
        // The kernel has to add its counters up for more than that.
        if current < limit / 2 {
            return Some(Level {
                used: current,
                limit,
            });
        }
        let stat = self.text(source, "memory.stat").unwrap_or_default();
        let of = |key| counter(&stat, key).unwrap_or(0);
        let used = current.saturating_sub(of(file).saturating_sub(of(shared)));
        // Version 1 has one limit for both, which few set.
        let swapped = self.number(source, "memory.swap.current").unwrap_or(0);
        let most = match self.text(source, "memory.swap.max") {
            Some(most) => most.trim().parse().unwrap_or(u64::MAX),
            None => 0,
        };
        Some(Level {
            used: used + swapped,
            limit: limit + most.min(swapped + swap_free),
        })
    }

    /// The file with its limit of memory.
    fn limit_file(&self) -> &'static str {
        match self.version {
            2 => "memory.max",
            _ => "memory.limit_in_bytes",
        }
    }

    /// The lowest limit of the group and of those above it, which hold for it too.
    fn limit(&self, source: &Source, file: &str) -> Option<u64> {
        Path::new(&self.path)
            .ancestors()
            .filter_map(|path| {
                let path = self.mount.join(path).join(file);
                source.text(path.to_str()?)?.trim().parse::<u64>().ok()
            })
            .filter(|&limit| limit < UNLIMITED)
            .min()
    }
}

/// `/proc/PID/cgroup`: lines `NUMBER:CONTROLLERS:PATH`; version 2's names no controllers
/// (cgroups(7)). A controller that version 1 has is not version 2's.
fn group_path<'a>(text: &'a str, controller: &str) -> Option<(u8, &'a str)> {
    let groups = || {
        text.lines()
            .filter_map(|line| line.split_once(':')?.1.split_once(':'))
    };
    let version1 = groups().find(|(names, _)| names.split(',').any(|name| name == controller));
    let version2 = groups().find(|(names, _)| names.is_empty());
    version1
        .map(|(_, path)| (1, path))
        .or(version2.map(|(_, path)| (2, path)))
}

/// Root and mount point of a hierarchy, from `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
fn mount<'a>(text: &'a str, version: u8, controller: &str) -> Option<(&'a str, &'a str)> {
    text.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let found = match (kind.next()?, version) {
            ("cgroup2", 2) => true,
            ("cgroup", 1) => kind.nth(1)?.split(',').any(|option| option == controller),
            _ => false,
        };
        let mut mount = mount.split(' ').skip(3);
        found.then_some((mount.next()?, mount.next()?))
    })
}

/// The memory control groups of the traced processes; each is read once an interval at most,
/// however many processes it has, and takes at most 1 % of the time (the kernel sums up its
/// counters of all CPUs for it).
#[derive(Debug)]
pub(crate) struct Cgroups {
    started: Instant,
    groups: Vec<(Group, Budget)>,
    numbers: HashMap<Group, u32>,
    least_rest: Duration,
}

impl Cgroups {
    /// None yet; each is read at the distance `least_rest` at least.
    pub(crate) fn new(least_rest: Duration) -> Self {
        Self {
            started: Instant::now(),
            least_rest,
            groups: Vec::new(),
            numbers: HashMap::new(),
        }
    }

    /// Number of the group that process `tgid` is in; `None` if it cannot be read.
    pub(crate) fn number(&mut self, source: &Source, tgid: u32) -> Option<u32> {
        let group = Group::of(source, tgid, "memory")?;
        if let Some(&number) = self.numbers.get(&group) {
            return Some(number);
        }
        let number = u32::try_from(self.groups.len()).ok()?;
        self.groups
            .push((group.clone(), Budget::new(self.least_rest)));
        self.numbers.insert(group, number);
        Some(number)
    }

    /// How full the limits are that hold for a group of this number, and the place of each.
    pub(crate) fn levels(
        &self,
        source: &Source,
        number: u32,
        swap_free: u64,
    ) -> Vec<(PathBuf, Level)> {
        let group = self.groups.get(number as usize);
        group.map_or_else(Vec::new, |(group, _)| group.levels(source, swap_free))
    }

    /// Reads those of `wanted` that are due, and returns how long that took.
    pub(crate) fn sample(
        &mut self,
        source: &Source,
        wanted: &HashSet<u32>,
    ) -> (Vec<(u32, CgroupSample)>, Duration) {
        let mut samples = Vec::new();
        let mut spent = Duration::ZERO;
        for (number, (group, budget)) in (0..).zip(&mut self.groups) {
            let begin = self.started.elapsed();
            if !wanted.contains(&number) || !budget.allows(begin) {
                continue;
            }
            samples.push((number, group.sample(source)));
            let end = self.started.elapsed();
            budget.spent(end, end.saturating_sub(begin));
            spent += end.saturating_sub(begin);
        }
        (samples, spent)
    }
}

/// The place of the memory control group of process `tgid`.
pub(crate) fn place(source: &Source, tgid: u32) -> Option<PathBuf> {
    let group = Group::of(source, tgid, "memory")?;
    Some(group.mount.join(group.path))
}

/// How full the limits are that hold for process `tgid`.
pub(super) fn levels(source: &Source, tgid: u32, swap_free: u64) -> Vec<Level> {
    let group = Group::of(source, tgid, "memory");
    let levels = group.map_or_else(Vec::new, |group| group.levels(source, swap_free));
    levels.into_iter().map(|(_, level)| level).collect()
}

/// The lowest limit of memory of the control groups of process `tgid`, bytes; `None`: there is none.
pub(crate) fn memory_limit(source: &Source, tgid: u32) -> Option<u64> {
    let group = Group::of(source, tgid, "memory")?;
    group.limit(source, group.limit_file())
}

/// Limits of the control groups of process `tgid`.
pub(super) fn facts(source: &Source, tgid: u32, facts: &mut Facts) {
    if let Some(group) = Group::of(source, tgid, "memory") {
        facts.add("cgroup.version", Some(group.version));
        let path = facts.redactor.path(&format!("/{}", group.path));
        facts.add("cgroup.path", Some(path));
        let files: &[_] = match group.version {
            2 => &[
                ("cgroup.memory.max", "memory.max"),
                ("cgroup.memory.high", "memory.high"),
                ("cgroup.memory.swap.max", "memory.swap.max"),
            ],
            _ => &[
                ("cgroup.memory.max", "memory.limit_in_bytes"),
                ("cgroup.memory.memsw.max", "memory.memsw.limit_in_bytes"),
            ],
        };
        for (field, file) in files {
            facts.add(field, group.limit(source, file));
        }
    }
    if let Some(group) = Group::of(source, tgid, "cpu") {
        facts.add("cgroup.cpu.max", cpus(source, &group));
    }
    if let Some(group) = Group::of(source, tgid, "cpuset") {
        let files = [
            "cpuset.cpus.effective",
            "cpuset.effective_cpus",
            "cpuset.cpus",
        ];
        let set = files.iter().find_map(|file| group.text(source, file));
        facts.add("cgroup.cpuset", set);
    }
    if let Some(group) = Group::of(source, tgid, "pids") {
        facts.add("cgroup.pids.max", group.limit(source, "pids.max"));
    }
}

/// The quota as a number of CPUs, the lowest on the way up; `None` without one.
fn cpus(source: &Source, group: &Group) -> Option<String> {
    let quotas = Path::new(&group.path).ancestors().filter_map(|path| {
        let text = |file: &str| source.text(group.mount.join(path).join(file).to_str()?);
        let (quota, period) = match group.version {
            2 => {
                let max = text("cpu.max")?;
                let (quota, period) = max.trim().split_once(' ')?;
                (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?)
            }
            _ => (
                text("cpu.cfs_quota_us")?.trim().parse::<f64>().ok()?,
                text("cpu.cfs_period_us")?.trim().parse::<f64>().ok()?,
            ),
        };
        // Without a quota version 1 has -1.
        (quota > 0.0 && period > 0.0).then(|| quota / period)
    });
    let lowest = quotas.reduce(f64::min)?;
    Some(format!("{lowest:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Redactor, fixture::tree};

    const V2: [(&str, &str); 9] = [
        ("proc/7/cgroup", "0::/app.slice/worker\n"),
        (
            "proc/self/mountinfo",
            "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
        ),
        ("sys/fs/cgroup/app.slice/memory.max", "1048576\n"),
        ("sys/fs/cgroup/app.slice/worker/memory.max", "max\n"),
        ("sys/fs/cgroup/app.slice/worker/memory.current", "4096\n"),
        (
            "sys/fs/cgroup/app.slice/worker/memory.stat",
            "anon 10\nfile 20\nkernel 5\nshmem 3\nslab_reclaimable 1\nslab 2\n",
        ),
        (
            "sys/fs/cgroup/app.slice/worker/memory.events",
            "low 0\nhigh 1\nmax 2\noom 3\noom_kill 4\n",
        ),
        ("sys/fs/cgroup/app.slice/cpu.max", "150000 100000\n"),
        ("sys/fs/cgroup/app.slice/worker/cpu.max", "max 100000\n"),
    ];

    #[test]
    fn version_two_is_read_and_the_lowest_limit_counts() {
        let (_dir, source) = tree(&V2);
        let mut groups = Cgroups::new(Duration::ZERO);
        let number = groups.number(&source, 7).unwrap();
        assert_eq!(groups.number(&source, 7), Some(number));
        let (samples, _) = groups.sample(&source, &HashSet::from([number]));
        let expected = CgroupSample {
            current: Some(4096),
            anon: Some(10),
            file: Some(20),
            shmem: Some(3),
            slab: Some(2),
            kernel: Some(5),
            events_high: Some(1),
            events_max: Some(2),
            events_oom: Some(3),
            events_oom_kill: Some(4),
            ..CgroupSample::default()
        };
        assert_eq!(samples, [(number, expected)]);
        assert_eq!(groups.sample(&source, &HashSet::new()).0, []);

        let redactor = Redactor::default();
        let mut list = Facts::new(None, &redactor);
        facts(&source, 7, &mut list);
        assert_eq!(list.value("cgroup.version"), Some("2"));
        assert_eq!(list.value("cgroup.path"), Some("/app.slice/worker"));
        assert_eq!(list.value("cgroup.memory.max"), Some("1048576"));
        assert_eq!(list.value("cgroup.memory.high"), None);
        assert_eq!(memory_limit(&source, 7), Some(1_048_576));
        assert_eq!(list.value("cgroup.cpu.max"), Some("1.50"));
    }

    #[test]
    fn every_limit_above_has_its_level_without_file_pages() {
        let files = [
            ("sys/fs/cgroup/app.slice/memory.current", "900000\n"),
            (
                "sys/fs/cgroup/app.slice/memory.stat",
                "file 500000\nshmem 100000\n",
            ),
            ("sys/fs/cgroup/app.slice/memory.swap.current", "1000\n"),
            ("sys/fs/cgroup/app.slice/memory.swap.max", "max\n"),
        ];
        let (_dir, source) = tree(&[&V2[..], &files].concat());
        let group = Group::of(&source, 7, "memory").unwrap();
        let level = Level {
            used: 900_000 - 400_000 + 1000,
            limit: 1_048_576 + 1000 + 5000,
        };
        let place = PathBuf::from("sys/fs/cgroup/app.slice");
        assert_eq!(group.levels(&source, 5000), [(place, level)]);
        assert_eq!(level.room(), 1_048_576 + 5000 - 500_000);
    }

    #[test]
    fn version_one_is_read_by_controller() {
        let (_dir, source) = tree(&[
            (
                "proc/7/cgroup",
                "4:memory:/docker/x\n2:cpu,cpuacct:/docker/x\n0::/\n",
            ),
            (
                "proc/self/mountinfo",
                "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                 35 31 0:32 /docker /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                 36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                 41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
            ),
            ("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "8192\n"),
            ("sys/fs/cgroup/memory/x/memory.failcnt", "6\n"),
            (
                "sys/fs/cgroup/memory/x/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            (
                "sys/fs/cgroup/memory/x/memory.stat",
                "cache 1\nrss 2\ntotal_cache 30\ntotal_rss 40\ntotal_shmem 5\n",
            ),
            ("sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us", "100000\n"),
        ]);
        let group = Group::of(&source, 7, "memory").unwrap();
        assert_eq!((group.version, group.path.as_str()), (1, "x"));
        let sample = group.sample(&source);
        assert_eq!((sample.current, sample.anon), (Some(8192), Some(40)));
        assert_eq!((sample.file, sample.shmem), (Some(30), Some(5)));
        assert_eq!(sample.events_max, Some(6));
        let redactor = Redactor::default();
        let mut list = Facts::new(None, &redactor);
        facts(&source, 7, &mut list);
        assert_eq!(list.value("cgroup.memory.max"), None);
        assert_eq!(list.value("cgroup.cpu.max"), None);
    }

    #[test]
    fn groups_hidden_by_the_mount_are_not_read() {
        for (groups, mounts) in [
            (
                "0::/../other",
                "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
            ),
            (
                "0::/a",
                "29 23 0:26 /b /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
            ),
            ("0::/a", "29 23 0:26"),
            (
                "rubbish",
                "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
            ),
        ] {
            let (_dir, source) =
                tree(&[("proc/7/cgroup", groups), ("proc/self/mountinfo", mounts)]);
            assert_eq!(Group::of(&source, 7, "memory"), None, "{groups} {mounts}");
        }
    }
}
