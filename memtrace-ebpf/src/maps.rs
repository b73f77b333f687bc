//! Every map, with the reason for its size.

use aya_ebpf::{
    macros::map,
    maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf},
};
use memtrace_common::{
    kernel::{Offsets, Settings},
    loss::COUNTERS,
    process::{FileKey, Process},
};

use crate::{stack::Scratch, thread::Thread};

/// All events, in one order (see `memtrace_common::event`). The collector
/// chooses the size when it loads the object; this is the least it may be.
#[map]
pub(crate) static EVENTS: RingBuf = RingBuf::with_byte_size(1 << 16, 0);

/// Traced processes by tgid. As many as a machine of ordinary `pid_max` runs;
/// past that children are counted as untraced.
#[map]
pub(crate) static PROCESSES: HashMap<u32, Process> = HashMap::with_max_entries(16_384, 0);

/// What each thread of a traced process has in flight, by tid. Filled when a
/// thread first allocates, emptied when it ends.
#[map]
pub(crate) static THREADS: HashMap<u32, Thread> = HashMap::with_max_entries(32_768, 0);

/// Stacks that were reported. An evicted stack is reported again.
#[map]
pub(crate) static SEEN: LruHashMap<u64, u8> = LruHashMap::with_max_entries(65_536, 0);

/// Executable files that the collector has inspected: mapping them again needs no stop.
#[map]
pub(crate) static FILES: HashMap<FileKey, u8> = HashMap::with_max_entries(65_536, 0);

/// Processes that were sent SIGSTOP and not yet released, for the watchdog
/// that releases them if the collector dies.
#[map]
pub(crate) static STOPPED: HashMap<u32, u32> = HashMap::with_max_entries(16_384, 0);

/// Slot 0: 1 while recording. Cleared before the probes are taken away, so
/// that all of them end at one moment.
#[map]
pub(crate) static RECORDING: Array<u32> = Array::with_max_entries(1, 0);

/// Counters by `memtrace_common::loss`.
#[map]
pub(crate) static COUNTERS_MAP: PerCpuArray<u64> = PerCpuArray::with_max_entries(COUNTERS, 0);

/// Space for stacks that do not fit the 512 bytes of a program's own. Uprobe
/// programs can be preempted, so each CPU has several.
#[map]
pub(crate) static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(SCRATCH_SLOTS, 0);
pub(crate) const SCRATCH_SLOTS: u32 = 4;

/// Written by the collector before loading.
#[unsafe(no_mangle)]
static OFFSETS: Offsets = Offsets {
    task_tgid: 0,
    task_mm: 0,
    task_files: 0,
    task_signal: 0,
    task_exit_code: 0,
    signal_live: 0,
    files_fdt: 0,
    fdtable_fd: 0,
    file_inode: 0,
    inode_ino: 0,
    inode_sb: 0,
    sb_dev: 0,
};

/// Written by the collector before loading.
#[unsafe(no_mangle)]
static SETTINGS: Settings = Settings {
    follow: 0,
    stop: 0,
    wake_bytes: 0,
};

/// The offsets as loaded; volatile because the compiler sees only zeroes.
#[inline(always)]
pub(crate) fn offsets() -> Offsets {
    // SAFETY: OFFSETS is a valid, aligned static.
    unsafe { core::ptr::read_volatile(&raw const OFFSETS) }
}

/// The settings as loaded; volatile because the compiler sees only zeroes.
#[inline(always)]
pub(crate) fn settings() -> Settings {
    // SAFETY: SETTINGS is a valid, aligned static.
    unsafe { core::ptr::read_volatile(&raw const SETTINGS) }
}

/// Whether events are wanted at all.
#[inline(always)]
pub(crate) fn recording() -> bool {
    RECORDING.get(0) == Some(&1)
}
