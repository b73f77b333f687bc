//! The checks themselves. Reading is separate from judging, so that the judgement can be tested for
//! other hosts than this one.

use super::outcome::Check;
use crate::bpf::{self, Feature};
use std::{
    fs, io,
    os::fd::{FromRawFd, OwnedFd},
    path::{Path, PathBuf},
};

/// Inode of the initial pid namespace, PROC_PID_INIT_INO of include/linux/proc_ns.h.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";
/// On kernels without multi links a traced process takes about 50 descriptors for its
/// probes; this is enough for some dozens of processes.
const COMFORTABLE_FILES: u64 = 4096;
/// sudo searches folders of its own: not those of a virtual environment or of cargo.
const AS_ROOT: &str = "run it as root: `sudo \"$(command -v memtrace)\" …`";
const WITH_CAPABILITIES: &str =
    "run it as root: `sudo \"$(command -v memtrace)\" …`, or with the capabilities of SECURITY.md";

pub(super) fn checks() -> Vec<Check> {
    let effective = fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| effective_capabilities(&status));
    let tracefs = tracefs_root();
    vec![
        kernel(
            fs::read_to_string("/proc/sys/kernel/osrelease"),
            bpf::missing_feature(),
            bpf::needs_legacy(),
        ),
        architecture(std::env::consts::ARCH),
        capabilities(effective, tracefs.is_some()),
        users_files(effective),
        ring_buffer(create_ring_buffer()),
        btf(fs::File::open("/sys/kernel/btf/vmlinux").map(drop)),
        lockdown(
            fs::read_to_string("/sys/kernel/security/lockdown"),
            is_populated(Path::new("/sys/kernel/security")),
        ),
        tracefs_check(
            tracefs.as_deref(),
            fs::read_to_string("/proc/filesystems"),
            effective.is_some_and(|set| has(set, SYS_ADMIN)),
        ),
        syscall_tracepoints(tracefs.as_deref()),
        uprobes(fs::read_to_string(
            "/sys/bus/event_source/devices/uprobe/type",
        )),
        pid_namespace(fs::read_link("/proc/self/ns/pid")),
        open_files(hard_limit_of_files()),
    ]
}

/// `lacks`: what the kernel side needs and the kernel has not; `is_legacy`: the kernel side for older kernels is used.
fn kernel(release: io::Result<String>, lacks: Option<Feature>, is_legacy: bool) -> Check {
    const NAME: &str = "kernel";
    let Ok(release) = release else {
        return Check::unknown(NAME, "`/proc/sys/kernel/osrelease` cannot be read");
    };
    let release = release.trim();
    match lacks {
        Some(Feature { name, since }) => Check::missing(
            NAME,
            format!("{release}, without {name}"),
            format!("it came with Linux {since}; 5.10 or later has everything"),
        ),
        None if is_legacy => Check::ok(
            NAME,
            format!("{release}; without bpf_loop: with the programs for Linux 5.10 to 5.16"),
        ),
        None => Check::ok(NAME, release),
    }
}

fn architecture(name: &str) -> Check {
    const NAME: &str = "architecture";
    match name {
        "x86_64" | "aarch64" => Check::ok(NAME, name),
        _ => Check::missing(NAME, name, "only x86_64 and aarch64 are supported so far"),
    }
}

/// Numbers of include/uapi/linux/capability.h.
const DAC_OVERRIDE: u32 = 1;
const DAC_READ_SEARCH: u32 = 2;
const SETGID: u32 = 6;
const SETUID: u32 = 7;
const SYS_PTRACE: u32 = 19;
const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;
const CHECKPOINT_RESTORE: u32 = 40;

fn has(set: u64, capability: u32) -> bool {
    set & (1 << capability) != 0
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    u64::from_str_radix(value.trim(), 16).ok()
}

