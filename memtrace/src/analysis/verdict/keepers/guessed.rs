//! Guesses the keeper of a leaking site's blocks. If none was seen in memory
//! ([`super::seen`]), it is probably a container, whose own buffer is also a block: one buffer that
//! grows with the leak points to the line that inserts.

use super::keeper::{How, Keeper};
use crate::{
    analysis::{
        series::{ProcessSeries, SiteSeries},
        window::Window,
    },
    event::Layer,
    frames::{
        Frame,
        containers::{self, Holds, Span},
    },
    ledger::SiteKey,
    recording::{Origin, Stacks, Step},
};
use std::ops::RangeInclusive;

/// Elements that a container has room for, per leaked block. The range is wide because a container
/// grows in steps of up to three times its size (CPython's dict), and an element may be several
/// blocks or none.
const PER_BLOCK: RangeInclusive<f64> = 0.3..=3.0;

/// The same of a container that has nothing else in common with the blocks.
const CLOSE: RangeInclusive<f64> = 0.5..=2.0;

/// A container whose length grew by at least this part has moved meanwhile: CPython's list gets an eighth more room at a
/// time.
const MOVED: f64 = 1.0 / 8.0;

/// Room of a container at the end of the recording, for each element that it has seconds later: it grew, CPython's list has up
/// to an eighth to spare, its dict half of its table. No other one may have room from [`LEAST_ROOM`] on: the search may
/// have taken long.
const ROOM: RangeInclusive<f64> = 0.3..=2.2;
const LEAST_ROOM: f64 = 0.1;

/// Bytes of an object in an arena of Python's (`SMALL_REQUEST_THRESHOLD` of Objects/obmalloc.c).
const OBJECT: Span = Span {
    least: 32.0,
    most: 512.0,
};

/// The part of its buffer by which a container grew that was replaced once: of CPython's list a ninth, of its
/// dict as much as two thirds.
const ONE_STEP: Span = Span {
    least: 1.0 / 9.0,
    most: 2.0 / 3.0,
};

/// A container that may keep the blocks.
struct Candidate<'a> {
    site: &'a SiteSeries,
    /// Callers in common with the blocks.
    common: usize,
    /// Elements for which it got room for each block.
    per_block: Span,
}

impl Candidate<'_> {
    /// Distance from one element per block, on a logarithmic scale.
    fn distance(&self) -> f64 {
        let Span { least, most } = self.per_block;
        (least * most).sqrt().ln().abs()
    }

    fn is_close(&self) -> bool {
        CLOSE.contains(&self.per_block.least) && CLOSE.contains(&self.per_block.most)
    }
}

/// The container that grew with the live blocks of `leak`, and its site: among the sites with the
/// most callers in common with it, the one whose growth is nearest. If none has common callers, as
/// when a thread keeps blocks that another one made, there must be only one candidate.
pub(super) fn keeper(
    leak: &SiteSeries,
    series: &ProcessSeries,
    window: Window,
    stacks: &Stacks,
) -> Option<(Keeper, SiteKey)> {
    let keeper = |site: &SiteSeries| {
        let (container, line) = containers::filled(stacks.get(site.key.stack).of_caller())?;
        let keeper = Keeper {
            how: How::Container(container.name),
            line: Some(line.clone()),
            package: None,
        };
        Some((keeper, site.key))
    };
    // A single growing buffer keeps its contents; many buffers are kept by something else.
    let is_one = leak.key.layer != Layer::Python && window.change(&leak.live_count) < 2.0;
    let own = leak.code.container.map(|container| container.holds);
    if is_one && own.is_some() || matches!(own, Some(Holds::Some(_))) {
        return keeper(leak);
    }
    let callers: Vec<&Frame> = stacks.get(leak.key.stack).frames().collect();
    let common = |site: &SiteSeries| {
        let frames: Vec<&Frame> = stacks.get(site.key.stack).frames().collect();
        let pairs = frames.iter().rev().zip(callers.iter().rev());
        pairs.take_while(|(own, other)| own == other).count()
    };
    let sites = series.sites.iter().filter(|site| site.key != leak.key);
    let candidates = sites.filter_map(|site| {
        let per_block = per_block(site, leak, series, window)?;
        Some(Candidate {
            site,
            common: common(site),
            per_block,
        })
    });
    let (related, others): (Vec<Candidate>, Vec<Candidate>) =
        candidates.partition(|candidate| candidate.common > 0);
    let nearest = related.iter().max_by(|a, b| {
        let nearer = b.distance().total_cmp(&a.distance());
        a.common.cmp(&b.common).then(nearer)
    });
    let buffer = match (nearest, &others[..]) {
        (Some(nearest), _) => nearest,
        (None, [only]) if only.is_close() => only,
        _ => return None,
    };
    keeper(buffer.site)
}

