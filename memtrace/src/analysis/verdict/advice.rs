//! What to try next: the command or the setting that would confirm a verdict,
//! or tell it from the next likely one.

use super::{Class, site::Context, thresholds::LONGER};
use crate::{
    analysis::statistics::{MIN_POINTS, WARM_UP},
    event::Layer,
};

/// For a site.
pub(super) fn site(class: Class, layer: Layer, context: &Context) -> Vec<String> {
    let tgid = context.series.row.tgid;
    match class {
        Class::Leak if layer == Layer::Python => vec![
            "see each object: launch it with `memtrace record --python-objects -- COMMAND`".into(),
        ],
        Class::Leak | Class::GpuLeak => {
            vec!["look at what keeps these blocks: who would have to free them, and when?".into()]
        }
        Class::MappingLeak => vec![format!(
            "see the mappings themselves: `sort /proc/{tgid}/maps`, `/proc/sys/vm/max_map_count`"
        )],
        Class::Pinned => {
            vec!["fewer of these buffers at a time: what is dropped is kept for the next".into()]
        }
        Class::Cache => vec![format!(
            "confirm the limit: {}",
            longer(context.quality.length)
        )],
        _ => vec![longer(context.quality.length)],
    }
}

/// For a process.
pub(super) fn process(class: Class, context: &Context) -> Vec<String> {
    let tgid = context.series.row.tgid;
    let lines: &[&str] = match class {
        Class::Leak => &["the sites below, the fastest growing first"],
        Class::Cache => &[],
        Class::Retention => &[
            "in a debugger: `call (int)malloc_trim(0)` gives it back, `call (int)malloc_info(0, stdout)` shows where it is",
            "fewer arenas: MALLOC_ARENA_MAX=2",
            "another allocator: LD_PRELOAD=libjemalloc.so.2",
        ],
        Class::Thp => &[
            "switch huge pages off for the process: prctl(PR_SET_THP_DISABLE), or for the machine: `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`",
            "glibc: GLIBC_TUNABLES=glibc.malloc.hugetlb=0; jemalloc: MALLOC_CONF=thp:never",
        ],
        Class::MadvFree => &[
            "nothing to mend: the kernel takes these pages when it needs memory",
            "to see it in RSS at once: jemalloc MALLOC_CONF=muzzy_decay_ms:0, Go GODEBUG=madvdontneed=1",
        ],
        Class::CopyOnWrite => &[
            "Python: `gc.freeze()` before fork, and the `spawn` start method where that is not enough",
            "keep shared data out of objects with reference counts: arrays, memory maps",
        ],
        Class::PageCache => &[
            "nothing to mend: clean pages of files go when memory is needed",
            "to keep it small: madvise(MADV_DONTNEED) or posix_fadvise(POSIX_FADV_DONTNEED) behind the reader",
        ],
        Class::Shmem => &[
            "`ls -l /dev/shm`, `ipcs -m`, and descriptors of deleted files: `ls -l /proc/PID/fd | grep deleted`",
        ],
        Class::Pinned => &[
            "fewer or smaller page-locked buffers (pin_memory=False), and free the runtime's cache of them",
        ],
        Class::ThreadChurn => &[
            "keep one pool: make OMP_NUM_THREADS and MKL_NUM_THREADS equal, and call with one number of threads",
        ],
        Class::MappingLeak => &["the sites below; count them with `wc -l /proc/PID/maps`"],
        Class::FdLeak => &["which: `ls -l /proc/PID/fd`; who: `strace -f -e trace=desc -p PID`"],
        Class::Pressure => &["who else grows: `ps aux --sort=-rss | head`"],
        Class::Kernel => &["`slabtop -o`, and whether it stays when the process has ended"],
        Class::GpuLeak => &["the sites below, of the GPU's layers"],
        Class::GpuCache => {
            &["PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or torch.cuda.empty_cache()"]
        }
        Class::None | Class::Undetermined => &[],
    };
    let mut next: Vec<String> = lines
        .iter()
        .map(|line| line.replace("PID", &tgid.to_string()))
        .collect();
    if matches!(class, Class::Undetermined | Class::Cache) {
        next.push(longer(context.quality.length));
    }
    next
}

/// How long to record for a decision.
fn longer(length: f64) -> String {
    format!(
        "record {LONGER:.0} times as long: `memtrace record -d {:.0}s …`",
        (length * LONGER).max(1.0).ceil()
    )
}

/// How long to record where there are too few intervals.
pub(super) fn enough(interval: f64) -> String {
    // Half may be the start of the program.
    let points = (MIN_POINTS as f64 / (1.0 - WARM_UP)).ceil() * 2.0;
    format!(
        "record at least {points:.0} intervals: `memtrace record -d {:.0}s …`, or shorter ones (`--interval 100ms`)",
        (points * interval).ceil().max(1.0)
    )
}
