//! Which line probably keeps the blocks of a site that leaks. What keeps many blocks is a container,
//! and a container's own buffer is a block too: one that grows with the leak names the line that puts
//! something in.

use crate::{
    analysis::{
        series::{ProcessSeries, SiteSeries},
        window::Window,
    },
    frames::{
        Frame,
        containers::{self, Container, Holds},
    },
    recording::Stacks,
};

/// What probably keeps the blocks of a site.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeptBy {
    pub(crate) container: &'static str,
    /// The line that puts something in.
    pub(crate) line: Frame,
}

/// Elements that a container has room for, for each block that leaked: as few and as many, for it grows in
/// steps of up to three times its size (CPython's dict), and an element may be several blocks or none.
const PER_BLOCK: std::ops::RangeInclusive<f64> = 0.3..=3.0;

/// The container that grew with the live blocks of `leak`: one of those whose stacks have most callers in
/// common with it, and of them the one whose growth is nearest.
pub(super) fn kept_by(
    leak: &SiteSeries,
    series: &ProcessSeries,
    window: Window,
    stacks: &Stacks,
) -> Option<KeptBy> {
    let filled = |site: &SiteSeries| containers::filled(stacks.get(site.key.stack).of_caller());
    // A buffer that grows keeps what is in it; many buffers are kept by something else.
    let is_one = window.change(&leak.live_count) < 2.0;
    if let Some((container, line)) = filled(leak)
        && (is_one || matches!(container.holds, Holds::Some(_)))
    {
        return Some(KeptBy {
            container: container.name,
            line: line.clone(),
        });
    }
    let callers: Vec<&Frame> = stacks.get(leak.key.stack).frames().collect();
    let common = |site: &SiteSeries| {
        let frames: Vec<&Frame> = stacks.get(site.key.stack).frames().collect();
        let pairs = frames.iter().rev().zip(callers.iter().rev());
        pairs.take_while(|(own, other)| own == other).count()
    };
    let candidates = series.sites.iter().filter_map(|site| {
        let per_block = per_block(site, site.code.container?, leak, window)?;
        let common = common(site);
        (common > 0 && site.key != leak.key).then(|| (common, -per_block.ln().abs(), site))
    });
    let (_, _, site) = candidates.max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)))?;
    let (container, line) = filled(site)?;
    Some(KeptBy {
        container: container.name,
        line: line.clone(),
    })
}

/// Elements for which a container got room for each block by which `leak` grew meanwhile; `None` where it
/// did not grow, or not with it.
fn per_block(
    site: &SiteSeries,
    container: &Container,
    leak: &SiteSeries,
    window: Window,
) -> Option<f64> {
    // Of a container from before the attach nothing is known until it grows, at some time in a point.
    let known = site.live_bytes.iter().position(|bytes| *bytes > 0.0)? + 1;
    let since = known.max(window.from);
    let grown = |values: &[f64]| Some(values.last()? - values.get(since)?);
    let elements = match container.holds {
        Holds::All(bytes) => grown(&site.live_bytes)? / bytes,
        Holds::Some(elements) => grown(&site.live_count)? * elements,
    };
    let blocks = grown(&leak.live_count)?;
    let per_block = elements / blocks;
    (blocks > 0.0 && PER_BLOCK.contains(&per_block)).then_some(per_block)
}
