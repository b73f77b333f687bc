//! Selects the growing sites of a process that runs at the end of a recording, from the ledger
//! alone. Verdicts are made later, from the recording; this only decides whether a search for the
//! holders of a site's blocks is worthwhile.

use std::{cmp::Reverse, collections::BTreeSet, ops::Range};

use super::{holes::BLOCKS_AT_MOST, running::Running};
use crate::{
    event::Layer,
    hash::FastMap,
    holders::Wanted,
    ledger::{Ledger, SiteKey, Survivors},
};

/// Most sites of a process, and of all processes of a recording.
const OF_A_PROCESS: usize = 8;
const OF_ALL: usize = 16;

/// The part of its time that is a process's start. Blocks as young as that are not sure to stay either.
const START: u64 = 5;

/// Least growth that is worth a search: bytes, or blocks of a site whose blocks are small.
const LEAST_BYTES: u64 = 32 << 10;
const LEAST_BLOCKS: u64 = 100;

/// The same for the free space around its blocks, bytes: blocks that are few and small can keep it from being given back.
const LEAST_HOLES: u64 = 256 << 10;

/// A site that has at most this many blocks may be the memory of a container, whose size grows and not the number.
const FEW_BLOCKS: u64 = 4;

/// The part of its time that is now: so rarely a site that fluctuates has its most memory then. A site of some large blocks
/// does not have a new one all the time.
const JUST_NOW: u64 = 20;
const LATELY: u64 = 2;
const SOME_BLOCKS: u64 = 64;
const LARGE_BLOCK: u64 = 16 << 10;

/// If a process is traced for less than this, everything may be its start-up.
const LEAST_SECONDS: f64 = 2.0;

/// The age range of the sampled blocks of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Window {
    /// When they were born, CLOCK_MONOTONIC ns.
    born: Range<u64>,
    /// Least age, ns.
    least_age: u64,
    /// Whether all of it may be the process's start.
    may_be_start: bool,
}

impl Window {
    /// For a process that is traced since `since_ns`, at `now_ns`.
    fn of(since_ns: u64, now_ns: u64) -> Window {
        let least_age = now_ns.saturating_sub(since_ns) / START;
        Window {
            born: since_ns + least_age..now_ns.saturating_sub(least_age),
            least_age,
            may_be_start: true,
        }
    }

    /// For rounds of the same work, the first of which began at `since_ns`.
    fn of_rounds(since_ns: u64, now_ns: u64) -> Window {
        Window {
            may_be_start: false,
            ..Window::of(since_ns, now_ns)
        }
    }

    /// All of that time.
    fn whole(since_ns: u64, now_ns: u64) -> Window {
        Window {
            born: since_ns..now_ns,
            least_age: 0,
            may_be_start: true,
        }
    }

    /// All of the time in which the process is traced.
    fn all(&self) -> Range<u64> {
        self.born.start - self.least_age..self.born.end + self.least_age
    }

    fn seconds(&self) -> f64 {
        self.born.end.saturating_sub(self.born.start) as f64 / 1e9
    }

    fn is_long_enough(&self) -> bool {
        let seconds = self.seconds() + 2.0 * self.least_age as f64 / 1e9;
        !self.may_be_start || seconds >= LEAST_SECONDS
    }
}

/// A process, and those of its sites that are searched for.
pub(super) struct Growing {
    pub(super) running: Running,
    window: Window,
    sites: Vec<Survivors>,
}

impl Growing {
    pub(super) fn sites(&self) -> usize {
        self.sites.len()
    }

    /// A process of which no site grows, but something else does.
    pub(super) fn without_sites(running: Running, now_ns: u64) -> Growing {
        Growing {
            running,
            window: Window::of(running.since_ns, now_ns),
            sites: Vec::new(),
        }
    }

