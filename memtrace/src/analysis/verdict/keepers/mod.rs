//! Finds the keeper of each site of a process: the one seen in memory ([`seen`]), or else a guess ([`guessed`]).

mod absent;
mod copied;
mod graphs;
mod guessed;
mod keeper;
mod lost;
mod native;
mod pool;
mod remedy;
mod seen;

use super::{
    advice::Advice,
    class::Class,
    diagnosis::{Diagnosis, Scope, Verdict},
    thresholds::OF_RESIDUAL,
    types::Types,
};
use crate::{
    analysis::{series::ProcessSeries, window::Window},
    event::Layer,
    frames::{Frame, Language, language, library_call, own_line},
    hash::FastMap,
    ledger::SiteKey,
    recording::{Fact, Holders, Origin, Stack, Stacks, StepKind, Unsearched},
};

pub(crate) use absent::Absent;
pub(crate) use keeper::{How, Keeper, container};
pub(crate) use lost::LostSite;
pub(super) use lost::sites as lost_sites;
use native::native_code;
pub(crate) use pool::Pool;
pub(super) use pool::pools;
use remedy::remedy;
pub(super) use seen::keeper_of_type;
pub(crate) use seen::{alike, filling_line, keeper as keeper_of};

/// What the search for keepers reads.
pub(super) struct Keepers<'a> {
    series: &'a ProcessSeries,
    window: Window,
    /// Holders seen in memory.
    holders: &'a FastMap<SiteKey, Holders>,
    /// Why there are none.
    unsearched: Option<&'a Unsearched>,
    /// About the process.
    facts: Vec<&'a Fact>,
    stacks: &'a Stacks,
    /// Probably keeps Python's objects, although something else seemed to: see [`copied`].
    copied: Option<Keeper>,
}

/// A keeper, and the site of its own memory if it is known.
type Found = (Keeper, Option<SiteKey>);

impl<'a> Keepers<'a> {
    pub(super) fn new(
        series: &'a ProcessSeries,
        window: Window,
        diagnosis: &'a Diagnosis,
        facts: &'a [Fact],
        stacks: &'a Stacks,
    ) -> Self {
        let process = series.row.id;
        let types = diagnosis.types.get(&process);
        let facts = facts.iter().filter(|of| of.process == Some(process));
        Self {
            series,
            window,
            holders: &diagnosis.holders,
            unsearched: diagnosis.unsearched.get(&process),
            facts: facts.collect(),
            stacks,
            copied: types.and_then(|types| copied::keeper(series, window, types, stacks)),
        }
    }

    /// What probably keeps Python's objects instead of the references that seem to be leaked.
    pub(super) fn instead_of(&self, types: &Types) -> Option<Keeper> {
        let seems = types.keeper.as_ref().is_some_and(seems_leaked);
        self.copied.clone().filter(|_| seems)
    }

    /// Adds the keeper to each verdict. The site of a keeper's own buffer becomes part of the leak that it keeps.
    pub(super) fn assign(&self, sites: &mut Vec<Verdict>) {
        let mut buffers = Vec::new();
        let has_graphs = self.has_graphs(sites);
        for verdict in sites.iter_mut() {
            let Scope::Site(key) = verdict.scope else {
                continue;
            };
            match self.find(verdict.class, &key) {
                Some((mut keeper, buffer)) => {
                    // Any code may need the next arena.
                    let is_own = key.layer != Layer::Python;
                    if is_own && matches!(keeper.how, How::Surplus { .. }) {
                        let stack = self.stacks.get(key.stack);
                        let code = native_code(&stack, &self.facts).unzip();
                        (keeper.line, keeper.package) = (code.0, code.1.flatten());
                    }
                    let buffer = buffer.filter(|_| leaks(verdict.class));
                    buffers.extend(buffer.map(|site| (Scope::Site(site), keeper.clone())));
                    replace(verdict, &keeper, &self.stacks.get(key.stack));
                    verdict.keeper = Some(keeper);
                }
                None => {
                    verdict.absent = self.absent(&key);
                    let is_of_torch = self.has_frame(&key, graphs::is_of_torch);
                    let unknown = match has_graphs && is_of_torch && leaks(verdict.class) {
                        true => Advice::DropLikelyGraph,
                        false => self.without_keeper(&key, verdict.absent.as_ref()),
                    };
                    let asks = |advice: &&mut Advice| **advice == Advice::FindKeeper;
                    let asking = verdict.next.iter_mut().filter(asks);
                    asking.for_each(|advice| *advice = unknown);
                }
            }
        }
        merge(sites, &buffers);
    }