/// `sees_tracefs`: its tracepoints can be looked up.
fn capabilities(effective: Option<u64>, sees_tracefs: bool) -> Check {
    const NAME: &str = "capabilities";
    let Some(set) = effective else {
        return Check::unknown(NAME, "`/proc/self/status` does not list capabilities");
    };
    let mut missing = Vec::new();
    if !has(set, SYS_ADMIN) {
        missing.extend((!has(set, BPF)).then_some("CAP_BPF"));
        missing.extend((!has(set, PERFMON)).then_some("CAP_PERFMON"));
    }
    // For /proc/PID/mem and /proc/PID/map_files of other users' processes.
    missing.extend((!has(set, SYS_PTRACE)).then_some("CAP_SYS_PTRACE"));
    // Where tracefs is mounted, only root may enter it.
    let reads_all = has(set, DAC_READ_SEARCH) || has(set, DAC_OVERRIDE);
    let may_mount = has(set, SYS_ADMIN);
    missing.extend((!sees_tracefs && !reads_all && !may_mount).then_some("CAP_DAC_READ_SEARCH"));
    if missing.is_empty() {
        Check::ok(
            NAME,
            "BPF, perf events and access to other processes are allowed",
        )
    } else {
        Check::missing(
            NAME,
            format!("without {}", missing.join(", ")),
            WITH_CAPABILITIES,
        )
    }
}

/// Without these, processes of other users have fewer names, or no probes in their libraries.
fn users_files(effective: Option<u64>) -> Check {
    const NAME: &str = "other users' files";
    let Some(set) = effective else {
        return Check::unknown(NAME, "`/proc/self/status` does not list capabilities").optional();
    };
    let mapped = has(set, CHECKPOINT_RESTORE) || has(set, SYS_ADMIN);
    let mut missing = Vec::new();
    missing.extend((!mapped).then_some("CAP_CHECKPOINT_RESTORE"));
    missing.extend((!has(set, SETUID)).then_some("CAP_SETUID"));
    missing.extend((!has(set, SETGID)).then_some("CAP_SETGID"));
    match missing.is_empty() {
        true => Check::ok(NAME, "mapped files by inode, others with their user's rights"),
        false => Check::missing(
            NAME,
            format!("without {}", missing.join(", ")),
            "CAP_CHECKPOINT_RESTORE opens mapped files by inode; CAP_SETUID and CAP_SETGID open debug files, perf \
             maps and lists of packages with their user's rights",
        ),
    }
    .optional()
}

/// Creates the smallest ring buffer and lets it go.
fn create_ring_buffer() -> io::Result<()> {
    /// First fields of `union bpf_attr` for BPF_MAP_CREATE, include/uapi/linux/bpf.h.
    #[repr(C)]
    struct MapCreate {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
    }
    const BPF_MAP_CREATE: libc::c_long = 0;
    const BPF_MAP_TYPE_RINGBUF: u32 = 27;
    let attributes = MapCreate {
        map_type: BPF_MAP_TYPE_RINGBUF,
        key_size: 0,
        value_size: 0,
        max_entries: procfs::page_size() as u32,
    };
    // SAFETY: bpf(2) reads the given number of bytes of a structure that lives.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_MAP_CREATE,
            &raw const attributes,
            size_of::<MapCreate>(),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nothing else owns.
    drop(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) });
    Ok(())
}

fn ring_buffer(created: io::Result<()>) -> Check {
    const NAME: &str = "BPF ring buffer";
    let Err(error) = created else {
        return Check::ok(NAME, "can be created");
    };
    match error.raw_os_error() {
        // A container's seccomp filter and a kernel that counts maps as locked memory (< 5.11)
        // refuse it to root as well.
        Some(libc::EPERM | libc::EACCES) => Check::missing(
            NAME,
            "bpf(2) is not permitted",
            format!("{AS_ROOT}; in a container, with `--privileged`"),
        ),
        Some(libc::ENOSYS) => Check::missing(
            NAME,
            "bpf(2) is not in this kernel",
            "a kernel with CONFIG_BPF_SYSCALL=y",
        ),
        Some(libc::EINVAL) => {
            Check::missing(NAME, "not known to this kernel", "Linux 5.8 or later")
        }
        _ => Check::unknown(NAME, error.to_string()),
    }
}

