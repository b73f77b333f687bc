//! Sites of one line, taken together. Their stacks may differ in the callers: a compiler that replaces code while it runs,
//! another caller or a template splits a line, and some of its stacks end when others begin. Or they differ inside a library
//! that the line calls, which may allocate at hundreds of places.

use super::context::Context;
use crate::{
    analysis::series::{Ages, SiteSeries},
    event::Layer,
    frames::{Frame, mappings::Use, own_line, program_line},
    hash::FastMap,
};

/// Whether no other rule judges it together with others: arenas and the heap of a runtime are.
fn is_judged_alone(site: &SiteSeries) -> bool {
    site.key.layer != Layer::Python && site.mapping != Some(Use::Runtime)
}

/// The sites of each line that has several in one layer, all with the same stack inside of it.
pub(super) fn of_several<'a>(
    context: &Context<'a>,
    sites: impl Iterator<Item = &'a SiteSeries>,
) -> Vec<Vec<&'a SiteSeries>> {
    let mut lines: Vec<(Vec<&Frame>, Vec<&SiteSeries>)> = Vec::new();
    for site in sites.filter(|site| is_judged_alone(site)) {
        let mut path: Vec<&Frame> = context.stacks.get(site.key.stack).of_caller().collect();
        let own = own_line(&path);
        let is_own = |frame: &&Frame| own.is_some_and(|own| std::ptr::eq(*frame, own));
        let Some(line) = path.iter().position(is_own) else {
            continue;
        };
        path.truncate(line + 1);
        let alike = |(known, of): &&mut (Vec<&Frame>, Vec<&SiteSeries>)| {
            let first = of.first().map(|of| (of.key.layer, of.key.device));
            *known == path && first == Some((site.key.layer, site.key.device))
        };
        match lines.iter_mut().find(alike) {
            Some((_, of)) => of.push(site),
            None => lines.push((path, vec![site])),
        }
    }
    let lines = lines.into_iter().map(|(_, sites)| sites);
    lines.filter(|sites| sites.len() > 1).collect()
}

/// The sites of each of the program's lines that has several in one layer, whatever they called there.
pub(super) fn of_program<'a>(
    context: &Context<'a>,
    sites: impl Iterator<Item = &'a SiteSeries>,
) -> Vec<Vec<&'a SiteSeries>> {
    let mut lines: FastMap<_, Vec<&SiteSeries>> = FastMap::default();
    for site in sites.filter(|site| is_judged_alone(site)) {
        let frames: Vec<&Frame> = context.stacks.get(site.key.stack).of_caller().collect();
        if let Some(line) = program_line(&frames) {
            let key = (site.key.layer, site.key.device, line.shown());
            lines.entry(key).or_default().push(site);
        }
    }
    lines
        .into_values()
        .filter(|sites| sites.len() > 1)
        .collect()
}

/// The sum of sites, with the key and the code of the one that has most.
pub(super) fn together(sites: &[&SiteSeries]) -> Option<SiteSeries> {
    let last = |site: &SiteSeries| site.live_bytes.last().copied().unwrap_or(0.0);
    let largest = sites.iter().max_by(|a, b| last(a).total_cmp(&last(b)))?;
    let sum = |of: fn(&SiteSeries) -> &[f64]| -> Vec<f64> {
        let points = 0..of(largest).len();
        let at = |point: usize| sites.iter().filter_map(|site| of(site).get(point)).sum();
        points.map(at).collect()
    };
    let ages: Option<Vec<&Ages>> = sites.iter().map(|site| site.ages.as_ref()).collect();
    Some(SiteSeries {
        live_bytes: sum(|site| &site.live_bytes),
        live_count: sum(|site| &site.live_count),
        alloc_count: sum(|site| &site.alloc_count),
        ages: ages.and_then(|ages| ages.into_iter().cloned().reduce(Ages::with)),
        holes: sites.iter().map(|site| site.holes).sum(),
        ..(*largest).clone()
    })
}
