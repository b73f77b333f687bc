//! Advice on what to try next: the command or the setting that would confirm a verdict, or rule out
//! the next likely one. `render::advice` has the words.

use super::{class::Class, context::Context, quality::Quality, thresholds::LONGER};
use crate::{
    analysis::{
        series::SiteSeries,
        statistics::{MIN_POINTS, WARM_UP},
    },
    frames::{Language, allocators::Allocator, known_caches::KnownCache},
};

/// A piece of advice, grouped by the class that gives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Advice {
    /// The recording was too short.
    RecordLonger(Longer),
    /// A longer recording would confirm that the growth stops.
    ConfirmLimit(Longer),
    /// The recording had too few intervals.
    RecordIntervals {
        points: f64,
        seconds: f64,
    },
    /// The same, if the program may end sooner.
    OutliveIntervals {
        seconds: f64,
    },
    LoseLess,
    /// malloc was not recorded.
    RecordHeap,

    LookAtSites,
    FindKeeper,
    /// The memory was not searched for keepers.
    Attach,
    /// The blocks are Python's arenas; the objects in them were not recorded.
    RecordObjects,
    /// The user did not want a search, or did not wait for it.
    SearchHolders,
    AwaitSearch,
    /// The memory was searched, but what keeps the blocks is not known.
    FindUnseenKeeper,
    LimitContainer,
    LimitList,
    /// A block that is enlarged again and again.
    LimitBuffer,
    LimitDict,
    LimitCache,
    /// A container that has a limit.
    LowerLimit,
    /// Objects or blocks that link one another.
    CutChain,
    /// One object that is not a container.
    DropReference,
    /// A graph of PyTorch's autograd.
    DropGraph,
    /// Probably such a graph: operations of one are among what leaks.
    DropLikelyGraph,
    /// The traceback of an exception.
    DropTraceback,
    /// A message or an arena of protobuf.
    RenewMessage,
    BreakCycle,
    BreakHiddenCycle,
    GiveReferenceBack,
    /// In the language of the program.
    FreeInTime(Option<Language>),
    OwnOneWay(Option<Language>),

    /// Sites of mappings.
    LookAtMappings,
    ListMappings,
    /// Mapped memory of the program.
    Unmap,
    /// Mapped memory of code without symbols, which may be an allocator.
    KeepSymbols,

    LookAtDeviceSites,
    /// How a caching allocator gives unused memory back.
    GiveUnusedBack(&'static str),
    /// Settings of a caching allocator.
    CacheLess(&'static str),
    CheckRequest,
    /// Other processes hold memory on the device.
    ListDeviceProcesses,
    /// Other processes may hold memory on the device.
    LookForDeviceProcesses,
    FreeDeviceMemory,
    /// A setting against fragmentation.
    AgainstFragmentation(&'static str),
    UseLikeSizes,

    PinFewer,
    KeepFewerPinned,

    /// How the process's allocator gives memory back: the allocator is unknown, only its manual can tell, or a setting
    /// does it.
    FindAllocator,
    ReadManual(&'static str),
    SetAllocator {
        name: &'static str,
        setting: &'static str,
    },
    SetCache(&'static KnownCache),
    /// The heap of a language's runtime.
    LookInside(&'static str),

    FreezeBeforeFork,
    ShareArrays,
    LeaveReadOnly,
    ListDescriptors,
    EndChildren,
    RunSlabtop,
    LazilyFreed,
    FreeAtOnce,
    CleanPages,
    DropBehindReader,
    FindOthers,
    ListShared,
    ListSharedOfMachine,
    DisableHugePages,
    SetHugePagesOfAllocator,
    UseThreadPool,
    KeepOneThreadPool,
    /// Threads that have ended.
    JoinThreads,
    /// Threads that run on.
    LimitThreads,
}

/// Length of the next recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Longer {
    /// As long as this one.
    pub(crate) times: f64,
    pub(crate) seconds: f64,
}

impl Advice {
    /// Whether it is of use only with sites of the same class.
    pub(super) const fn needs_sites(self) -> bool {
        matches!(
            self,
            Advice::LookAtSites | Advice::LookAtMappings | Advice::LookAtDeviceSites
        )
    }

    /// Whether it is for Python programs only.
    const fn is_for_python(self) -> bool {
        matches!(self, Advice::FreezeBeforeFork | Advice::ShareArrays)
    }

    /// This advice for a leaking site whose keeper is known: `limit` replaces the search for it. `is_proven`: the keeper
    /// was seen, not guessed.
    pub(super) fn with_keeper(self, limit: Advice, is_proven: bool) -> Advice {
        match self {
            Advice::FindKeeper => limit,
            // The buffer may be a container's own memory.
            Advice::LimitBuffer if !matches!(limit, Advice::FindKeeper | Advice::DropReference) => {
                limit
            }
            // A guess does not name the objects.
            Advice::RecordObjects if is_proven => limit,
            // What is lost has to be found.
            Advice::ListMappings
                if is_proven && !matches!(limit, Advice::FreeInTime(_) | Advice::OwnOneWay(_)) =>
            {
                limit
            }
            other => other,
        }
    }
}

/// For a site.
pub(super) fn site(class: Class, site: &SiteSeries, context: &Context) -> Vec<Advice> {
    let of_cache = site.code.cache.map(Advice::SetCache);
    let longer = longer(context.quality);
    let runtime = site.code.runtime;
    let runtime = runtime.filter(|_| !context.is_lost_by_program(&site.key));
    let inside = runtime.and_then(|heap| match class {
        Class::ThreadLeak => heap.threads,
        _ => Some(heap.tool),
    });
    let inside = inside.map(Advice::LookInside);
    let of_class = match class.description().next_of_site {
        Some(next) => next(context, site, longer),
        None => Advice::RecordLonger(longer),
    };
    let first = of_cache.into_iter().chain(inside);
    first.chain([of_class]).collect()
}

/// For a process; `has_sites`: some of its sites have the same verdict, `on_device`: it is about the
/// memory of a device.
pub(super) fn process(
    class: Class,
    has_sites: bool,
    on_device: bool,
    context: &Context,
) -> Vec<Advice> {
    let description = class.description();
    let series = context.series;
    let all = description.next.iter().copied();
    let mut next: Vec<Advice> = all
        .filter(|advice| has_sites || !advice.needs_sites())
        .filter(|advice| series.is_python || !advice.is_for_python())
        .collect();
    if description.unused {
        let gives_back = series.caching_allocator().gives_back;
        next.push(Advice::GiveUnusedBack(gives_back));
    }
    if description.allocator {
        next.extend(give_back(series.heap_allocator));
    }
    if description.cache {
        next.push(Advice::CacheLess(series.caching_allocator().advice));
    }
    if !context.quality.heap && !has_sites && !on_device && class == Class::Undetermined {
        next.insert(0, Advice::RecordHeap);
    }
    let runtime = series
        .executable
        .runtime
        .filter(|_| class == Class::Undetermined && !on_device);
    next.extend(runtime.map(|heap| Advice::LookInside(heap.tool)));
    if description.longer || next.is_empty() && !description.next.is_empty() {
        next.push(Advice::RecordLonger(longer(context.quality)));
    }
    next
}

/// How to make an allocator give back freed memory.
fn give_back(allocator: Option<&Allocator>) -> Vec<Advice> {
    match allocator {
        None => vec![Advice::FindAllocator],
        Some(of) if of.gives_back.is_empty() => vec![Advice::ReadManual(of.name)],
        Some(of) => {
            let name = of.name;
            let settings = of.gives_back.iter();
            settings
                .map(|&setting| Advice::SetAllocator { name, setting })
                .collect()
        }
    }
}

/// How long to record for a decision.
fn longer(quality: &Quality) -> Longer {
    Longer {
        times: LONGER,
        seconds: (quality.length * LONGER).max(1.0).ceil(),
    }
}

/// How long to record if there are too few intervals.
pub(super) fn enough(quality: &Quality) -> Advice {
    // Half may be the start of the program.
    let points = (MIN_POINTS as f64 / (1.0 - WARM_UP)).ceil() * 2.0;
    let seconds = (points * quality.interval).ceil().max(1.0);
    match quality.least_life > 0.0 {
        true => Advice::OutliveIntervals {
            seconds: seconds.max(quality.least_life * 1.5),
        },
        false => Advice::RecordIntervals { points, seconds },
    }
}
