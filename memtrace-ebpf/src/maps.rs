//! The maps that the collector shares, with the reasons for their sizes. Those with types
//! that only the kernel side knows stand beside these (`THREADS`, `SCRATCH`, `MEMOS` and `CODES`), and so does
//! `ELEMENTS`, by which user space reads and writes hash maps.

use aya_ebpf::{
    bindings::BPF_F_MMAPABLE,
    btf_maps,
    macros::{btf_map, map},
    maps::{Array, HashMap, LruHashMap, PerCpuArray, StackTrace},
};
use memtrace_common::{
    code_map::{KnownFile, Log, Mapping, Snapshot},
    device::{ContextKey, Current, EntryPoint},
    event::Unwinding,
    kernel::{Offsets, Sampling, Settings},
    loss::COUNTER_WORDS,
    process::{FileKey, Process},
    python::{Imports, Interpreter},
    row_cache::{CachedRow, HOT_PLACES, PLACES},
    thread_cache::{THREAD_CACHES as THREAD_CACHE_COUNT, ThreadCache},
    unwind::{EXECS as EXEC_COUNT, Rule},
    unwind_table::{BLOCK, Exec, RULES as RULE_COUNT},
};

#[cfg(feature = "legacy")]
use memtrace_common::{kernel::LegacyOffsets, numbered_path::NUMBERS};

use crate::arch::{keep_order_of_reads, publish_one_more};

/// Cookies of probes by the numbers in front of their paths; 0: none.
#[cfg(feature = "legacy")]
#[map]
pub(crate) static COOKIES: Array<u64> = Array::with_max_entries(NUMBERS, 0);

/// Traced processes by tgid. As many as a machine of ordinary `pid_max` runs;
/// past that children are counted as untraced.
#[map]
pub(crate) static PROCESSES: HashMap<u32, Process> = HashMap::with_max_entries(16_384, 0);

/// Slot 0: counts changes of what is kept of processes (PROCESSES, the sequences of LOGS, SNAPSHOTS,
/// INTERPRETER_OF, IMPORTS, CODE_ENDS), by both sides, each after its change. The collector counts through a mapping.
#[map]
static CHANGES: Array<u64> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// [`changes`], before facts are read that hold as long as it has the same value.
#[inline(always)]
pub(crate) fn changes_before() -> u64 {
    let changes = changes();
    keep_order_of_reads();
    changes
}

/// Changes so far.
#[inline(always)]
pub(crate) fn changes() -> u64 {
    CHANGES.get_ptr(0).map_or(0, |count| {
        // SAFETY: a live map value.
        let count = unsafe { core::ptr::read_volatile(count) };
        // Not 0, which stands for nothing known.
        count.wrapping_add(1)
    })
}

/// Counts one.
#[inline(always)]
pub(crate) fn changed() {
    if let Some(count) = CHANGES.get_ptr_mut(0) {
        // SAFETY: a live map value.
        unsafe { publish_one_more(count) };
    }
}

/// Threads that each traced process has made while recording, by tgid, as PROCESSES. Only of
/// processes that make any.
#[map]
pub(crate) static THREADS_CREATED: HashMap<u32, u64> = HashMap::with_max_entries(16_384, 0);

/// Keys of stacks that were reported: a table of small sets, chosen by the key. A set that is full forgets its oldest
/// stack, which is then reported again. Room for a million (8 MiB), because a program that loads large libraries has
/// hundreds of thousands; an LRU map would take more of each event's time, and ten times the memory.
#[map]
pub(crate) static SEEN: Array<[u64; SEEN_WAYS]> = Array::with_max_entries(SEEN_SETS, 0);
pub(crate) const SEEN_SETS: u32 = 1 << 18;
pub(crate) const SEEN_WAYS: usize = 4;

/// Executable files that the collector has inspected: mapping them again needs no stop.
#[map]
pub(crate) static FILES: HashMap<FileKey, KnownFile> = HashMap::with_max_entries(65_536, 0);

/// Threads that are about to stop until the collector has set their probes, by tid: the holder
/// (`memtrace/src/hold/`) keeps these, and lets every other one run on. Values are [`Stop`]s.
#[map]
pub(crate) static STOPPED: HashMap<u32, u32> = HashMap::with_max_entries(16_384, 0);

