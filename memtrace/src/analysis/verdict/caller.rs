//! The caller that tells a leaking stack from others. A line that allocates for many is not at fault if the blocks of
//! others are freed.

use super::{
    context::Context,
    diagnosis::{Scope, Verdict},
};
use crate::{
    analysis::series::SiteSeries,
    event::Layer,
    frames::{Frame, is_of_language, own_line},
    ledger::SiteKey,
};

/// Others share a line if they allocated at least this many blocks there for each one of the leaking stack.
const LEAST_BLOCKS: f64 = 0.1;

/// Frames between the function and its caller: further out, callers say little about it.
const FAR: usize = 3;

/// Another stack that frees its blocks: its layer, how many blocks it allocated, and its frames.
struct Other<'a> {
    layer: Layer,
    blocks: f64,
    path: Vec<&'a Frame>,
}

/// Adds its caller to each leaking site whose line allocates for others, too.
pub(super) fn assign(context: &Context, sites: &mut [Verdict]) {
    let is_leak = |of: &Verdict, key| of.class.is_leak() && of.scope == Scope::Site(key);
    let churning = context.series.churning.iter();
    let others = churning.filter(|other| !sites.iter().any(|of| is_leak(of, other.site)));
    let others = others.filter_map(|other| {
        Some(Other {
            layer: other.site.layer,
            blocks: other.blocks as f64,
            path: from_own_line(context, other.site)?,
        })
    });
    let others: Vec<Other<'_>> = others.collect();
    for site in &context.series.sites {
        if let Some(verdict) = sites.iter_mut().find(|of| is_leak(of, site.key)) {
            verdict.caller = of(context, site, &others).cloned();
        }
    }
}

fn of<'a>(context: &Context<'a>, site: &SiteSeries, others: &[Other<'_>]) -> Option<&'a Frame> {
    let path = from_own_line(context, site.key)?;
    let allocated = site.alloc_count.last().copied().unwrap_or(0.0);
    // What the line allocates besides, in the same calls, says nothing about these.
    let others = others
        .iter()
        .filter(|other| other.layer == site.key.layer && other.path != path);
    let mut freed = [0.0; FAR + 1];
    for other in others {
        let pairs = path.iter().zip(&other.path);
        let common = pairs.take_while(|(one, other)| one == other).count();
        let sums = freed.iter_mut().take(common);
        sums.for_each(|sum| *sum += other.blocks);
    }
    let is_shared = |blocks: &&f64| **blocks > 0.0 && **blocks >= LEAST_BLOCKS * allocated;
    let shared = freed.iter().take_while(is_shared).count();
    let shared = Some(shared).filter(|shared| (1..=FAR).contains(shared))?;
    path.get(shared).copied()
}

/// The frames of a stack from the program's own line outwards, in its language.
fn from_own_line<'a>(context: &Context<'a>, site: SiteKey) -> Option<Vec<&'a Frame>> {
    let frames: Vec<&Frame> = context.stacks.get(site.stack).of_caller().collect();
    let own = own_line(&frames)?;
    let path = frames
        .into_iter()
        .skip_while(|frame| !std::ptr::eq(*frame, own));
    let is_callers =
        |frame: &&Frame| frame.is_python() == own.is_python() && !is_of_language(frame);
    let path = path.filter(|frame| std::ptr::eq(*frame, own) || is_callers(frame));
    let mut path: Vec<&Frame> = path.collect();
    // Recursion.
    path.dedup();
    Some(path)
}
