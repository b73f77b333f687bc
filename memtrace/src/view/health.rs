//! Completeness of the recorded stacks: allocations by the end of their stack's walk. Pure.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use super::Filter;
use crate::recording::{Snapshot, Stack};
use memtrace_common::unwind::End;

/// Allocations by the end of their stack's walk; `None`: there is no stack.
pub(crate) type Counts = Vec<(Option<End>, u64)>;

/// Label for the module of a stack whose outermost frame is in no file, or that has no frames.
pub(crate) const UNKNOWN_MODULE: &str = "[unknown]";

/// The stacks of all recorded allocations, each allocation counted once, in the process that made
/// it: blocks that a child inherits are not allocations of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    pub complete: u64,
    pub truncated: u64,
    /// Every other end, zero included, in the order of [`End::ALL`]; then those without a stack.
    pub failed: Counts,
    /// The modules in which incomplete stacks end; most allocations first.
    pub modules: Vec<Module>,
}

/// A file in which incomplete stacks end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Module {
    /// Path, or [`UNKNOWN_MODULE`].
    pub path: String,
    /// More than zero each, in the order of [`Health::failed`], truncated ones first.
    pub ends: Counts,
}

impl Health {
    /// Judges the allocations of the processes and layers that `filter` leaves in; its other
    /// choices are about blocks, not about walks.
    pub(crate) fn of(snapshot: &Snapshot, filter: &Filter) -> Health {
        let processes: HashMap<_, _> = snapshot
            .processes
            .iter()
            .map(|process| (process.row.id, process))
            .collect();
        let mut all = Tally::default();
        let mut modules: BTreeMap<&str, Tally> = BTreeMap::new();
        for site in &snapshot.sites {
            let process = processes.get(&site.key.process).copied();
            let allocations = site.totals.alloc_count;
            if allocations == 0 || !filter.covers(process, site.key.layer) {
                continue;
            }
            let stack = snapshot.stacks.get(site.key.stack);
            all.add(stack.end(), allocations);
            if stack.end() != Some(End::Complete) {
                let module = modules.entry(module(stack)).or_default();
                module.add(stack.end(), allocations);
            }
        }
        let mut modules: Vec<_> = modules
            .into_iter()
            .map(|(path, tally)| Module {
                path: path.to_owned(),
                ends: tally.counts().filter(|(_, count)| *count > 0).collect(),
            })
            .collect();
        // Stable: equal ones stay in order of their paths.
        modules.sort_by_key(|module| Reverse(module.total()));
        let failed = |end| !matches!(end, Some(End::Complete | End::Truncated));
        Health {
            complete: all.of(Some(End::Complete)),
            truncated: all.of(Some(End::Truncated)),
            failed: all.counts().filter(|(end, _)| failed(*end)).collect(),
            modules,
        }
    }

    /// All allocations.
    pub(crate) fn total(&self) -> u64 {
        self.failures()
            .saturating_add(self.complete)
            .saturating_add(self.truncated)
    }

    /// Allocations whose stack is neither complete nor truncated.
    pub(crate) fn failures(&self) -> u64 {
        sum(&self.failed)
    }
}

impl Module {
    /// Allocations whose stack ends here.
    pub(crate) fn total(&self) -> u64 {
        sum(&self.ends)
    }
}

/// Stable name of an end in reports and JSON; that of a stack that is not there, too.
pub(crate) fn name(end: Option<End>) -> &'static str {
    end.map_or("no_stack", End::name)
}

/// The path of the file in which the walk ended: that of the outermost frame.
pub(crate) fn module(stack: Stack<'_>) -> &str {
    stack
        .outermost()
        .and_then(|frame| frame.module.as_deref())
        .unwrap_or(UNKNOWN_MODULE)
}

/// Allocations by end, in the order of reports: that of [`End::ALL`], then those without a stack.
#[derive(Default)]
struct Tally([u64; End::ALL.len() + 1]);

impl Tally {
    fn add(&mut self, end: Option<End>, allocations: u64) {
        let count = &mut self.0[slot(end)];
        *count = count.saturating_add(allocations);
    }

    fn of(&self, end: Option<End>) -> u64 {
        self.0[slot(end)]
    }

    fn counts(&self) -> impl Iterator<Item = (Option<End>, u64)> {
        let ends = End::ALL.into_iter().map(Some).chain([None]);
        ends.zip(self.0)
    }
}

fn slot(end: Option<End>) -> usize {
    end.map_or(End::ALL.len(), |end| end as usize)
}

fn sum(counts: &Counts) -> u64 {
    let counts = counts.iter().map(|(_, count)| *count);
    counts.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{event::Layer, view::fixture};

    fn nonzero(counts: &Counts) -> Counts {
        counts.iter().copied().filter(|(_, n)| *n > 0).collect()
    }

    #[test]
    fn allocations_are_counted_by_how_their_stack_ended() {
        let health = Health::of(&fixture::snapshot(), &Filter::default());
        // Allocations per site: 2 complete ones, 5 and 1 that end in leaker, 11 without a stack.
        assert_eq!((health.complete, health.truncated), (2, 5));
        assert_eq!(nonzero(&health.failed), [(Some(End::NoRow), 1), (None, 11)]);
        assert_eq!((health.failures(), health.total()), (12, 19));
        let modules: Vec<_> = health
            .modules
            .iter()
            .map(|module| (module.path.as_str(), module.ends.clone()))
            .collect();
        let leaker = vec![(Some(End::Truncated), 5), (Some(End::NoRow), 1)];
        assert_eq!(
            modules,
            [
                (UNKNOWN_MODULE, vec![(None, 11)]),
                ("/usr/bin/leaker", leaker)
            ]
        );
    }

    #[test]
    fn inherited_blocks_are_not_walks_of_the_child() {
        let mut snapshot = fixture::snapshot();
        let before = Health::of(&snapshot, &Filter::default());
        let mut inherited = snapshot.sites[1].clone();
        inherited.key.process = snapshot.sites[3].key.process;
        inherited.totals = crate::ledger::Totals {
            inherited_bytes: 1 << 20,
            inherited_count: 4,
            ..Default::default()
        };
        snapshot.sites.push(inherited);
        assert_eq!(Health::of(&snapshot, &Filter::default()), before);
    }

    #[test]
    fn processes_and_layers_narrow_the_choice_block_sizes_do_not() {
        let snapshot = fixture::snapshot();
        let total = |filter| Health::of(&snapshot, &filter).total();
        let child = Filter {
            pid: Some(fixture::CHILD),
            ..Filter::default()
        };
        assert_eq!(total(child), 11);
        let vm = Filter {
            layer: Some(Layer::Vm),
            ..Filter::default()
        };
        assert_eq!(total(vm), 2);
        let large = Filter {
            min_bytes: Some(1 << 30),
            ..Filter::default()
        };
        assert_eq!(total(large), 19);
    }

    #[test]
    fn figures_of_a_damaged_recording_do_not_overflow() {
        let mut snapshot = fixture::snapshot();
        for site in &mut snapshot.sites {
            site.totals.alloc_count = u64::MAX;
        }
        assert_eq!(Health::of(&snapshot, &Filter::default()).total(), u64::MAX);
    }
}