/// The line that filled a container whose own memory has moved since the recording, and the site of that memory: the
/// only site with one block of such a container, with room for about as many elements. `None` if there are several.
pub(super) fn filled_like(
    container: &Step,
    series: &ProcessSeries,
    stacks: &Stacks,
) -> Option<(Frame, SiteKey)> {
    let (of_type, length) = (container.type_name.as_deref()?, container.length? as f64);
    // One that grew less may have had the same memory all the time, from before the recording.
    let grown = container.growth_per_s? * series.times.last()?;
    if grown < MOVED * length {
        return None;
    }
    let room = |site: &SiteSeries| {
        let known = site.code.container.filter(|known| known.name == of_type)?;
        let (Holds::All(size), Some(bytes)) = (known.holds, site.live_bytes.last()) else {
            return None;
        };
        let is_one = site.live_count.last().is_some_and(|count| *count == 1.0);
        is_one.then_some(Span::exactly(*bytes / length).over(size))
    };
    let sites = series.sites.iter();
    let rooms = sites.filter_map(|site| Some((site, room(site)?)));
    let mut alike = rooms.filter(|(_, room)| room.most >= LEAST_ROOM && room.least <= *ROOM.end());
    let (Some((site, room)), None) = (alike.next(), alike.next()) else {
        return None;
    };
    // A list that is made again and again is another one.
    let has_grown = site.live_bytes.is_sorted() && site.live_bytes.last() > site.live_bytes.first();
    if !has_grown || !ROOM.contains(&room.least) || !ROOM.contains(&room.most) {
        return None;
    }
    let (_, line) = containers::filled(stacks.get(site.key.stack).of_caller())?;
    Some((line.clone(), site.key))
}

/// Elements that a container got room for, per block by which `leak` grew meanwhile; `None` if it
/// did not grow, or not with it.
fn per_block(
    site: &SiteSeries,
    leak: &SiteSeries,
    series: &ProcessSeries,
    window: Window,
) -> Option<Span> {
    let container = site.code.container?;
    // A container from before the attach is unknown until it grows, at some point in time.
    let known = site.live_bytes.iter().position(|bytes| *bytes > 0.0)?;
    let since = (known + 1).max(window.from);
    let grown = |values: &[f64], since: usize| {
        let grown = values.last()? - values.get(since)?;
        (grown > 0.0).then_some(grown)
    };
    let (added, since) = match container.holds {
        Holds::All(size) => {
            let bytes = grown(&site.live_bytes, since).map(Span::exactly);
            let replaced_once = || {
                let is_old = series.row.origin == Origin::Attached && known > 0;
                let bytes = grown(&site.live_bytes, 0).filter(|_| is_old)?;
                Some(Span {
                    least: bytes * ONE_STEP.least,
                    most: bytes * ONE_STEP.most,
                })
            };
            // Each of several has room for some blocks, and which of them keep any is not known.
            if window
                .ends(&site.live_count)
                .is_none_or(|(_, last)| last >= 2.0)
            {
                return None;
            }
            let known = bytes.map(|bytes| (bytes, since));
            let (bytes, since) = known.or_else(|| Some((replaced_once()?, 0)))?;
            (bytes.over(size), since)
        }
        Holds::Some(elements) => {
            let blocks = grown(&site.live_count, since)?;
            let added = Span {
                least: blocks * elements.least,
                most: blocks * elements.most,
            };
            (added, since)
        }
    };
    let blocks = match leak.key.layer {
        // An arena has many objects, and which line needs the next one is chance.
        Layer::Python => Span::exactly(grown(&series.python, since)?).over(OBJECT),
        _ => Span::exactly(grown(&leak.live_count, since)?),
    };
    let per_block = added.over(blocks);
    let overlaps = per_block.least <= *PER_BLOCK.end() && per_block.most >= *PER_BLOCK.start();
    overlaps.then_some(per_block)
}