fn btf(opened: io::Result<()>) -> Check {
    const NAME: &str = "BTF";
    const PATH: &str = "`/sys/kernel/btf/vmlinux`";
    match opened {
        Ok(()) => Check::ok(NAME, PATH),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Check::missing(
            NAME,
            format!("{PATH} does not exist"),
            "a kernel with CONFIG_DEBUG_INFO_BTF=y, as most distributions' are",
        ),
        Err(error) => Check::unknown(NAME, format!("{PATH}: {error}")),
    }
}

fn lockdown(state: io::Result<String>, securityfs_mounted: bool) -> Check {
    const NAME: &str = "lockdown";
    match state {
        Ok(state) if state.contains("[confidentiality]") => Check::missing(
            NAME,
            "confidentiality: BPF may not read memory",
            "boot with `lockdown=integrity`, or without",
        ),
        Ok(state) => {
            let active = state.split(['[', ']']).nth(1).unwrap_or("none");
            Check::ok(NAME, active)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && securityfs_mounted => {
            Check::ok(NAME, "not in this kernel")
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Check::unknown(NAME, "securityfs is not mounted")
        }
        Err(error) => Check::unknown(NAME, format!("`/sys/kernel/security/lockdown`: {error}")),
    }
}

/// Mount point of tracefs, of the two places where the kernel's users look.
fn tracefs_root() -> Option<PathBuf> {
    ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
        .into_iter()
        .map(PathBuf::from)
        .find(|place| place.join("events").exists())
}

fn is_populated(directory: &Path) -> bool {
    fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())
}

fn tracefs_check(root: Option<&Path>, filesystems: io::Result<String>, may_mount: bool) -> Check {
    const NAME: &str = "tracefs";
    if let Some(root) = root {
        return Check::ok(NAME, format!("`{}`", root.display()));
    }
    let Ok(filesystems) = filesystems else {
        return Check::unknown(NAME, "`/proc/filesystems` cannot be read");
    };
    let known = filesystems
        .lines()
        .any(|line| line.split_whitespace().last() == Some("tracefs"));
    if !known {
        return Check::missing(NAME, "not in this kernel", "a kernel with CONFIG_FTRACE=y");
    }
    if may_mount {
        Check::ok(NAME, "not mounted; `memtrace record` mounts it")
    } else {
        // An ordinary user cannot look into a directory that belongs to root either.
        Check::unknown(NAME, "not mounted, or not visible to this user").help(AS_ROOT)
    }
}

fn syscall_tracepoints(tracefs: Option<&Path>) -> Check {
    const NAME: &str = "syscall tracepoints";
    let Some(tracefs) = tracefs else {
        return Check::unknown(NAME, "cannot be checked without tracefs");
    };
    let id = tracefs.join("events/syscalls/sys_exit_mmap/id");
    match fs::metadata(&id) {
        Ok(_) => Check::ok(NAME, "available"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Check::missing(
            NAME,
            format!("`{}` does not exist", id.display()),
            "a kernel with CONFIG_FTRACE_SYSCALLS=y",
        ),
        Err(error) => Check::unknown(NAME, format!("`{}`: {error}", id.display())),
    }
}

fn uprobes(kind: io::Result<String>) -> Check {
    const NAME: &str = "uprobes";
    match kind {
        Ok(_) => Check::ok(NAME, "available"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Check::missing(
            NAME,
            "`/sys/bus/event_source/devices/uprobe` does not exist",
            "a kernel with CONFIG_UPROBE_EVENTS=y",
        ),
        Err(error) => Check::unknown(NAME, error.to_string()),
    }
}

fn pid_namespace(link: io::Result<PathBuf>) -> Check {
    const NAME: &str = "pid namespace";
    match link {
        Ok(link) if link == Path::new(INITIAL_PID_NAMESPACE) => Check::ok(NAME, "the host's"),
        Ok(link) => Check::missing(
            NAME,
            format!("`{}` is not the host's", link.display()),
            "the kernel reports the host's process ids: run it on the host, or with `docker run --pid=host`",
        ),
        Err(error) => Check::unknown(NAME, format!("`/proc/self/ns/pid`: {error}")),
    }
}

fn hard_limit_of_files() -> io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: getrlimit writes to a place that lives.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } {
        0 => Ok(limit.rlim_max),
        _ => Err(io::Error::last_os_error()),
    }
}

