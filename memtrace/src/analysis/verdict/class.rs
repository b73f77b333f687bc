//! The kinds of growth, and how certain one is.

/// Makes [`Class`] of a list of kinds.
macro_rules! classes {
    ($($(#[$doc:meta])* $class:ident,)*) => {
        /// A kind of growth.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) enum Class {
            $($(#[$doc])* $class,)*
        }

        impl Class {
            #[cfg(test)]
            pub(super) const ALL: &[Class] = &[$(Class::$class,)*];
        }
    };
}

classes! {
    /// Live memory keeps growing.
    Leak,
    /// Live memory grew and has reached, or is approaching, its limit.
    Cache,
    /// Freed, but the allocator keeps it.
    Retention,
    /// Huge pages around little data.
    Thp,
    /// Freed lazily: counted until the kernel reclaims it.
    MadvFree,
    /// A forked child's pages become its own.
    CopyOnWrite,
    /// Pages of mapped files.
    PageCache,
    /// Shared memory: tmpfs, memfd, System V.
    Shmem,
    /// Page-locked host memory of a GPU runtime.
    Pinned,
    /// Threads made and ended again and again.
    ThreadChurn,
    /// Stacks of threads that were never joined or never end.
    ThreadLeak,
    /// Address space or mappings grow, resident memory does not.
    MappingLeak,
    /// Child processes become more.
    ProcessLeak,
    FdLeak,
    /// Others use up the machine's memory.
    Pressure,
    /// Shared memory of the machine grows, in no process.
    MachineShmem,
    /// The kernel or a driver grows, no process does.
    Kernel,
    GpuLeak,
    /// The GPU allocator's reserve grows, but the memory allocated from it does not.
    GpuCache,
    /// An allocation of GPU memory failed.
    GpuOutOfMemory,
    /// The GPU allocator keeps memory that is no longer in use: not an alarm.
    GpuUnused,
    /// No material growth.
    None,
    Undetermined,
}

/// Certainty of a verdict. The best, A, takes an experiment that turns the growth off and on twice,
/// which no single recording contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Grade {
    /// Every test of its class passed, and it explains most of the growth.
    B,
    /// The tests passed, but the growth has other parts too, or a test could not be made.
    C,
    /// Not decided, or a state that was seen and not its growth.
    D,
}

impl Grade {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Grade::B => "B",
            Grade::C => "C",
            Grade::D => "D",
        }
    }
}
