//! Facts about a process except its libraries and packages: its launch, and its limits.

use std::collections::BTreeMap;

use super::{
    Fact, Facts, Redactor, Source, cgroup, descriptors, environment, isa, userland::System,
};
use crate::ledger::ProcessId;

/// Limits by their names in `/proc/PID/limits`.
const LIMITS: &[(&str, &str)] = &[
    ("limits.as", "Max address space"),
    ("limits.core", "Max core file size"),
    ("limits.data", "Max data size"),
    ("limits.fsize", "Max file size"),
    ("limits.memlock", "Max locked memory"),
    ("limits.nofile", "Max open files"),
    ("limits.nproc", "Max processes"),
    ("limits.rss", "Max resident set"),
    ("limits.stack", "Max stack size"),
];

/// Fields of `/proc/PID/status`.
const STATUS: &[(&str, &str)] = &[
    ("affinity.cpus", "Cpus_allowed_list"),
    ("affinity.mems", "Mems_allowed_list"),
    ("thp.process_enabled", "THP_enabled"),
    ("process.seccomp", "Seccomp"),
];

/// All facts about process `tgid` that may be read, of which `environ` is the environment; those that explain most come first. Empty if it
/// is gone.
pub(crate) fn facts(
    source: &Source,
    process: ProcessId,
    tgid: u32,
    environ: Option<&[u8]>,
    redactor: &Redactor,
) -> Vec<Fact> {
    let mut facts = Facts::new(Some(process), redactor);
    let text = |file: &str| source.text(&format!("proc/{tgid}/{file}"));
    let Some(status_text) = text("status") else {
        return Vec::new();
    };
    // A process that has exited has no environment: the file is empty.
    let is_there =
        |environ: &&[u8]| !environ.is_empty() || source.exists(format!("proc/{tgid}/exe"));
    let environ = environ.filter(is_there);
    environment::facts(environ, &mut facts);
    let environ = environ.unwrap_or_default();
    facts.add("isa.level", effective_isa(source, environ));
    status(&status_text, &mut facts);
    cgroup::facts(source, tgid, &mut facts);
    limits(&text("limits").unwrap_or_default(), &mut facts);
    // The policy of the first mapping is the process's, unless it was given one of its own.
    let numa = source
        .beginning(&format!("proc/{tgid}/numa_maps"))
        .unwrap_or_default();
    facts.add("numa.policy", numa.split_whitespace().nth(1));
    facts.add("process.oom_score_adj", text("oom_score_adj"));
    facts.add("process.personality", text("personality"));
    container(source, tgid, &mut facts);
    descriptors::facts(source, tgid, &mut facts);
    facts.into_vec()
}

/// The features by which glibc chooses among variants of functions: the CPU's features without
/// those that the environment disables.
fn effective_isa(source: &Source, environ: &[u8]) -> Option<&'static str> {
    let disabled = environment::disabled_features(environ);
    let mut flags = source.flags()?.to_vec();
    flags.retain(|flag| !disabled.contains(flag));
    Some(isa::level(&flags))
}

fn status(text: &str, facts: &mut Facts) {
    let value = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
    };
    facts.add(
        "affinity.count",
        value("Cpus_allowed_list").and_then(|list| count(list.trim())),
    );
    for (field, key) in STATUS {
        facts.add(field, value(key));
    }
}

/// Numbers in a list such as `0-3,8`.
fn count(list: &str) -> Option<u64> {
    let mut sum = 0;
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        sum += last.checked_sub(first)? + 1;
    }
    Some(sum)
}

/// Columns of a fixed width: name, soft limit, hard limit, unit (fs/proc/base.c, proc_pid_limits).
fn limits(text: &str, facts: &mut Facts) {
    for (field, name) in LIMITS {
        let limit = text.lines().find_map(|line| {
            let mut words = line.strip_prefix(name)?.split_whitespace();
            Some(format!("{} (hard {})", words.next()?, words.next()?))
        });
        facts.add(field, limit);
    }
}

fn container(source: &Source, tgid: u32, facts: &mut Facts) {
    let system = source.system_of(tgid);
    if let Some(system) = &system {
        let release = os_release(&system.release);
        for (field, key) in [
            ("os.id", "ID"),
            ("os.version", "VERSION_ID"),
            ("os.name", "PRETTY_NAME"),
        ] {
            facts.add(field, release.get(key));
        }
    }
    let kind = container_kind(source, tgid, system.as_deref());
    facts.add("container.kind", kind);
    for namespace in ["cgroup", "mnt", "pid", "user"] {
        let link = |of: &str| std::fs::read_link(source.path(&format!("proc/{of}/ns/{namespace}")));
        if let (Ok(its), Ok(ours)) = (link(&tgid.to_string()), link("self")) {
            let shared = if its == ours { "memtrace's" } else { "its own" };
            facts.add(&format!("namespace.{namespace}"), Some(shared));
        }
    }
    let mounts = source
        .text(&format!("proc/{tgid}/mountinfo"))
        .unwrap_or_default();
    facts.add("filesystem.root", filesystem(&mounts, "/"));
    facts.add("filesystem.dev_shm", filesystem(&mounts, "/dev/shm"));
    facts.add("dev_shm.size", size_option(&mounts, "/dev/shm"));
}

/// `KEY=VALUE`, quoted or not (os-release(5)).
fn os_release(text: &str) -> BTreeMap<&str, &str> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key, value.trim_matches(['"', '\''])))
        .collect()
}