    /// The sites, each with a sample of its blocks.
    pub(super) fn wanted(&self, ledger: &Ledger) -> Vec<Wanted> {
        let keys: Vec<_> = self.sites.iter().map(|of| of.site).collect();
        let sample = |born: &Range<u64>| ledger.sample(self.running.tgid, born, &keys);
        let mut samples = sample(&self.window.born);
        if samples.iter().any(Vec::is_empty) {
            let of_any_age = sample(&self.window.all());
            for (sample, of_any_age) in samples.iter_mut().zip(of_any_age) {
                if sample.is_empty() {
                    *sample = of_any_age;
                }
            }
        }
        let wanted = keys.into_iter().zip(samples);
        wanted
            .map(|(site, addresses)| Wanted { site, addresses })
            .collect()
    }
}

/// Which sites are searched for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// Those that grow.
    Growing,
    /// Those that grow since the first round of the same work, at this time (CLOCK_MONOTONIC ns).
    GrowingSince(u64),
    /// The largest ones: whatever fills the memory is among them, even if it began to grow a moment ago.
    Largest,
}

/// The sites to search for at `now_ns`: the time up to which the ledger is complete, CLOCK_MONOTONIC ns.
pub(super) fn chosen(
    which: Which,
    ledger: &Ledger,
    running: &[Running],
    now_ns: u64,
) -> Vec<Growing> {
    let windows = running.iter().map(|running| match which {
        Which::Growing => Window::of(running.since_ns, now_ns),
        Which::GrowingSince(round) => Window::of_rounds(running.since_ns.max(round), now_ns),
        Which::Largest => Window::whole(running.since_ns, now_ns),
    });
    let windows: Vec<Window> = windows.collect();
    let sites: Vec<Vec<Survivors>> = running
        .iter()
        .zip(&windows)
        .map(|(running, window)| of_process(which, ledger, running.tgid, window))
        .collect();
    let chosen = of_all(&sites);
    let mut growing = Vec::new();
    for ((running, window), mut sites) in running.iter().zip(windows).zip(sites) {
        sites.retain(|of| chosen.contains(&of.site));
        if !sites.is_empty() {
            growing.push(Growing {
                running: *running,
                window,
                sites,
            });
        }
    }
    growing
}

/// The sites of a process that are searched for, those first that matter most.
fn of_process(which: Which, ledger: &Ledger, tgid: u32, window: &Window) -> Vec<Survivors> {
    if !window.is_long_enough() {
        return Vec::new();
    }
    let mut growing = ledger.survivors(tgid, &window.born, window.least_age);
    let holes = match which {
        Which::Largest => FastMap::default(),
        _ if growing.is_empty() => FastMap::default(),
        _ => holes(ledger, tgid),
    };
    let hole = |of: &Survivors| holes.get(&of.site).copied().unwrap_or(0);
    let of_any_age = match which {
        Which::Largest => Vec::new(),
        _ => ledger.survivors(tgid, &window.all(), 0),
    };
    // Buffers that are enlarged all the time are never old.
    let buffers = of_any_age.iter();
    let buffers = buffers.filter(|of| are_buffers(of) && has_most(of, window, JUST_NOW));
    let filling = growing.iter().filter(|of| fills_up(of, window));
    let filling = filling.chain(buffers).filter(|of| is_large(of, hole(of)));
    let mut filling: Vec<Survivors> = match which {
        Which::Largest => Vec::new(),
        _ => filling.copied().collect(),
    };
    filling.sort_by_key(|of| Reverse(of.bytes));
    growing.retain(|of| {
        let is_wanted = match which {
            // Address space need not be memory.
            Which::Largest => of.site.layer != Layer::Vm,
            _ => grows(of),
        };
        is_wanted && is_large(of, hole(of))
    });
    if which != Which::Largest {
        let chosen: BTreeSet<SiteKey> = growing.iter().map(|of| of.site).collect();
        growing.extend(of_any_age.into_iter().filter(|of| {
            !chosen.contains(&of.site) && swells(of, window) && is_large(of, hole(of))
        }));
    }
    let mut by_blocks = growing.clone();
    let mut by_holes = growing.clone();
    growing.sort_by_key(|of| Reverse(of.bytes));
    by_blocks.sort_by_key(|of| Reverse(blocks(of)));
    by_holes.sort_by_key(|of| Reverse(hole(of)));
    // By turns, so that neither a few large blocks, many small ones nor those among holes hide the others.
    let mut known = BTreeSet::new();
    let turns = growing.iter().zip(&by_blocks).zip(&by_holes);
    let by_turns = turns.flat_map(|((large, many), apart)| [large, many, apart]);
    // Those that may only fluctuate come last.
    let distinct = by_turns.chain(&filling).filter(|of| known.insert(of.site));
    distinct.take(OF_A_PROCESS).copied().collect()
}

