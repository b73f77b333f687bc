//! The collector's settings for the kernel side, written when it is loaded.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Offsets of kernel structure fields, resolved from the running kernel's BTF.
/// All in bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Offsets {
    pub task_tgid: u32,
    /// `task_struct.pid`: the id of the thread.
    pub task_pid: u32,
    pub task_mm: u32,
    pub task_files: u32,
    pub task_signal: u32,
    pub task_exit_code: u32,
    /// `signal_struct.live`, an `atomic_t`: threads that have not begun to exit.
    pub signal_live: u32,
    /// Fields of tracepoints' records.
    pub newtask_pid: u32,
    pub newtask_clone_flags: u32,
    pub exec_old_pid: u32,
    pub files_fdt: u32,
    pub fdtable_fd: u32,
    pub file_inode: u32,
    pub inode_ino: u32,
    pub inode_sb: u32,
    pub sb_dev: u32,
    /// `inode.i_mtime`, or its parts since Linux 6.7; 0 where the kernel has neither.
    pub inode_mtime_sec: u32,
    pub inode_mtime_nsec: u32,
    /// The rest is about pending return probes; 0 where the kernel lacks a field.
    pub task_utask: u32,
    pub utask_return_instances: u32,
    pub return_instance_stack: u32,
    pub return_instance_original: u32,
    pub return_instance_next: u32,
    pub mm_xol_area: u32,
    pub xol_area_vaddr: u32,
    /// In `task_struct.thread`: the thread pointer.
    pub task_thread_pointer: u32,
    /// `task_struct.ptrace`: not 0 in a traced task, whose `parent` is its tracer.
    pub task_ptrace: u32,
    pub task_parent: u32,
    pub task_thread_pid: u32,
    /// `task_struct.comm`: its name, 16 bytes.
    pub task_comm: u32,
    /// `pid.level`: how deep its pid namespace lies; 0 is the host's.
    pub pid_level: u32,
}

/// More of them, for the programs of kernels before Linux 5.17.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct LegacyOffsets {
    pub task_stack: u32,
    /// `uprobe_task.vaddr`: while a probe's program runs, the address of its `uprobe_dispatch_data`.
    pub utask_vaddr: u32,
    /// `uprobe_dispatch_data.tu`: its `trace_uprobe`.
    pub dispatch_probe: u32,
    /// `trace_uprobe.filename`: the path by which the probed file was opened.
    pub probe_path: u32,
}

/// Name of the process that holds threads (`comm` of its task), padded with zeroes.
pub const HOLDER_COMM: [u8; 16] = *b"memtrace-hold\0\0\0";

/// Behaviour chosen on the command line.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Settings {
    /// 1: trace forked children.
    pub follow: u32,
    /// 1: walk stacks by unwind tables; 0: by frame pointers.
    pub unwind: u32,
    /// 1: measure the duration of walks.
    pub time_walks: u32,
    /// Bytes of a page, a power of two.
    pub page_size: u32,
    /// Index of the first spare scratch.
    pub spares: u32,
    pub pad: u32,
    /// Size of the ring buffer in bytes.
    pub ring_bytes: u64,
    /// Mask that turns a position in the ring buffer into an offset.
    pub ring_mask: u64,
    /// Unread bytes in the ring buffer at which the collector is woken.
    pub wake_bytes: u64,
    /// One in this many walks is sent to be verified; 0: none.
    pub verify_every: u64,
    /// Most bytes of those in a second.
    pub verify_bytes: u64,
}

/// Value of the SAMPLING map: which walks were sent to be verified.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Sampling {
    /// Walks so far.
    pub walks: u64,
    /// The second (of 2^30 ns) that `bytes` is about.
    pub second: u64,
    /// Sent in it.
    pub bytes: u64,
    /// Walks that were chosen, and left out because of the limit or a full ring buffer.
    pub skipped: u64,
    /// Walks that were recognised as earlier ones and made again, and those that then had another stack.
    pub found: u64,
    pub found_wrong: u64,
}