fn container_kind(source: &Source, tgid: u32, system: Option<&System>) -> Option<&'static str> {
    let groups = source
        .text(&format!("proc/{tgid}/cgroup"))
        .unwrap_or_default();
    if groups.contains("kubepods") {
        Some("kubernetes")
    } else if system.is_some_and(|system| system.of_podman) {
        Some("podman")
    } else if system.is_some_and(|system| system.of_docker) {
        Some("docker")
    } else if groups.contains("/lxc") {
        Some("lxc")
    } else {
        None
    }
}

/// Type of the file system that is mounted last at `point`, and its own options
/// (proc_pid_mountinfo(5)).
fn mounted<'a>(mountinfo: &'a str, point: &str) -> Option<(&'a str, &'a str)> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (mount, kind) = line.split_once(" - ")?;
            let mut kind = kind.split(' ');
            let found = (kind.next()?, kind.nth(1).unwrap_or_default());
            (mount.split(' ').nth(4) == Some(point)).then_some(found)
        })
        .next_back()
}

fn filesystem<'a>(mountinfo: &'a str, point: &str) -> Option<&'a str> {
    Some(mounted(mountinfo, point)?.0)
}

/// Capacity of a tmpfs in bytes, without any request to it: a file system may be the process's own,
/// and never answer.
fn size_option(mountinfo: &str, point: &str) -> Option<String> {
    let (kind, options) = mounted(mountinfo, point)?;
    let size = options.split(',').find_map(|o| o.strip_prefix("size="));
    let bytes = size.and_then(|size| match size.strip_suffix('k') {
        Some(kilobytes) => kilobytes.parse::<u64>().ok()?.checked_mul(1024),
        None => size.parse().ok(),
    });
    match bytes {
        Some(bytes) => Some(bytes.to_string()),
        // mm/shmem.c, shmem_default_max_blocks
        None => (kind == "tmpfs").then(|| "half of the memory".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{host::fixture::tree, recording::variables};

    #[test]
    fn the_texts_of_a_process_become_facts() {
        let (_dir, source) = tree(&[
            (
                "proc/7/environ",
                "OMP_NUM_THREADS=2\0HOME=/root\0GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2\0",
            ),
            (
                "proc/cpuinfo",
                "flags : cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3 avx avx2 bmi1 bmi2 f16c fma abm \
                 movbe xsave\n",
            ),
            (
                "proc/7/status",
                "Name:\tx\nTHP_enabled:\t1\nCpus_allowed_list:\t0-3,8\nMems_allowed_list:\t0\n",
            ),
            (
                "proc/7/limits",
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max open files            1024                 524288               files     \n\
                 Max stack size            8388608              unlimited            bytes     \n",
            ),
            (
                "proc/7/numa_maps",
                "55d0 default file=/usr/bin/a\n7f00 bind:0 anon=1\n",
            ),
            (
                "proc/7/root/etc/os-release",
                "PRETTY_NAME=\"Debian 12\"\nID=debian\nVERSION_ID='12'\n",
            ),
            ("proc/7/root/.dockerenv", ""),
            (
                "proc/7/mountinfo",
                "1 0 0:1 / / rw - ext4 /dev/vda rw\n2 1 0:2 / / rw - overlay overlay rw\n\
                 3 2 0:3 / /dev/shm rw,nosuid shared:1 - tmpfs shm rw,size=65536k\n",
            ),
        ]);
        let list = Facts {
            process: None,
            redactor: &Redactor::default(),
            list: facts(
                &source,
                ProcessId(3),
                7,
                source.bytes("proc/7/environ").as_deref(),
                &Redactor::default(),
            ),
        };
        for (field, expected) in [
            ("env.OMP_NUM_THREADS", "2"),
            ("isa.level", "x86-64-v2"),
            ("affinity.count", "5"),
            ("affinity.cpus", "0-3,8"),
            ("thp.process_enabled", "1"),
            ("limits.nofile", "1024 (hard 524288)"),
            ("limits.stack", "8388608 (hard unlimited)"),
            ("numa.policy", "default"),
            ("os.id", "debian"),
            ("os.version", "12"),
            ("container.kind", "docker"),
            ("filesystem.root", "overlay"),
            ("filesystem.dev_shm", "tmpfs"),
            ("dev_shm.size", "67108864"),
        ] {
            assert_eq!(list.value(field), Some(expected), "{field}");
        }
        assert_ne!(list.value("env.HOME"), Some("/root"));
        assert_eq!(list.value(variables::NAMES), Some(variables::ALL));
        assert!(
            list.list
                .iter()
                .all(|fact| fact.process == Some(ProcessId(3)))
        );
    }

    #[test]
    fn a_process_that_is_gone_has_no_facts_of_its_own() {
        let (_dir, source) = tree(&[]);
        assert_eq!(
            facts(&source, ProcessId(0), 7, None, &Redactor::default()),
            []
        );
        let (_dir, ended) = tree(&[("proc/7/status", "Name:\tx\n"), ("proc/7/environ", "")]);
        let list = Facts {
            process: None,
            redactor: &Redactor::default(),
            list: facts(&ended, ProcessId(0), 7, Some(b""), &Redactor::default()),
        };
        let names = list.value(variables::NAMES);
        assert_eq!(names, Some(variables::UNREADABLE));
    }

    #[test]
    fn malformed_lists_are_not_counted() {
        for list in ["", "3-1", "a", "0-", "1,,2"] {
            assert_eq!(count(list), None, "{list}");
        }
        assert_eq!(count("0"), Some(1));
    }
}