/// Free space around the blocks of each site, bytes; nothing if there are too many blocks to look at.
fn holes(ledger: &Ledger, tgid: u32) -> FastMap<SiteKey, u64> {
    let mut holes = FastMap::default();
    if ledger.outstanding() <= BLOCKS_AT_MOST {
        ledger.for_each_hole(tgid, |hole| {
            *holes.entry(hole.site).or_default() += hole.end - hole.start;
        });
    }
    holes
}

/// The sites to search for, from the sites of all processes, each process's in its order.
fn of_all(processes: &[Vec<Survivors>]) -> BTreeSet<SiteKey> {
    let ranks = (0..OF_A_PROCESS).flat_map(|rank| {
        let mut of_rank: Vec<&Survivors> = processes
            .iter()
            .filter_map(|sites| sites.get(rank))
            .collect();
        of_rank.sort_by_key(|of| Reverse(of.bytes));
        of_rank
    });
    ranks.take(OF_ALL).map(|of| of.site).collect()
}

fn blocks(of: &Survivors) -> u64 {
    of.blocks.iter().sum()
}

/// Whether blocks came and stayed throughout the window. A cache that was full early does not grow,
/// nor does a site that frees most of its blocks when they are old enough.
fn grows(of: &Survivors) -> bool {
    of.blocks.iter().all(|half| *half > 0) && of.freed <= blocks(of)
}

/// Whether a site has its most memory just now, although it frees most blocks sooner or later: a queue that is filled faster
/// than it is emptied, or some buffers that are enlarged in turn. It is chance for one that only fluctuates.
fn fills_up(of: &Survivors, window: &Window) -> bool {
    let part = match are_buffers(of) {
        true => LATELY,
        false => JUST_NOW,
    };
    has_most(of, window, part)
}

/// Whether a site had its most memory in the last part of the time.
fn has_most(of: &Survivors, window: &Window, part: u64) -> bool {
    let all = window.all();
    let late = all.end - (all.end - all.start) / part;
    of.most_ns.is_some_and(|most| most >= late)
}

/// Whether a site has a few large blocks.
fn are_buffers(of: &Survivors) -> bool {
    let count = blocks(of);
    count <= SOME_BLOCKS && of.bytes >= LARGE_BLOCK * count
}

/// Whether a site grows whose number of blocks does not show it: Python takes arenas seldom, and a container replaces its
/// memory by a larger block.
fn swells(of: &Survivors, window: &Window) -> bool {
    of.site.layer == Layer::Python
        || blocks(of) <= FEW_BLOCKS && of.most_ns.is_some_and(|most| most >= window.born.start)
}