    /// Whether operations of graphs of autograd are among what leaks.
    fn has_graphs(&self, sites: &[Verdict]) -> bool {
        sites.iter().any(|site| {
            matches!(&site.scope, Scope::Site(key)
                if leaks(site.class) && self.has_frame(key, graphs::records_operation))
        })
    }

    fn has_frame(&self, site: &SiteKey, is: fn(&Frame) -> bool) -> bool {
        self.stacks.get(site.stack).frames().any(is)
    }

    /// Why the keeper of a site is not known; `None` if the recording does not say.
    fn absent(&self, key: &SiteKey) -> Option<Absent> {
        let row = &self.series.row;
        let is_searched = || self.holders.keys().any(|site| site.process == key.process);
        match (self.holders.get(key), self.unsearched) {
            (Some(of), _) if of.ways.is_empty() => of.unknown.map(Absent::Unknown),
            (Some(of), _) if seen::are_behind_others(of) => Some(Absent::BehindOthers),
            (Some(of), _) if seen::are_known(of) => Some(Absent::Several),
            (Some(of), _) => of.unknown.map(Absent::Unknown),
            (None, Some(why)) => Some(Absent::Unsearched(why.clone())),
            (None, None) if is_searched() => Some(Absent::OthersFirst),
            (None, None) => row.ended_ns.map(|_| Absent::Ended),
        }
    }

    /// What to do about that.
    fn without_keeper(&self, key: &SiteKey, why: Option<&Absent>) -> Advice {
        let can_attach = key.layer != Layer::Vm && self.series.row.origin != Origin::Attached;
        match why {
            Some(Absent::Unknown(_)) => Advice::FindUnseenKeeper,
            Some(Absent::Unsearched(Unsearched::NotRequested)) => Advice::SearchHolders,
            Some(Absent::Unsearched(Unsearched::CutShort)) => Advice::AwaitSearch,
            Some(Absent::Ended) | None if can_attach => Advice::Attach,
            _ => Advice::FindKeeper,
        }
    }

    fn find(&self, class: Class, key: &SiteKey) -> Option<Found> {
        let seen = self.holders.get(key);
        let seen = seen.and_then(|holders| seen::keeper(holders, self.stacks));
        // A certain keeper is a fact for every kind of growth.
        let is_open = matches!(class, Class::Undetermined | Class::Cache);
        let is_of_leak = leaks(class) || class == Class::MappingLeak;
        let seen = seen.filter(|(keeper, _)| is_of_leak || is_open && keeper.is_certain());
        let holders = self.holders.get(key);
        let is_answered = || holders.is_some_and(|of| !of.ways.is_empty());
        // It only seems so.
        let is_of_search = |keeper: &Keeper| self.copied.is_none() || !seems_leaked(keeper);
        let seen = seen.filter(|(keeper, _)| is_of_search(keeper));
        match seen {
            // Its memory may have moved between the end of the recording and the search.
            Some((keeper, _)) if keeper.lacks_line() => Some(self.with_line(keeper, class, key)),
            Some(seen) => Some(seen),
            None if is_of_leak && key.layer == Layer::Python && self.copied.is_some() => {
                self.copied.clone().map(|keeper| (keeper, None))
            }
            // The search saw what holds objects in these arenas, and it is not one container.
            None if key.layer == Layer::Python && is_answered() => None,
            // What was seen of some blocks is better than a guess about all.
            None if holders.is_some_and(seen::has_path) => None,
            None => self.guess(class, key),
        }
    }

    /// Adds the line that fills a container, if its growth shows that line.
    fn with_line(&self, mut keeper: Keeper, class: Class, key: &SiteKey) -> Found {
        let container = keeper.container();
        let alike = container.and_then(|of| guessed::filled_like(of, self.series, self.stacks));
        // Another container that grew as well does not show who fills one of Python's.
        let object = container.filter(|of| of.kind == StepKind::Object);
        let guessed = || {
            let (guess, buffer) = self.guess(class, key)?;
            let is_alike = match (&guess.how, object) {
                // `collections.deque`
                (How::Container(name), Some(object)) => {
                    let of_type = object.type_name.as_deref().unwrap_or_default();
                    of_type.rsplit('.').next() == Some(name)
                }
                (_, object) => object.is_none(),
            };
            Some((guess.line.filter(|_| is_alike)?, buffer?))
        };
        let (line, buffer) = alike.or_else(guessed).unzip();
        keeper.line = line;
        (keeper, buffer)
    }

