//! Finds the keeper of each site of a process: the one seen in memory ([`seen`]), or else a guess ([`guessed`]).

mod guessed;
mod keeper;
mod lost;
mod seen;

use super::{
    advice::Advice,
    class::Class,
    diagnosis::{Scope, Verdict},
};
use crate::{
    analysis::{series::ProcessSeries, window::Window},
    event::Layer,
    hash::FastMap,
    ledger::SiteKey,
    recording::{Holders, Stacks},
};

pub(crate) use keeper::{How, KeptBy, container};
pub(crate) use lost::LostSite;
pub(super) use lost::sites as lost_sites;
pub(crate) use seen::{alike, filling_line, kept_by as kept_by_of};

/// What the search for keepers reads.
pub(super) struct Keepers<'a> {
    pub(super) series: &'a ProcessSeries,
    pub(super) window: Window,
    /// Holders seen in memory.
    pub(super) holders: &'a FastMap<SiteKey, Holders>,
    pub(super) stacks: &'a Stacks,
}

/// A keeper, and the site of its own memory if it is known.
type Found = (KeptBy, Option<SiteKey>);

impl Keepers<'_> {
    /// Adds the keeper to each verdict. The site of a keeper's own buffer becomes part of the leak that it keeps.
    pub(super) fn assign(&self, sites: &mut Vec<Verdict>) {
        let mut keepers = Vec::new();
        for verdict in sites.iter_mut() {
            let Scope::Site(key) = verdict.scope else {
                continue;
            };
            match self.find(verdict.class, &key) {
                Some((kept_by, keeper)) => {
                    let keeper = keeper.filter(|_| leaks(verdict.class));
                    keepers.extend(keeper.map(|site| (Scope::Site(site), kept_by.clone())));
                    advise(verdict, &kept_by.how);
                    verdict.kept_by = Some(kept_by);
                }
                None if key.layer != Layer::Vm && !self.holders.contains_key(&key) => {
                    let asks = |advice: &&mut Advice| **advice == Advice::FindKeeper;
                    let asking = verdict.next.iter_mut().filter(asks);
                    asking.for_each(|advice| *advice = Advice::Attach);
                }
                None => {}
            }
        }
        merge(sites, &keepers);
    }

    fn find(&self, class: Class, key: &SiteKey) -> Option<Found> {
        let seen = self.holders.get(key);
        let seen = seen.and_then(|holders| seen::kept_by(holders, self.stacks));
        // A container that grows is a fact even if the kind of growth is open; anything else is for leaks.
        let is_open = class == Class::Undetermined;
        let seen = seen.filter(|(kept_by, _)| leaks(class) || is_open && kept_by.has_growing());
        match seen {
            // Its memory may have moved between the end of the recording and the search.
            Some((kept_by, _)) if kept_by.lacks_line() => Some(self.with_line(kept_by, class, key)),
            Some(seen) => Some(seen),
            None => self.guess(class, key),
        }
    }

    /// Adds the line that fills a container, if its growth shows that line.
    fn with_line(&self, mut kept_by: KeptBy, class: Class, key: &SiteKey) -> Found {
        let alike = kept_by
            .container()
            .and_then(|container| guessed::filled_like(container, self.series, self.stacks));
        let (line, keeper) = match alike {
            Some((line, keeper)) => (Some(line), Some(keeper)),
            None => self
                .guess(class, key)
                .map_or((None, None), |(guess, keeper)| (guess.line, keeper)),
        };
        kept_by.line = line;
        (kept_by, keeper)
    }

    fn guess(&self, class: Class, key: &SiteKey) -> Option<Found> {
        let mut sites = self.series.sites.iter();
        let leak = sites.find(|site| leaks(class) && site.key == *key)?;
        let (kept_by, keeper) = guessed::kept_by(leak, self.series, self.window, self.stacks)?;
        Some((kept_by, Some(keeper)))
    }
}

fn leaks(class: Class) -> bool {
    matches!(class, Class::Leak | Class::GpuLeak | Class::Pinned)
}

/// Replaces the advice to find the keeper with advice on this keeper.
fn advise(verdict: &mut Verdict, how: &How) {
    let advice = match how {
        How::Container(_) | How::Path { .. } => Advice::LimitContainer,
        How::Cycle { .. } => Advice::BreakCycle,
        How::Nothing { .. } => Advice::FreeInTime,
    };
    let is_proven = !matches!(how, How::Container(_));
    for next in &mut verdict.next {
        *next = next.with_keeper(advice, is_proven);
    }
}

fn merge(sites: &mut Vec<Verdict>, keepers: &[(Scope, KeptBy)]) {
    // The buffer of a container that keeps leaked blocks is part of that leak.
    let keeper = |of: &Verdict| keepers.iter().find(|(scope, _)| *scope == of.scope);
    sites.retain(|verdict| verdict.class != Class::Cache || keeper(verdict).is_none());
    // What was seen of that container is better than a guess.
    for verdict in sites {
        let guessed = |of: &KeptBy| matches!(of.how, How::Container(_));
        if verdict.kept_by.as_ref().is_some_and(guessed)
            && let Some((_, kept_by)) = keeper(verdict)
        {
            verdict.kept_by = Some(kept_by.clone());
        }
    }
}
