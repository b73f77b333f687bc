//! The classes of verdicts, and the order in which their rules are applied. Each class has a file
//! here with its thresholds, its evidence, its advice and its lines in
//! `docs/reference/verdict-rules.md`.

pub(super) mod cache;
mod copy_on_write;
mod fd_leak;
mod gpu_cache;
mod gpu_leak;
pub(super) mod gpu_out_of_memory;
mod gpu_unused;
mod kernel;
pub(super) mod leak;
mod machine_shmem;
mod madv_free;
mod mapping_leak;
pub(super) mod none;
mod page_cache;
mod pinned;
mod pressure;
pub(super) mod process_leak;
mod retention;
mod shmem;
mod thp;
mod thread_churn;
mod thread_leak;
pub(super) mod undetermined;

use super::{
    class::Class,
    rule::{Description, OfProcess, OfSite, Question, Rule},
};

impl Class {
    /// Its file's description.
    pub(super) const fn description(self) -> &'static Description {
        match self {
            Class::Leak => &leak::CLASS,
            Class::Cache => &cache::CLASS,
            Class::Retention => &retention::CLASS,
            Class::Thp => &thp::CLASS,
            Class::MadvFree => &madv_free::CLASS,
            Class::CopyOnWrite => &copy_on_write::CLASS,
            Class::PageCache => &page_cache::CLASS,
            Class::Shmem => &shmem::CLASS,
            Class::Pinned => &pinned::CLASS,
            Class::ThreadChurn => &thread_churn::CLASS,
            Class::ThreadLeak => &thread_leak::CLASS,
            Class::MappingLeak => &mapping_leak::CLASS,
            Class::ProcessLeak => &process_leak::CLASS,
            Class::FdLeak => &fd_leak::CLASS,
            Class::Pressure => &pressure::CLASS,
            Class::MachineShmem => &machine_shmem::CLASS,
            Class::Kernel => &kernel::CLASS,
            Class::GpuLeak => &gpu_leak::CLASS,
            Class::GpuCache => &gpu_cache::CLASS,
            Class::GpuOutOfMemory => &gpu_out_of_memory::CLASS,
            Class::GpuUnused => &gpu_unused::CLASS,
            Class::None => &none::CLASS,
            Class::Undetermined => &undetermined::CLASS,
        }
    }

    /// Stable name in JSON and text.
    pub(crate) const fn name(self) -> &'static str {
        self.description().name
    }

    /// Number of evidence sentences for the first screen.
    pub(crate) const fn on_screen(self) -> usize {
        self.description().on_screen
    }

    /// Whether it is memory that is never freed.
    pub(crate) const fn is_leak(self) -> bool {
        self.description().is_leak
    }

    /// Whether it is about the machine, not about the process.
    pub(crate) const fn is_of_machine(self) -> bool {
        self.description().of_machine
    }

    /// The meaning, in a few words.
    pub(crate) const fn meaning(self) -> &'static str {
        self.description().meaning
    }
}

/// The rules on a process, in the order in which they are applied.
pub(super) const PROCESS: &[Question<OfProcess>] = &[
    Question {
        asks: "in addition, however short the recording: did an allocation on a device fail for lack of memory?",
        rules: &[
            gpu_out_of_memory::IMPOSSIBLE,
            gpu_out_of_memory::FRAGMENTED,
            gpu_out_of_memory::HELD_BY_OTHERS,
            gpu_out_of_memory::LIKELY_FRAGMENTED,
            gpu_out_of_memory::DEVICE_FULL,
        ],
    },
    Question {
        asks: "are the figures reliable?",
        rules: &[
            undetermined::SHORT,
            undetermined::TOO_SOON,
            undetermined::LOSSES,
        ],
    },
    Question {
        asks: "in addition, a separate verdict for each device: does its memory rise?",
        rules: &[
            undetermined::DEVICE,
            gpu_leak::DEVICE,
            gpu_cache::DEVICE,
            cache::DEVICE,
            undetermined::DEVICE_IN_ALL,
            gpu_unused::DEVICE,
        ],
    },
    Question {
        asks: "does a forked child copy the pages that it shared?",
        rules: &[copy_on_write::FORKED],
    },
    Question {
        asks: "is it one of several workers that come and go?",
        rules: &[none::PASSING],
    },
    Question {
        asks: "does it grow? the part with the largest share, at least 30 %, but one that is undetermined after those that leak; the next one is the runner-up",
        rules: &[
            pinned::PART,
            page_cache::PART,
            shmem::PART,
            leak::SITES,
            cache::SITES,
            undetermined::SITES,
            mapping_leak::SITES,
            thread_leak::SITES,
            leak::SPREAD,
            cache::SPREAD,
            undetermined::SPREAD,
        ],
    },
    Question {
        asks: "one of these parts: growth that live allocations do not explain",
        rules: &[
            madv_free::UNEXPLAINED,
            thp::UNEXPLAINED,
            leak::OBJECTS,
            leak::HELD_OPEN,
            leak::HOLES,
            retention::UNEXPLAINED,
            leak::BUFFERS,
            undetermined::UNEXPLAINED,
        ],
    },
    Question {
        asks: "it does not grow, but these do: each that does, the fastest first",
        rules: &[
            pinned::UNSHOWN,
            leak::UNSEEN,
            mapping_leak::UNSEEN,
            thread_leak::UNSEEN,
            process_leak::COUNT,
            fd_leak::COUNT,
            mapping_leak::COUNT,
            thread_churn::COUNT,
        ],
    },
    Question {
        asks: "it does not grow, but holds freed memory, or grew before",
        rules: &[madv_free::HELD, retention::HELD, cache::FULL],
    },
    Question {
        asks: "it does not grow, but the machine does",
        rules: &[machine_shmem::MACHINE, kernel::MACHINE, pressure::MACHINE],
    },
    Question {
        asks: "none of these",
        rules: &[undetermined::SLOW, none::OTHERWISE],
    },
];

/// All rules on a process.
pub(super) fn rules() -> impl Iterator<Item = &'static Rule<OfProcess>> {
    PROCESS.iter().flat_map(|question| question.rules)
}

/// The rules on a site, in the order in which they are applied.
pub(super) const SITE: &[Question<OfSite>] = &[
    Question {
        asks: "grows",
        rules: &[
            undetermined::REPLACED,
            undetermined::RUNTIME,
            cache::SLOWS,
            cache::KNOWN,
            cache::LIMITED,
            undetermined::FILLS,
            pinned::SITE,
            gpu_leak::SITE,
            thread_leak::SITE,
            mapping_leak::SITE,
            leak::SITE,
            leak::QUEUE,
            leak::STEADY_QUEUE,
            leak::KEPT,
            undetermined::SITE,
        ],
    },
    Question {
        asks: "does not grow",
        rules: &[cache::STAYS],
    },
];
