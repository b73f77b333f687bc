//! Sites whose blocks one container keeps. They are one finding, because together they are the growth of that container.

use std::time::Duration;

use super::{keeper::How, seen};
use crate::{
    analysis::{series::SiteSeries, verdict::context::Context},
    event::Layer,
    ledger::ProcessId,
    recording::{Holders, Path, Stacks, StepKind},
};

/// A container that keeps the blocks of a site, as one search saw it, or several with one name that hang in the same one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    process: ProcessId,
    seen: Option<Duration>,
    container: u32,
    name: String,
    is_certain: bool,
}

impl Pool {
    /// That of a site.
    pub(crate) fn of(holders: &Holders, stacks: &Stacks) -> Option<Pool> {
        let (keeper, _) = seen::keeper(holders, stacks)?;
        let How::Path { path, .. } = &keeper.how else {
            return None;
        };
        let has_many = keeper.has_growing() || has_several(path) || path.chain().is_some();
        Some(Pool {
            process: holders.site.process,
            seen: holders.seen,
            container: path.container_number.filter(|_| has_many)?,
            name: keeper.container()?.name.clone(),
            is_certain: !keeper.is_likely(),
        })
    }
}

/// Whether blocks hang in several elements of the container.
fn has_several(path: &Path) -> bool {
    path.container.is_some_and(|container| {
        let next = path.steps.get(container + 1);
        let is_any = next.is_some_and(|next| ["[i]", "[key]"].contains(&&*next.name));
        is_any || path.steps[container].kind == StepKind::Block
    })
}

/// The sites of each container that certainly keeps the blocks of several in one layer. Arenas are judged together anyway.
pub(in super::super) fn pools<'a>(
    context: &Context<'a>,
    sites: impl Iterator<Item = &'a SiteSeries>,
) -> Vec<Vec<&'a SiteSeries>> {
    let mut pools: Vec<(Pool, Vec<&SiteSeries>)> = Vec::new();
    for site in sites.filter(|site| site.key.layer != Layer::Python) {
        let holders = context.holders.get(&site.key);
        let pool = holders.and_then(|of| Pool::of(of, context.stacks));
        let Some(pool) = pool.filter(|pool| pool.is_certain) else {
            continue;
        };
        let place = |site: &SiteSeries| (site.key.layer, site.key.device);
        let is_same = |(known, of): &&mut (Pool, Vec<&SiteSeries>)| {
            *known == pool && of.first().map(|of| place(of)) == Some(place(site))
        };
        match pools.iter_mut().find(is_same) {
            Some((_, of)) => of.push(site),
            None => pools.push((pool, vec![site])),
        }
    }
    let pools = pools.into_iter().map(|(_, sites)| sites);
    pools.filter(|sites| sites.len() > 1).collect()
}