fn is_large(of: &Survivors, hole: u64) -> bool {
    // The memory that an allocator took is in the blocks that it handed out.
    !of.site.by_allocator
        && (of.bytes >= LEAST_BYTES || blocks(of) >= LEAST_BLOCKS || hole >= LEAST_HOLES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{Action, Event, MapKind, StackId},
        ledger::ProcessId,
    };

    fn survivors(stack: u32, bytes: u64, blocks: [u64; 2], freed: u64) -> Survivors {
        Survivors {
            site: SiteKey {
                process: ProcessId(1),
                layer: Layer::Heap,
                stack: StackId(stack),
                by_allocator: false,
                device: None,
            },
            bytes,
            blocks,
            freed,
            most_ns: None,
        }
    }

    #[test]
    fn blocks_that_come_and_stay_throughout_are_growth() {
        let is_growth = |of: &Survivors| is_large(of, 0) && grows(of);
        assert!(is_growth(&survivors(1, 1 << 20, [1, 1], 0)));
        assert!(is_growth(&survivors(1, 1600, [50, 50], 100)));
        assert!(!is_growth(&survivors(1, 1 << 20, [1, 0], 0)));
        // Too little, only early, replaced, and an allocator's own.
        assert!(!is_growth(&survivors(1, 1600, [50, 49], 0)));
        assert!(is_large(&survivors(1, 1600, [50, 49], 0), 1 << 20));
        assert!(!is_growth(&survivors(1, 1 << 20, [100, 0], 0)));
        assert!(!is_growth(&survivors(1, 1 << 20, [50, 50], 101)));
        let mut segment = survivors(1, 1 << 20, [50, 50], 0);
        segment.site.by_allocator = true;
        assert!(!is_growth(&segment));
    }

    #[test]
    fn a_queue_that_fills_up_has_its_most_memory_now() {
        let window = Window::of(0, 100_000_000_000);
        let fills = |bytes, blocks, most_s: u64| {
            let of = Survivors {
                most_ns: Some(most_s * 1_000_000_000),
                ..survivors(1, bytes, [0, blocks], 900)
            };
            assert!(!grows(&of));
            fills_up(&of, &window)
        };
        assert!(fills(1 << 20, 500, 99) && !fills(1 << 20, 500, 90));
        // Some buffers are enlarged now and then.
        assert!(fills(1 << 20, 6, 60) && !fills(1 << 20, 6, 40));
        assert!(!fills(1 << 15, 6, 60));
    }

    /// A process in which a site keeps a block of this many bytes each tenth of a second, for 100
    /// s, a hole below each. Only the mapping of the first site's blocks is known.
    fn ledger(sites: &[(u32, u64)]) -> (Ledger, u64) {
        let mut ledger = Ledger::new(4096);
        ledger.start_process(7);
        ledger.apply(&Event {
            time_ns: 0,
            tgid: 7,
            tid: 7,
            action: Action::Mmap {
                addr: 1 << 32,
                len: 1 << 31,
                stack: StackId(100),
                kind: MapKind {
                    by_allocator: true,
                    ..MapKind::default()
                },
            },
        });
        for tenth in 0..1000 {
            for (number, (stack, size)) in (0_u64..).zip(sites) {
                let event = Event {
                    time_ns: tenth * 100_000_000,
                    tgid: 7,
                    tid: 7,
                    action: Action::Alloc {
                        layer: Layer::Heap,
                        addr: ((number + 1) << 32) + (tenth << 16),
                        size: *size,
                        stack: StackId(*stack),
                    },
                };
                ledger.apply(&event);
            }
        }
        (ledger, 100_000_000_000)
    }

    #[test]
    fn sites_of_many_bytes_and_sites_of_many_blocks_take_turns() {
        let (ledger, now) = ledger(&[(1, 4096), (2, 16), (3, 100_000)]);
        let window = Window::of(0, now);
        assert_eq!(window.born, 20_000_000_000..80_000_000_000);
        let found = of_process(Which::Growing, &ledger, 7, &window);
        let stacks: Vec<u32> = found.iter().map(|of| of.site.stack.0).collect();
        assert_eq!(stacks[0], 3);
        assert_eq!(stacks.len(), 3);
        assert_eq!(blocks(&found[0]), 600);
        assert!(found.iter().all(|of| of.blocks == [300, 300]));
        let short = Window::of(now - 1_900_000_000, now);
        assert_eq!(of_process(Which::Growing, &ledger, 7, &short), []);
    }

    #[test]
    fn blocks_among_holes_are_not_hidden() {
        let others = (1..=20).map(|n| (n, 4096 + u64::from(n)));
        let all: Vec<(u32, u64)> = [(50, 4096)].into_iter().chain(others).collect();
        let (ledger, now) = ledger(&all);
        let chosen = of_process(Which::Growing, &ledger, 7, &Window::of(0, now));
        let stacks: Vec<u32> = chosen.iter().map(|of| of.site.stack.0).collect();
        // The largest, one of the others as frequent, and the one with holes.
        assert_eq!(stacks[0], 20);
        assert!(stacks[..3].contains(&50), "{stacks:?}");
    }

    /// So many blocks that larger ones replace every 5 s, until `ends_ns`.
    fn containers(count: u64, ends_ns: u64) -> Ledger {
        let mut ledger = Ledger::new(4096);
        ledger.start_process(7);
        let mut apply = |time_ns, action| {
            ledger.apply(&Event {
                time_ns,
                tgid: 7,
                tid: 7,
                action,
            });
        };
        let layer = Layer::Heap;
        for step in 0..ends_ns / 5_000_000_000 {
            let time_ns = step * 5_000_000_000;
            for number in 0..count {
                let addr = (step << 32) + (number << 28);
                if step > 0 {
                    let free = Action::Free {
                        layer,
                        addr: addr - (1 << 32),
                        repeated: false,
                    };
                    apply(time_ns, free);
                }
                let (size, stack) = ((step + 8) << 12, StackId(1));
                let allocate = Action::Alloc {
                    layer,
                    addr,
                    size,
                    stack,
                };
                apply(time_ns, allocate);
            }
        }
        ledger
    }

    #[test]
    fn a_block_that_larger_ones_replace_grows() {
        let running = Running {
            tgid: 7,
            process: ProcessId(1),
            since_ns: 0,
        };
        let wanted = |ledger: &Ledger| {
            let chosen = chosen(Which::Growing, ledger, &[running], 100_000_000_000);
            let wanted = chosen.iter().flat_map(|of| of.wanted(ledger));
            wanted.map(|of| of.addresses).collect::<Vec<_>>()
        };
        assert_eq!(
            wanted(&containers(1, 100_000_000_000)),
            [[(19 << 32, 27 << 12)]]
        );
        let six = wanted(&containers(6, 100_000_000_000));
        let lengths: Vec<usize> = six.iter().map(Vec::len).collect();
        assert_eq!(lengths, [4], "some of those of one age");
        assert_eq!(wanted(&containers(6, 90_000_000_000)), [[]; 0]);
        let early = wanted(&containers(1, 15_000_000_000));
        assert!(
            early.is_empty(),
            "it has its size since the start: {early:?}"
        );
    }

    #[test]
    fn late_growth_is_among_the_largest() {
        let (mut ledger, now) = ledger(&[(1, 4096)]);
        for second in 0..5 {
            let event = Event {
                time_ns: now + second * 1_000_000_000,
                tgid: 7,
                tid: 7,
                action: Action::Alloc {
                    layer: Layer::Heap,
                    addr: (9 << 32) + (second << 30),
                    size: 1 << 30,
                    stack: StackId(9),
                },
            };
            ledger.apply(&event);
        }
        let running = Running {
            tgid: 7,
            process: ProcessId(1),
            since_ns: 0,
        };
        let stacks = |which| -> Vec<u32> {
            let chosen = chosen(which, &ledger, &[running], now + 5_000_000_000);
            let sites = chosen.iter().flat_map(|of| &of.sites);
            sites.map(|of| of.site.stack.0).collect()
        };
        assert_eq!(stacks(Which::Growing), [1, 9]);
        assert_eq!(stacks(Which::Largest), [9, 1]);
    }

    #[test]
    fn a_process_has_eight_sites_and_a_recording_sixteen() {
        let many: Vec<(u32, u64)> = (1..=20).map(|stack| (stack, 4096)).collect();
        let (ledger, now) = ledger(&many);
        let one = of_process(Which::Growing, &ledger, 7, &Window::of(0, now));
        assert_eq!(one.len(), 8);
        assert_eq!(of_all(std::slice::from_ref(&one)).len(), 8);
        let processes: Vec<Vec<Survivors>> = (1..=20)
            .map(|process| {
                let mut sites = one.clone();
                for of in &mut sites {
                    of.site.process = ProcessId(process);
                }
                sites
            })
            .collect();
        let chosen = of_all(&processes);
        assert_eq!(chosen.len(), 16);
        let processes: BTreeSet<u32> = chosen.iter().map(|key| key.process.0).collect();
        assert_eq!(processes.len(), 16, "one of each");
    }
}
