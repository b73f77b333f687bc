//! The caller that tells a leaking stack from others. A line that allocates for many is not at fault if the blocks of
//! others are freed.

use super::{
    context::Context,
    diagnosis::{Scope, Verdict},
};
use crate::{
    analysis::series::SiteSeries,
    frames::{Frame, is_of_language, own_line},
    ledger::SiteKey,
};

/// Another stack counts if it allocated at least this many blocks for each one of the leaking stack.
const LEAST_BLOCKS: f64 = 0.1;

/// Frames between the function and its caller: further out, callers say little about it.
const FAR: usize = 3;

/// Adds its caller to each leaking site whose line allocates for others, too.
pub(super) fn assign(context: &Context, sites: &mut [Verdict]) {
    let leaks: Vec<SiteKey> = sites
        .iter()
        .filter(|of| of.class.is_leak())
        .filter_map(|of| match of.scope {
            Scope::Site(key) => Some(key),
            Scope::Process => None,
        })
        .collect();
    for verdict in sites.iter_mut().filter(|of| of.class.is_leak()) {
        let mut series = context.series.sites.iter();
        let site = series.find(|site| verdict.scope == Scope::Site(site.key));
        verdict.caller = site.and_then(|site| of(context, site, &leaks)).cloned();
    }
}

fn of<'a>(context: &Context<'a>, site: &SiteSeries, leaks: &[SiteKey]) -> Option<&'a Frame> {
    let path = from_own_line(context, site.key)?;
    let allocated = site.alloc_count.last().copied().unwrap_or(0.0);
    let is_other = |(key, blocks): &&(SiteKey, u64)| {
        key.layer == site.key.layer
            && !leaks.contains(key)
            && *blocks as f64 >= LEAST_BLOCKS * allocated
    };
    let others = context.series.churning.iter().filter(is_other);
    let common = others.filter_map(|(other, _)| {
        let other = from_own_line(context, *other)?;
        let is_same = |(one, other): &(&&Frame, &&Frame)| one == other;
        Some(path.iter().zip(&other).take_while(is_same).count())
    });
    let common = common.max().filter(|common| (1..=FAR).contains(common))?;
    path.get(common).copied()
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
    Some(path.collect())
}
