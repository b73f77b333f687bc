//! The figures of a process's memory, and how each is read.

use crate::recording::MemorySample;

/// A figure of [`MemorySample`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Figure {
    Anon,
    File,
    Shmem,
    /// Swapped out.
    Swap,
    Pss,
    PrivateDirty,
    SharedDirty,
    HugePages,
    LazyFree,
    /// Anonymous memory of stacks.
    Stacks,
    /// Address space.
    Virtual,
    Threads,
    /// So far.
    ThreadsCreated,
    Children,
    /// Open descriptors.
    Descriptors,
    /// Number of mappings.
    Mappings,
}

type Reading = fn(&MemorySample) -> Option<u64>;

/// How each figure is read.
pub(super) const FIGURES: &[(Figure, Reading)] = &[
    (Figure::Anon, |sample| sample.rss_anon),
    (Figure::File, |sample| sample.rss_file),
    (Figure::Shmem, |sample| sample.rss_shmem),
    (Figure::Swap, |sample| sample.swap),
    (Figure::Pss, |sample| sample.pss),
    (Figure::PrivateDirty, |sample| sample.private_dirty),
    (Figure::SharedDirty, |sample| sample.shared_dirty),
    (Figure::HugePages, |sample| sample.anon_huge_pages),
    (Figure::LazyFree, |sample| sample.lazy_free),
    (Figure::Stacks, |sample| sample.anon_stack),
    (Figure::Virtual, |sample| sample.vm_size),
    (Figure::Threads, |sample| sample.threads),
    (Figure::ThreadsCreated, |sample| sample.threads_created),
    (Figure::Descriptors, |sample| sample.fds),
    (Figure::Mappings, |sample| sample.maps),
    (Figure::Children, |sample| sample.children),
];
