//! Figures over time: the memory of one process, the machine and a control group at each interval.
//! Each is a row of numbers, any of which may be unknown.

use rusqlite::Row;
use serde::Serialize;

use super::{decode::optional, encode::int};

/// A struct of optional figures and the table columns of the same names.
macro_rules! sample {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident,)* }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct $name { $($(#[$doc])* pub $field: Option<u64>,)* }

        impl $name {
            /// Column names, in the order of [`Self::values`].
            pub(super) const COLUMNS: &'static [&'static str] = &[$(stringify!($field)),*];

            pub(super) fn values(&self) -> Vec<Option<i64>> {
                vec![$(self.$field.map(int)),*]
            }

            /// Reads a row that has at least these columns.
            pub(super) fn read(row: &Row) -> rusqlite::Result<Self> {
                Ok(Self {
                    $($field: optional(row, row.as_ref().column_index(stringify!($field))?)?,)*
                })
            }
        }
    };
}

sample! {
    /// A process's memory at one interval. Bytes, except counts. `None`: could not be read, or was
    /// not read at this interval because it costs too much. Names without an explanation are those
    /// of `/proc/PID/status` and `/proc/PID/smaps` (proc_pid_status(5), proc_pid_smaps(5)).
    pub struct MemorySample {
        pub rss_anon,
        pub rss_file,
        pub rss_shmem,
        pub pss,
        pub private_dirty,
        pub shared_dirty,
        /// Anonymous memory that is swapped out (VmSwap): shared memory's is not in it.
        pub swap,
        pub anon_huge_pages,
        pub lazy_free,
        pub vm_size,
        pub vm_pte,
        /// Count, of those that run.
        pub threads,
        /// Counts since the process began.
        pub minor_faults,
        pub major_faults,
        /// Count, of those that run.
        pub children,
        /// Largest resident set so far.
        pub vm_hwm,
        /// The main thread's stack: its mapping, which never shrinks.
        pub vm_stk,
        pub vm_lck,
        /// Pages that the kernel may not move (RDMA, VFIO; not CUDA's).
        pub vm_pin,
        /// Pages of hugetlbfs, which no other figure has.
        pub hugetlb_pages,
        /// Count of threads that were made while recording, also those that ended since.
        pub threads_created,
        /// Count of open descriptors.
        pub fds,
        /// Count of mappings.
        pub maps,
        /// Resident anonymous memory by place. Together: all of it (`rss_anon`, read a moment
        /// apart). The heap that brk moves:
        pub anon_heap,
        /// glibc's further arenas.
        pub anon_arena,
        /// The main thread's stack, and other threads' as far as they can be recognised (above a
        /// guard).
        pub anon_stack,
        /// Pages of private file mappings that were written to.
        pub anon_file,
        /// All other anonymous mappings.
        pub anon_other,
        /// Count of glibc's further arenas: its heaps of 64 MiB each.
        pub arenas,
    }
}

impl MemorySample {
    /// Resident memory, bytes; `None` if no part of it could be read.
    pub(crate) fn resident(&self) -> Option<u64> {
        let parts = [self.rss_anon, self.rss_file, self.rss_shmem];
        parts.into_iter().flatten().reduce(u64::saturating_add)
    }
}

sample! {
    /// The machine at one interval. Bytes unless noted otherwise; names without an explanation are
    /// those of `/proc/meminfo` (proc_meminfo(5)).
    pub struct SystemSample {
        pub mem_total,
        pub mem_free,
        pub mem_available,
        pub buffers,
        pub cached,
        pub shmem,
        pub anon_pages,
        pub mapped,
        pub slab,
        pub s_unreclaim,
        pub kernel_stack,
        pub page_tables,
        pub vmalloc_used,
        pub percpu,
        pub unevictable,
        pub hugetlb,
        pub swap_total,
        pub swap_free,
        /// Memory in use that cannot be freed by dropping caches: total − free − (buffers + cached
        /// − shmem) − reclaimable slab.
        pub used,
        /// Buffers of TCP and UDP sockets (`mem` of `/proc/net/sockstat`).
        pub sockets,
        /// Swapped in and out since boot (pswpin and pswpout of `/proc/vmstat`).
        pub swapped_in,
        pub swapped_out,
        /// Count since boot.
        pub oom_kills,
        /// Memory pressure (`/proc/pressure/memory`): share of the last 10 s in which some task, or
        /// all, waited for memory, hundredths of a percent; and the sums since boot, microseconds.
        pub psi_some_avg10,
        pub psi_some_total_us,
        pub psi_full_avg10,
        pub psi_full_total_us,
    }
}

sample! {
    /// A memory control group at one interval, with those below it. Bytes, except `events_*`, which
    /// are counts since it was made. Names are those of version 2; version 1 has fewer.
    pub struct CgroupSample {
        pub current,
        pub anon,
        /// Page cache, tmpfs and shared memory included.
        pub file,
        pub shmem,
        pub slab,
        pub kernel,
        pub sock,
        pub swap,
        pub events_high,
        pub events_max,
        pub events_oom,
        pub events_oom_kill,
    }
}