fn open_files(limit: io::Result<u64>) -> Check {
    const NAME: &str = "open files";
    match limit {
        Ok(libc::RLIM_INFINITY) => Check::ok(NAME, "no limit"),
        Ok(limit) if limit < COMFORTABLE_FILES => Check::missing(
            NAME,
            format!("at most {limit}; each traced process needs a few dozen"),
            format!("`ulimit -Hn {COMFORTABLE_FILES}` or more, as root"),
        ),
        Ok(limit) => Check::ok(NAME, format!("at most {limit}")),
        Err(error) => Check::unknown(NAME, error.to_string()),
    }
    .optional()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::outcome::Outcome::{Missing, Ok as Fine, Unknown};

    fn not_found<T>() -> io::Result<T> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn denied<T>() -> io::Result<T> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    #[test]
    fn kernels_are_judged_by_what_they_can_do() {
        let release = || Ok("5.14.0-427.el9.x86_64\n".to_owned());
        let check = kernel(release(), None, false);
        assert_eq!(
            (check.outcome, &*check.detail),
            (Fine, "5.14.0-427.el9.x86_64")
        );
        let check = kernel(release(), None, true);
        assert_eq!(check.outcome, Fine);
        assert!(
            check.detail.contains("without bpf_loop"),
            "{}",
            check.detail
        );
        let lacks = Feature {
            name: "bpf_ringbuf_reserve",
            since: "5.8",
        };
        let check = kernel(release(), Some(lacks), true);
        assert_eq!(check.outcome, Missing);
        assert!(check.detail.ends_with("without bpf_ringbuf_reserve"));
        assert!(check.help.unwrap().contains("5.8"));
        assert_eq!(kernel(denied(), None, false).outcome, Unknown);
    }

    #[test]
    fn missing_capabilities_are_named() {
        let set = |capabilities: &[u32]| Some(capabilities.iter().map(|c| 1u64 << c).sum());
        let named = [BPF, PERFMON, SYS_PTRACE, DAC_READ_SEARCH];
        assert_eq!(capabilities(set(&named), false).outcome, Fine);
        assert_eq!(capabilities(set(&named[..3]), true).outcome, Fine);
        let admin = capabilities(set(&[SYS_ADMIN, SYS_PTRACE]), false);
        assert_eq!(admin.outcome, Fine);
        assert_eq!(capabilities(None, false).outcome, Unknown);
        for (some, missing) in [
            (
                &named[..1],
                "CAP_PERFMON, CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH",
            ),
            (&named[..3], "CAP_DAC_READ_SEARCH"),
        ] {
            let detail = capabilities(set(some), false).detail;
            assert_eq!(detail, format!("without {missing}"));
        }
        let of_users = users_files(set(&named));
        assert_eq!((of_users.outcome, of_users.required), (Missing, false));
        let expected = "without CAP_CHECKPOINT_RESTORE, CAP_SETUID, CAP_SETGID";
        assert_eq!(of_users.detail, expected);
        let all = users_files(set(&[CHECKPOINT_RESTORE, SETUID, SETGID]));
        assert_eq!(all.outcome, Fine);
        let none = effective_capabilities("CapPrm:\tff\nCapEff:\t0000\n");
        let none = capabilities(none, true);
        assert_eq!(none.outcome, Missing);
        assert_eq!(none.detail, "without CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE");
        assert!(
            none.help
                .unwrap()
                .contains("sudo \"$(command -v memtrace)\"")
        );
    }

    #[test]
    fn each_refusal_of_a_ring_buffer_has_its_reason() {
        let refused = |errno| ring_buffer(Err(io::Error::from_raw_os_error(errno)));
        assert_eq!(ring_buffer(Ok(())).outcome, Fine);
        assert!(refused(libc::EPERM).detail.contains("not permitted"));
        assert!(refused(libc::ENOSYS).help.unwrap().contains("CONFIG_BPF"));
        assert!(refused(libc::EINVAL).help.unwrap().contains("5.8"));
        assert_eq!(refused(libc::EINVAL).outcome, Missing);
        assert_eq!(refused(libc::ENOMEM).outcome, Unknown);
    }

    #[test]
    fn lockdown_forbids_only_in_confidentiality() {
        let state = |text: &str| lockdown(Ok(text.to_owned()), true);
        assert_eq!(state("[none] integrity confidentiality\n").detail, "none");
        let integrity = state("none [integrity] confidentiality\n");
        assert_eq!((integrity.outcome, &*integrity.detail), (Fine, "integrity"));
        assert_eq!(state("none integrity [confidentiality]\n").outcome, Missing);
        assert_eq!(lockdown(not_found(), true).outcome, Fine);
        assert_eq!(lockdown(not_found(), false).outcome, Unknown);
        assert_eq!(lockdown(denied(), true).outcome, Unknown);
    }

    #[test]
    fn tracefs_may_be_mounted_mountable_or_missing() {
        let known = || Ok("nodev\tsysfs\nnodev\ttracefs\n\text4\n".to_owned());
        let root = Path::new("/sys/kernel/tracing");
        assert_eq!(tracefs_check(Some(root), known(), false).outcome, Fine);
        assert_eq!(tracefs_check(None, known(), true).outcome, Fine);
        assert_eq!(tracefs_check(None, known(), false).outcome, Unknown);
        let unknown = Ok("\text4\n".to_owned());
        assert_eq!(tracefs_check(None, unknown, true).outcome, Missing);
        assert_eq!(syscall_tracepoints(None).outcome, Unknown);
        let empty = tempfile::TempDir::new().unwrap();
        assert_eq!(syscall_tracepoints(Some(empty.path())).outcome, Missing);
    }

    #[test]
    fn absent_is_missing_and_hidden_is_unknown() {
        assert_eq!(btf(not_found()).outcome, Missing);
        assert_eq!(btf(denied()).outcome, Unknown);
        assert_eq!(uprobes(not_found()).outcome, Missing);
        assert_eq!(uprobes(denied()).outcome, Unknown);
        assert_eq!(pid_namespace(denied()).outcome, Unknown);
        let namespace = |text| pid_namespace(Ok(PathBuf::from(text)));
        assert_eq!(namespace("pid:[4026531836]").outcome, Fine);
        assert_eq!(namespace("pid:[4026532281]").outcome, Missing);
        assert_eq!(architecture("riscv64").outcome, Missing);
    }

    #[test]
    fn low_limits_do_not_prevent_tracing() {
        let check = open_files(Ok(1024));
        assert_eq!((check.outcome, check.required), (Missing, false));
        assert!(check.help.is_some());
        assert_eq!(open_files(Ok(libc::RLIM_INFINITY)).outcome, Fine);
    }

    #[test]
    fn this_host_answers_every_question_once() {
        let checks = checks();
        let mut names: Vec<_> = checks.iter().map(|check| check.name).collect();
        assert_eq!(names.len(), 12);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 12);
        for check in checks {
            assert!(!check.detail.is_empty(), "{check:?}");
            assert!(
                check.outcome != Missing || check.help.is_some(),
                "{check:?}"
            );
        }
    }
}
