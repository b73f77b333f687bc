//! Options of every command that traces: what is traced, and how.

use clap::Args;

use crate::{bpf::RING_BYTES, probes::allocator::ExtraAllocator, units};

/// What is traced, and how.
#[derive(Clone, Debug, Args)]
pub(super) struct AttachArgs {
    /// Leave out existing and future child processes; `record` and reports list the existing ones
    #[arg(long)]
    pub(super) no_follow: bool,
    /// Do not pause threads while probes are set, and do not use ptrace: the first allocations of
    /// children and of newly loaded libraries are missed, and holders are not searched for
    #[arg(long)]
    pub(super) no_stop: bool,
    /// Probe an allocator that is not detected automatically: its file, and the prefix of its function
    /// names
    #[arg(long, value_name = "PATH[:PREFIX]")]
    pub(super) allocator: Vec<ExtraAllocator>,
    /// Size of the buffer between kernel and collector, 4k to 1g, rounded up to a power of two; raise
    /// it when a report lists `ring_full` losses
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = ring_bytes)]
    pub(super) ring_buffer: u32,
    /// Unwind by frame pointers instead of unwind tables: stacks end where one is missing
    #[arg(long)]
    pub(super) frame_pointers: bool,
    /// Leave out Python frames, except those of summarised imports (see `--imports`)
    #[arg(long)]
    pub(super) no_python: bool,
    /// Record the stacks of Python's imports in full. By default, whatever a module does when it is imported by a
    /// program that has just started is recorded as one frame for the module: the imports of PyTorch alone have
    /// hundreds of thousands of stacks. 30 seconds after the last new module, stacks are whole in any case
    #[arg(long)]
    pub(super) imports: bool,
    /// Leave out malloc and its relatives, at a fraction of the cost: record device memory, PyTorch's
    /// tensors and address space only
    #[arg(long)]
    pub(super) no_heap: bool,
    /// Replace host names, user names and folders with hashes, so that the recording can be shared;
    /// values that look like secrets are always hidden
    #[arg(long)]
    pub(super) redact: bool,
    /// Keep each short-lived process separately. By default those with the same command line become one
    /// row when they end, so that memory and file do not grow with every process that ever lived
    #[arg(long)]
    pub(super) no_fold: bool,
    /// The collector's priority: `high` runs it before all other processes, for at most 80 % of one processor (4 ms of
    /// every 5), so that it keeps up on a busy machine; `normal` lets it compete with them, and may lose events
    #[arg(long, value_enum, default_value_t = Priority::High)]
    pub(super) priority: Priority,
    /// Do not search for the holders of growing memory. By default, processes that still run are searched
    /// at the end of the recording, with stops of a few milliseconds to verify the result. They are also
    /// searched when memory is about to run out, and when a device is out of memory; only in the last
    /// case, the process is stopped for the whole search, for at most 8 seconds
    #[arg(long, overrides_with = "holders")]
    pub(super) no_holders: bool,
    /// Memory that a search for holders may take, such as `200m`; one that is expected to need more is left out. By
    /// default, 80 % of what this machine and memtrace's own container have left
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub(super) search_memory: Option<u64>,
    /// Search for holders, which is the default
    #[arg(long, hide = true, overrides_with = "no_holders")]
    pub(super) holders: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Priority {
    High,
    Normal,
}

impl AttachArgs {
    pub(super) fn looks_for_holders(&self) -> bool {
        // Verifying needs a ptrace stop.
        (self.holders || !self.no_holders) && !self.no_stop
    }
}

/// Bytes of a ring buffer that the kernel side can have.
fn ring_bytes(text: &str) -> Result<u32, String> {
    let bytes = units::parse_size(text)?;
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| RING_BYTES.contains(bytes))
        .ok_or_else(|| format!("`{text}` is outside the range from `4k` to `1g`"))
}
