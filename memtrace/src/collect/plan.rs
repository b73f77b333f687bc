//! The plan of a recording: what is recorded, how, and where it goes.

use std::{
    ffi::{OsStr, OsString},
    os::fd::OwnedFd,
    path::PathBuf,
    time::Duration,
};

use super::{schedule::Spacing, start_after::StartAfter};
use crate::{
    bpf::Options,
    clock,
    host::Redactor,
    probes::allocator::ExtraAllocator,
    process::{self, choose::Choice, launch::Launched, memory},
    recording::Meta,
    symbolize::debuginfod,
};

/// Plan of a recording.
#[derive(Debug)]
pub(crate) struct Plan {
    pub pids: Vec<u32>,
    /// With `start_after`: the processes are those that match it then.
    pub(crate) choice: Option<Choice>,
    pub command: Vec<OsString>,
    /// Make Python call malloc for each object, through a variable in the command's environment.
    pub python_objects: bool,
    /// `None`: `memtrace-PROGRAM-HOST-PID.mtr`.
    pub output: Option<PathBuf>,
    pub force: bool,
    pub duration: Option<Duration>,
    /// A socket on which the command reports the end of each round of its work.
    pub(crate) rounds: Option<OwnedFd>,
    /// Run without probes until then.
    pub(crate) start_after: Option<StartAfter>,
    pub spacing: Spacing,
    pub allocators: Vec<ExtraAllocator>,
    /// Fetch debug files that are not on this machine.
    pub debuginfod: Option<debuginfod::Config>,
    pub options: Options,
    /// Stop new processes, and openers of new libraries, until they are probed.
    pub stop: bool,
    /// Hide host names, user names and paths; secrets always are.
    pub redact: bool,
    /// Search for the holders of growing sites' blocks.
    pub(crate) holders: bool,
    /// Bytes that a search may take, see [`crate::holders::Known`].
    pub(crate) search_memory: Option<u64>,
    /// Summarise the imports of Python programs that start while recording.
    pub summarise_imports: bool,
    /// Fold short-lived processes that have ended.
    pub fold: bool,
    /// Run the collector before ordinary processes, for a bounded share of the time.
    pub ahead: bool,
    /// Also write the kernel side's records to this file, for tests.
    pub capture: Option<PathBuf>,
    /// memtrace's own command line, for the recording.
    pub invocation: Vec<String>,
}

/// `memtrace-PROGRAM-HOST-PID.mtr`, named after the first process.
pub(super) fn default_output(
    plan: &Plan,
    launched: Option<&Launched>,
    redactor: &Redactor,
) -> PathBuf {
    let (program, pid) = match launched {
        Some(launched) => (
            launched.program().file_name().map(OsStr::to_owned),
            launched.tgid(),
        ),
        None => {
            let pid = plan.pids.first().copied().unwrap_or_default();
            (
                memory::identity(pid)
                    .ok()
                    .map(|identity| identity.comm.into()),
                pid,
            )
        }
    };
    let program = program.unwrap_or_default();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!(
        "memtrace-{}-{}-{pid}.mtr",
        program.to_string_lossy(),
        redactor.name(host.trim())
    )
    .chars()
    .map(|c| {
        if c.is_alphanumeric() || "-_.".contains(c) {
            c
        } else {
            '_'
        }
    })
    .collect::<String>()
    .into()
}

/// The description of a recording that begins now.
pub(super) fn meta(plan: &Plan, redactor: &Redactor) -> Meta {
    let read = |path: &str| {
        std::fs::read_to_string(path).map_or_else(|_| String::new(), |text| text.trim().to_owned())
    };
    Meta {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: redactor.name(&read("/proc/sys/kernel/hostname")),
        kernel: read("/proc/sys/kernel/osrelease"),
        command: redactor.arguments(&plan.invocation),
        started_unix_ns: clock::unix_ns(),
        started_ns: clock::monotonic_ns(),
        interval_ns: u64::try_from(plan.spacing.first().as_nanos()).unwrap_or(u64::MAX),
        interval_is_auto: plan.spacing == Spacing::Auto,
        page_size: process::page_size(),
        allocator_prefixes: ExtraAllocator::all_prefixes(&plan.allocators),
        without_heap: !plan.options.heap,
    }
}