/// Slot 0: tgid of the process that holds stopped threads, as their ptracer; 0: none.
#[map]
pub(crate) static HOLDER: Array<u32> = Array::with_max_entries(1, 0);

/// By tid: the return addresses that the holder restores before it releases the thread.
#[map]
pub(crate) static UNWINDING: HashMap<u32, Unwinding> = HashMap::with_max_entries(1024, 0);

/// Slot 0: 1 while recording. Cleared before the probes are removed, so that all of them end at one
/// moment.
#[map]
pub(crate) static RECORDING: Array<u32> = Array::with_max_entries(1, 0);

/// Slot 0: the process that has called a function that a recording waits for; 0: none yet.
#[map]
pub(crate) static CALLED: Array<u32> = Array::with_max_entries(1, 0);

/// Counters by `memtrace_common::loss`, of each CPU. The collector sets the number of CPUs, and reads them through a
/// mapping.
#[map]
pub(crate) static COUNTERS_MAP: Array<[u64; COUNTER_WORDS]> =
    Array::with_max_entries(1, BPF_F_MMAPABLE);

/// By the number of the probed malloc.
#[map]
pub(crate) static THREAD_CACHES: Array<ThreadCache> =
    Array::with_max_entries(THREAD_CACHE_COUNT, 0);

/// Unwind tables by file number, see [`Exec`]. As many files as a frame's word can name.
#[btf_map]
pub(crate) static ROWS: btf_maps::ArrayOfMaps<Rows, { EXEC_COUNT as usize }> =
    btf_maps::ArrayOfMaps::new();

/// Their sizes differ (BPF_F_INNER_MAP), and the collector writes them through
/// a mapping of its own (BPF_F_MMAPABLE).
pub(crate) type Rows = btf_maps::Array<[u32; BLOCK], 1, 0x1400>;

#[map]
pub(crate) static EXECS: Array<Exec> = Array::with_max_entries(EXEC_COUNT, 0);

/// Rows that were found before: places for the rows in use by a large program (1.5 MiB). One that another address has
/// taken is searched again.
#[map]
pub(crate) static KNOWN_ROWS: Array<CachedRow> = Array::with_max_entries(PLACES, 0);

/// Those used last on each CPU: places for the rows of a loop. They lie side by side, so walks take
/// few entries of the TLB for them, where the others are scattered over 384 pages.
#[map]
pub(crate) static HOT_ROWS: PerCpuArray<[CachedRow; HOT_PLACES]> =
    PerCpuArray::with_max_entries(1, 0);

/// Written through a mapping too, as MAPPINGS is.
#[map]
pub(crate) static RULES: Array<Rule> = Array::with_max_entries(RULE_COUNT, BPF_F_MMAPABLE);

/// Executable mappings of all processes, see [`Snapshot`]: a thousand processes of a hundred
/// mappings each; forked children share their parents'.
#[map]
pub(crate) static MAPPINGS: Array<Mapping> = Array::with_max_entries(1 << 17, BPF_F_MMAPABLE);

/// By tgid, as PROCESSES.
#[map]
pub(crate) static SNAPSHOTS: HashMap<u32, Snapshot> = HashMap::with_max_entries(16_384, 0);

/// By tgid. Fewer than PROCESSES: they are large. Further processes have no stacks, which are
/// counted as `stack_stale`.
#[map]
pub(crate) static LOGS: HashMap<u32, Log> = HashMap::with_max_entries(4_096, 0);

/// Interpreters of traced processes. Number 0 stands for none; relatives share one.
#[map]
pub(crate) static INTERPRETERS: Array<Interpreter> = Array::with_max_entries(1_024, 0);

/// Numbers of the above, by tgid, as PROCESSES.
#[map]
pub(crate) static INTERPRETER_OF: HashMap<u32, u32> = HashMap::with_max_entries(16_384, 0);

/// Processes whose imports are summarised, by tgid, as PROCESSES.
#[map]
pub(crate) static IMPORTS: HashMap<u32, Imports> = HashMap::with_max_entries(16_384, 0);

