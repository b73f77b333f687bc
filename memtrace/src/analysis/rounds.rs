//! What a program that repeats its work keeps of each round.

use std::cmp::Reverse;

use super::{
    suppressions::Suppressions,
    verdict::{Keeper, keeper_of},
};
use crate::{
    event::Layer,
    frames::{Frame, own_line},
    hash::FastMap,
    ledger::{ProcessId, SiteKey},
    recording::{Holders, SitePoint, SiteSeries, Stacks},
};

/// In fewer rounds, memory that comes and goes may rise by chance.
pub(crate) const LEAST: usize = 6;

/// What is kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rounds {
    pub(crate) number: usize,
    /// The lines that keep memory, the largest first.
    pub(crate) kept: Vec<Kept>,
    /// The same of lines that grew in too few rounds to be sure.
    pub(crate) perhaps: Vec<Kept>,
}

/// What a line keeps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kept {
    pub(crate) line: Option<Frame>,
    pub(crate) keeper: Option<Keeper>,
    /// Bytes.
    pub(crate) per_round: u64,
}

impl Rounds {
    /// What all lines keep, bytes per round.
    pub(crate) fn per_round(&self) -> u64 {
        self.kept
            .iter()
            .map(|kept| kept.per_round)
            .fold(0, u64::saturating_add)
    }
}

/// Sites of one process that allocate at one line, or one site without a line.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place<'a> {
    Line(ProcessId, &'a Frame),
    Site(SiteKey),
}

/// Judges the sites at the ends of rounds, the first of which is that of the warm-up.
pub(crate) fn judge(
    series: &SiteSeries,
    stacks: &Stacks,
    holders: &FastMap<SiteKey, Holders>,
    suppressions: &Suppressions,
) -> Rounds {
    let number = series.times_ns.len().saturating_sub(1);
    let mut rounds = Rounds {
        number,
        ..Rounds::default()
    };
    if number < LEAST {
        return rounds;
    }
    let mut places: FastMap<Place, (Vec<u64>, Vec<SiteKey>)> = FastMap::default();
    let mut processes: FastMap<ProcessId, Vec<u64>> = FastMap::default();
    for (key, points) in &series.sites {
        // Others are views of the same memory.
        if key.by_allocator || matches!(key.layer, Layer::TorchCpu | Layer::CudaDriver) {
            continue;
        }
        let process = processes.entry(key.process);
        add(process.or_insert_with(|| vec![0; number + 1]), points);
        let frames: Vec<&Frame> = stacks.get(key.stack).of_caller().collect();
        if suppressions.matching(&frames).is_some() {
            continue;
        }
        let place = match own_line(&frames) {
            Some(line) => Place::Line(key.process, line),
            None => Place::Site(*key),
        };
        let (live, sites) = places
            .entry(place)
            .or_insert_with(|| (vec![0; number + 1], Vec::new()));
        add(live, points);
        sites.push(*key);
    }
    for (place, (live, sites)) in places {
        let (line, process) = match place {
            Place::Line(process, line) => (Some(line.clone()), process),
            Place::Site(key) => (None, key.process),
        };
        let of = match course(&live) {
            Course::Rises => &mut rounds.kept,
            Course::MayRise => &mut rounds.perhaps,
            Course::Other => continue,
        };
        if !is_part_of(&live, &processes[&process]) {
            continue;
        }
        let holders = sites.iter().filter_map(|site| holders.get(site));
        let keepers = holders.filter_map(|of| keeper_of(of, stacks));
        of.push(Kept {
            line,
            keeper: keepers.map(|(keeper, _)| keeper).find(Keeper::is_certain),
            per_round: growth(&live).max(0).unsigned_abs() / number as u64,
        });
    }
    for of in [&mut rounds.kept, &mut rounds.perhaps] {
        of.sort_by_key(|kept| Reverse(kept.per_round));
    }
    rounds
}

/// Adds a site's live bytes at the end of each round.
fn add(live: &mut [u64], points: &[(usize, SitePoint)]) {
    let ends = points.iter().skip(1).map(|(from, _)| *from);
    for ((from, point), end) in points.iter().zip(ends.chain([live.len()])) {
        for live in &mut live[*from..end] {
            *live = live.saturating_add(point.live_bytes);
        }
    }
}

/// How live memory changes from round to round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// It falls in no round, and rises in at least three of four.
    Rises,
    /// It falls in no round, and rises in both halves.
    MayRise,
    Other,
}

fn course(live: &[u64]) -> Course {
    let pairs = || live.windows(2);
    let rises = pairs().filter(|pair| pair[1] > pair[0]).count();
    if pairs().any(|pair| pair[1] < pair[0]) || rises == 0 {
        Course::Other
    } else if rises * 4 >= pairs().count() * 3 {
        Course::Rises
    } else if halves(live).iter().all(|half| growth(half) > 0) {
        Course::MayRise
    } else {
        Course::Other
    }
}

/// Whether the process grows with a line, throughout or lately: a block that another line replaces is no more memory.
fn is_part_of(line: &[u64], process: &[u64]) -> bool {
    let [_, late] = halves(line);
    let [_, of_process] = halves(process);
    [(line, process), (late, of_process)]
        .iter()
        .any(|(line, process)| growth(line) > 0 && growth(process) >= growth(line) / 2)
}

/// Both have the round in the middle.
fn halves(live: &[u64]) -> [&[u64]; 2] {
    let middle = live.len() / 2;
    [&live[..=middle], &live[middle..]]
}

/// Bytes.
fn growth(live: &[u64]) -> i64 {
    let ends = live.first().zip(live.last());
    ends.map_or(0, |(first, last)| {
        last.cast_signed().saturating_sub(first.cast_signed())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rises_round_after_round_is_kept() {
        assert_eq!(course(&[5, 105, 205, 305, 405]), Course::Rises);
        // A list that grows now and then, beside what it holds, and alone.
        assert_eq!(course(&[0, 8, 8, 16, 24]), Course::Rises);
        assert_eq!(course(&[0, 0, 8, 8, 8, 8, 16, 16, 16]), Course::MayRise);
        // A cache that fills, a buffer that changes, and a table that grows once.
        assert_eq!(course(&[0, 100, 200, 200, 200]), Course::Other);
        assert_eq!(course(&[0, 100, 200, 150, 300]), Course::Other);
        assert_eq!(course(&[0, 0, 0, 4096, 4096]), Course::Other);
        assert_eq!(course(&[7, 7, 7, 7, 7]), Course::Other);
    }

    #[test]
    fn what_takes_the_place_of_other_memory_is_not_kept() {
        let line = [0, 100, 200, 300, 400];
        let process = |noise: [u64; 5]| noise.map(|noise| 5000 + noise);
        assert!(is_part_of(&line, &process(line)));
        // A full ring that other lines had filled.
        assert!(!is_part_of(&line, &process([0; 5])));
        // What an early round gave back hides nothing.
        assert!(is_part_of(&line, &process([900, 1000, 200, 300, 400])));
    }

    #[test]
    fn a_site_keeps_its_figure_until_it_changes() {
        let point = |live_bytes| SitePoint {
            live_bytes,
            alloc_count: 0,
        };
        let mut live = vec![1; 5];
        add(&mut live, &[(1, point(10)), (3, point(20))]);
        assert_eq!(live, [1, 11, 11, 21, 21]);
    }
}