    fn guess(&self, class: Class, key: &SiteKey) -> Option<Found> {
        let mut sites = self.series.sites.iter();
        let leak = sites.find(|site| leaks(class) && site.key == *key)?;
        let (keeper, buffer) = guessed::keeper(leak, self.series, self.window, self.stacks)?;
        Some((keeper, Some(buffer)))
    }
}

/// Whether what keeps something is a reference that nothing seen in memory has.
fn seems_leaked(keeper: &Keeper) -> bool {
    matches!(keeper.how, How::Surplus { .. })
}

fn leaks(class: Class) -> bool {
    matches!(class, Class::Leak | Class::GpuLeak | Class::Pinned)
}

/// Advises what to do about the keeper of Python's objects: for arenas, and for a leak that no site is behind.
pub(super) fn advise(processes: &mut [Verdict], sites: &mut [Verdict], types: &Types) {
    let keeper = types.keeper.as_ref();
    let Some(remedy) = keeper.and_then(|of| remedy(of, Some(Language::Python))) else {
        return;
    };
    let is_arena =
        |of: &Verdict| matches!(&of.scope, Scope::Site(key) if key.layer == Layer::Python);
    for site in sites.iter_mut().filter(|of| is_arena(of)) {
        for next in &mut site.next {
            *next = next.with_keeper(remedy, true);
        }
    }
    if sites.iter().any(|site| site.class == Class::Leak) {
        return;
    }
    for process in processes.iter_mut().filter(|of| of.class == Class::Leak) {
        process.next = vec![remedy];
    }
}

/// Puts the remedy for a certain keeper first where a process's mappings grow, if it keeps most of what grows.
pub(super) fn advise_on_mappings(processes: &mut [Verdict], sites: &[Verdict]) {
    let grows = |of: &&mut Verdict| {
        let classes = [Class::Shmem, Class::PageCache, Class::MappingLeak];
        of.scope == Scope::Process && classes.contains(&of.class)
    };
    for process in processes.iter_mut().filter(grows) {
        let Some(rate) = process.rate.filter(|rate| *rate > 0.0) else {
            continue;
        };
        let least = OF_RESIDUAL * rate;
        let mut sites = sites.iter();
        let found = sites.find(|site| {
            let is_mapping = matches!(&site.scope, Scope::Site(key) if key.layer == Layer::Vm);
            let is_kept = site.keeper.as_ref().is_some_and(Keeper::is_certain);
            let leaks = matches!(site.class, Class::Leak | Class::MappingLeak);
            is_mapping && is_kept && leaks && site.rate.unwrap_or(0.0) >= least
        });
        process
            .next
            .splice(0..0, found.and_then(|of| of.next.first().copied()));
    }
}

/// Replaces the advice to find the keeper with advice on this keeper.
fn replace(verdict: &mut Verdict, keeper: &Keeper, stack: &Stack) {
    let frames: Vec<&Frame> = stack.of_caller().collect();
    let language = language(stack.frames(), own_line(&frames));
    let advice = match keeper.how {
        // That its blocks point to each other is a library's own affair.
        How::LostCycle { .. } if library_call(&frames).is_some() => {
            Some(Advice::FreeInTime(language))
        }
        _ => remedy(keeper, language),
    };
    if let Some(advice) = advice {
        let is_proven = !keeper.is_likely();
        for next in &mut verdict.next {
            *next = next.with_keeper(advice, is_proven);
        }
    }
}

fn merge(sites: &mut Vec<Verdict>, buffers: &[(Scope, Keeper)]) {
    // The buffer of a container that keeps leaked blocks is part of that leak.
    let buffer = |of: &Verdict| buffers.iter().find(|(scope, _)| *scope == of.scope);
    sites.retain(|verdict| verdict.class != Class::Cache || buffer(verdict).is_none());
    // What was seen of that container is better than a guess.
    for verdict in sites {
        let guessed = |of: &Keeper| matches!(of.how, How::Container(_));
        if verdict.keeper.as_ref().is_some_and(guessed)
            && let Some((_, keeper)) = buffer(verdict)
        {
            verdict.keeper = Some(keeper.clone());
        }
    }
}
