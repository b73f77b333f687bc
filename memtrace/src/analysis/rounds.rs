//! What a program that repeats its work keeps of each round, exact to the byte.

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

/// Fewer rounds cannot tell what stays from what the first ones left behind.
const LEAST: usize = 3;

/// What is kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rounds {
    pub(crate) number: usize,
    /// The lines that keep memory, the largest first.
    pub(crate) kept: Vec<Kept>,
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
        self.kept.iter().map(|kept| kept.per_round).sum()
    }
}

/// Sites of one process that allocate at one line, or one site without a line.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place<'a> {
    Line(ProcessId, &'a Frame),
    Site(SiteKey),
}

/// Judges the sites at the ends of rounds, the first of which is that of the warm-up; `None` if there are too few.
pub(crate) fn judge(
    series: &SiteSeries,
    stacks: &Stacks,
    holders: &FastMap<SiteKey, Holders>,
    suppressions: &Suppressions,
) -> Option<Rounds> {
    let number = series.times_ns.len().checked_sub(1)?;
    if number < LEAST {
        return None;
    }
    let mut places: FastMap<Place, (Vec<u64>, Vec<SiteKey>)> = FastMap::default();
    for (key, points) in &series.sites {
        // Other layers are views of the same memory.
        let counts = matches!(
            key.layer,
            Layer::Vm | Layer::Heap | Layer::Python | Layer::TorchCuda
        );
        let frames: Vec<&Frame> = stacks.get(key.stack).of_caller().collect();
        if key.by_allocator || !counts || suppressions.matching(&frames).is_some() {
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
    let mut kept: Vec<Kept> = places
        .into_iter()
        .filter_map(|(place, (live, sites))| {
            let line = match place {
                Place::Line(_, line) => Some(line.clone()),
                Place::Site(_) => None,
            };
            let per_round = per_round(&live)?;
            let holders = sites.iter().filter_map(|site| holders.get(site));
            let keepers = holders.filter_map(|of| keeper_of(of, stacks));
            let keeper = keepers.map(|(keeper, _)| keeper).find(Keeper::is_certain);
            Some(Kept {
                line,
                keeper,
                per_round,
            })
        })
        .collect();
    kept.sort_by_key(|kept| Reverse(kept.per_round));
    Some(Rounds { number, kept })
}

/// Adds a site's live bytes at the end of each round.
fn add(live: &mut [u64], points: &[(usize, SitePoint)]) {
    let ends = points.iter().skip(1).map(|(from, _)| *from);
    for ((from, point), end) in points.iter().zip(ends.chain([live.len()])) {
        for live in &mut live[*from..end] {
            *live += point.live_bytes;
        }
    }
}

/// Bytes that stay of each round: live memory falls in no round, and rises in at least three of four.
fn per_round(live: &[u64]) -> Option<u64> {
    let (first, last) = (live.first()?, live.last()?);
    let pairs = || live.windows(2);
    let rises = pairs().filter(|pair| pair[1] > pair[0]).count();
    let never_falls = pairs().all(|pair| pair[1] >= pair[0]);
    (never_falls && rises * 4 >= pairs().count() * 3)
        .then(|| last.saturating_sub(*first) / pairs().count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rises_round_after_round_is_kept() {
        assert_eq!(per_round(&[5, 105, 205, 305, 405]), Some(100));
        // A list that grows now and then, beside what it holds.
        assert_eq!(per_round(&[0, 8, 8, 16, 24]), Some(6));
        // A cache that fills, a buffer that changes, and a table that grows once.
        assert_eq!(per_round(&[0, 100, 200, 200, 200]), None);
        assert_eq!(per_round(&[0, 100, 200, 150, 300]), None);
        assert_eq!(per_round(&[0, 0, 0, 4096, 4096]), None);
        assert_eq!(per_round(&[7, 7, 7, 7, 7]), None);
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