/// Processes in which [`crate::codes::code_dealloc`] runs at the end of each code object, by tgid, as PROCESSES, and the
/// file of the interpreter.
#[map]
pub(crate) static CODE_ENDS: HashMap<u32, u32> = HashMap::with_max_entries(16_384, 0);

/// Addresses of the thread states of Python's threads, by tid. An evicted one is searched again.
#[map]
pub(crate) static THREAD_STATES: LruHashMap<u32, u64> = LruHashMap::with_max_entries(16_384, 0);

/// Code objects that were reported. An evicted one is reported again.
#[map]
pub(crate) static SEEN_CODE: LruHashMap<u64, u8> = LruHashMap::with_max_entries(65_536, 0);

/// Processes of whose code the collector should take a new snapshot, by tgid.
#[map]
pub(crate) static REQUESTS: HashMap<u32, u8> = HashMap::with_max_entries(4_096, 0);

/// Devices of driver contexts. A process has few; the device of an evicted one is unknown.
#[map]
pub(crate) static CONTEXTS: LruHashMap<ContextKey, Current> =
    LruHashMap::with_max_entries(4_096, 0);

/// Names of the driver's functions that have probes, and their numbers. As many as the table has
/// and then some.
#[map]
pub(crate) static ENTRY_POINTS: HashMap<EntryPoint, u32> = HashMap::with_max_entries(256, 0);

/// Slot 0: which walks were sent to be verified.
#[map]
pub(crate) static SAMPLING: Array<Sampling> = Array::with_max_entries(1, 0);

/// Needed for the kernel's own stack ids when walks are timed. Small, because the ids are never used.
#[map]
pub(crate) static STACK_IDS: StackTrace = StackTrace::with_max_entries(1024, 0);

/// Compared by the collector before loading: from which sources this was built.
#[used]
#[unsafe(no_mangle)]
pub(crate) static ABI: u64 = memtrace_common::ABI;

/// Written by the collector before loading.
#[unsafe(no_mangle)]
pub(crate) static OFFSETS: Offsets = Offsets {
    task_tgid: 0,
    task_pid: 0,
    task_mm: 0,
    task_files: 0,
    task_signal: 0,
    task_exit_code: 0,
    signal_live: 0,
    newtask_pid: 0,
    newtask_clone_flags: 0,
    exec_old_pid: 0,
    files_fdt: 0,
    fdtable_fd: 0,
    file_inode: 0,
    inode_ino: 0,
    inode_sb: 0,
    sb_dev: 0,
    inode_mtime_sec: 0,
    inode_mtime_nsec: 0,
    task_utask: 0,
    utask_return_instances: 0,
    return_instance_stack: 0,
    return_instance_original: 0,
    return_instance_next: 0,
    mm_xol_area: 0,
    xol_area_vaddr: 0,
    task_thread_pointer: 0,
    task_ptrace: 0,
    task_parent: 0,
    task_thread_pid: 0,
    task_comm: 0,
    pid_level: 0,
};

/// Written by the collector before loading.
#[unsafe(no_mangle)]
pub(crate) static SETTINGS: Settings = Settings {
    follow: 0,
    unwind: 0,
    time_walks: 0,
    page_size: 0,
    spares: 0,
    pad: 0,
    ring_bytes: 0,
    ring_mask: 0,
    wake_bytes: 0,
    verify_every: 0,
    verify_bytes: 0,
};

/// Written by the collector before loading.
#[cfg(feature = "legacy")]
#[unsafe(no_mangle)]
pub(crate) static LEGACY_OFFSETS: LegacyOffsets = LegacyOffsets {
    task_stack: 0,
    utask_vaddr: 0,
    dispatch_probe: 0,
    probe_path: 0,
};

/// A field of the above as the collector set it; volatile because the compiler sees only zeroes.
#[inline(always)]
pub(crate) fn loaded<T: Copy>(field: &'static T) -> T {
    // SAFETY: a reference is valid to read.
    unsafe { core::ptr::read_volatile(field) }
}

/// Whether events are wanted at all.
#[inline(always)]
pub(crate) fn recording() -> bool {
    RECORDING.get(0) == Some(&1)
}
