//! Remains of tracing in the kernel and in other processes: BPF programs and links by id, and code
//! pages compared with their files.

use crate::until;
use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::{
        fd::{FromRawFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::Path,
};

/// Whether tasks can be preempted in a program of a system call's tracepoint. The kernel then skips the program in every
/// other task of that CPU.
pub fn preempts_programs_of_system_calls() -> bool {
    version() >= (7, 1)
}

/// Whether a program decides at each entry of a function if it runs at the return.
pub fn has_uprobe_sessions() -> bool {
    version() >= (6, 13)
}

fn version() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().unwrap().parse().unwrap();
    (number(), number())
}

/// BPF objects that a process holds, by id: the kernel knows them by it for as
/// long as anything (a descriptor, an attachment, a pin) keeps them alive.
#[derive(Debug, Default)]
pub struct Loaded {
    programs: BTreeSet<u32>,
    links: BTreeSet<u32>,
    /// Perf events, which programs are attached to.
    events: usize,
    uprobes: usize,
}

/// BPF_PROG_TYPE_KPROBE of linux/bpf.h: the type of uprobe programs.
const KPROBE: &str = "2";
/// BPF_PROG_GET_FD_BY_ID of linux/bpf.h.
const PROGRAM_BY_ID: libc::c_long = 13;
/// BPF_LINK_GET_FD_BY_ID of linux/bpf.h.
const LINK_BY_ID: libc::c_long = 30;

impl Loaded {
    /// The programs and links that this process holds now.
    ///
    /// # Panics
    /// When there is no uprobe program among it, which would make a test of its absence worthless.
    #[track_caller]
    pub fn by(pid: u32) -> Self {
        let mut loaded = Self::default();
        for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap() {
            // A descriptor may be closed meanwhile.
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap_or_default();
            let descriptor = Path::new("/proc").join(pid.to_string()).join("fd");
            let target = fs::read_link(descriptor.join(path.file_name().unwrap()));
            let is_event = target.is_ok_and(|target| target.ends_with("anon_inode:[perf_event]"));
            loaded.events += usize::from(is_event);
            let value = |key: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(key))?;
                Some(line.trim_start_matches(':').trim())
            };
            if let Some(id) = value("link_id") {
                loaded.links.insert(id.parse().unwrap());
            } else if let Some(id) = value("prog_id") {
                loaded.programs.insert(id.parse().unwrap());
                loaded.uprobes += usize::from(value("prog_type") == Some(KPROBE));
            }
        }
        assert!(
            loaded.uprobes > 0,
            "no uprobe program is loaded: {loaded:?}"
        );
        loaded
    }

    /// Attached programs: by a link each, or before Linux 5.15 by a perf event alone.
    pub fn attached(&self) -> usize {
        self.links.len().max(self.events)
    }

    /// Waits until the kernel has freed all of it (which happens late).
    #[track_caller]
    pub fn expect_gone(&self) {
        until("the end of every BPF program and link", || {
            let programs = self.programs.iter().any(|&id| exists(PROGRAM_BY_ID, id));
            let links = self.links.iter().any(|&id| exists(LINK_BY_ID, id));
            (!programs && !links).then_some(())
        });
    }
}

fn exists(command: libc::c_long, id: u32) -> bool {
    // union bpf_attr of linux/bpf.h: { id, next_id, open_flags }.
    let attributes = [id, 0, 0];
    // SAFETY: the kernel reads `attributes` up to the given size.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    };
    if fd < 0 {
        let error = std::io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "bpf: {error}");
        return false;
    }
    // SAFETY: a descriptor just opened, without another owner.
    drop(unsafe { OwnedFd::from_raw_fd(fd as i32) });
    true
}

/// Bytes of code, in every file that a process maps executable, that are not
/// as the file has them: breakpoints.
#[track_caller]
pub fn patched_bytes(pid: u32) -> usize {
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut compared = 0;
    let mut patched = 0;
    for line in maps.lines() {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [range, "r-xp", offset, _, _, path] = fields[..] else {
            continue;
        };
        if !path.starts_with('/') {
            continue;
        }
        let (from, to) = range.split_once('-').unwrap();
        let [from, to, offset] =
            [from, to, offset].map(|text| u64::from_str_radix(text, 16).unwrap());
        let file = fs::read(path).unwrap();
        let file = &file[offset as usize..];
        let mut code = vec![0; file.len().min((to - from) as usize)];
        memory.read_exact_at(&mut code, from).unwrap();
        compared += code.len();
        patched += code
            .iter()
            .zip(file)
            .filter(|(ours, its)| ours != its)
            .count();
    }
    assert!(compared > 0, "{pid} maps no code");
    patched
}

/// State of a process as in /proc/PID/stat (`T`: stopped), and its parent.
pub(crate) fn state(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may hold spaces and parentheses.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Every process of the machine.
pub(crate) fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Children of a process.
pub fn children(pid: u32) -> Vec<u32> {
    processes()
        .filter(|&child| matches!(state(child), Some((_, parent)) if parent == pid))
        .collect()
}

/// Children of a process that are stopped.
pub fn stopped_children(pid: u32) -> Vec<u32> {
    let stopped = |child: &u32| matches!(state(*child), Some(('T', _)));
    children(pid).into_iter().filter(stopped).collect()
}
