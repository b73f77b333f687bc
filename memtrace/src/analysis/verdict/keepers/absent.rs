//! Why the keeper of a site's blocks is not known.

use super::Keepers;
use crate::{
    analysis::verdict::advice::Advice,
    event::Layer,
    ledger::SiteKey,
    recording::{Origin, Unknown, Unsearched},
};

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Absent {
    /// Its process was not searched.
    Unsearched(Unsearched),
    /// Its process ended before.
    Ended,
    /// Other sites of its process grew more, and those were searched for.
    OthersFirst,
    /// The search found nothing.
    Unknown(Unknown),
    /// Several ways were found, and none of them for most blocks.
    Several,
}

impl Keepers<'_> {
    /// That of a site; `None` if the recording does not say.
    pub(super) fn absent(&self, key: &SiteKey) -> Option<Absent> {
        let row = &self.series.row;
        let is_searched = || self.holders.keys().any(|site| site.process == key.process);
        match (self.holders.get(key), self.unsearched) {
            (Some(of), _) if of.ways.is_empty() => of.unknown.map(Absent::Unknown),
            (Some(_), _) => Some(Absent::Several),
            (None, Some(why)) => Some(Absent::Unsearched(why.clone())),
            (None, None) if is_searched() => Some(Absent::OthersFirst),
            (None, None) => row.ended_ns.map(|_| Absent::Ended),
        }
    }

    /// What to do about it.
    pub(super) fn without_keeper(&self, key: &SiteKey, why: Option<&Absent>) -> Advice {
        let can_attach = key.layer != Layer::Vm && self.series.row.origin != Origin::Attached;
        match why {
            Some(Absent::Unknown(_)) => Advice::FindUnseenKeeper,
            Some(Absent::Unsearched(Unsearched::NotRequested)) => Advice::SearchHolders,
            Some(Absent::Unsearched(Unsearched::CutShort)) => Advice::AwaitSearch,
            Some(Absent::Ended) | None if can_attach => Advice::Attach,
            _ => Advice::FindKeeper,
        }
    }
}
