//! Lines that a finding names although no verdict blames them: where to look first.

use super::processes::{place, replaces_older};
use crate::{
    analysis::verdict::{Class, Diagnosis, Keeper, Verdict, keeper_of},
    frames::{Frame, own_line},
    ledger::SiteKey,
};

/// A line to look at, which is not proven to be at fault.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Named<'a> {
    /// Its memory grows most.
    Largest {
        line: &'a Frame,
        /// Bytes per second.
        rate: f64,
        /// If it is certain.
        keeper: Option<Box<Keeper>>,
    },
    /// It maps and unmaps about as much, bytes per second, as the machine's shared memory rises by.
    MapsShared { line: &'a Frame, rate: f64 },
    /// It starts the child processes.
    StartsProcesses(&'a Frame),
    /// It creates the threads.
    CreatesThreads(&'a Frame),
}

impl<'a> Named<'a> {
    pub(crate) fn line(&self) -> &'a Frame {
        match self {
            Named::Largest { line, .. } | Named::MapsShared { line, .. } => line,
            Named::StartsProcesses(line) | Named::CreatesThreads(line) => line,
        }
    }

    pub(crate) fn keeper(&self) -> Option<&Keeper> {
        match self {
            Named::Largest { keeper, .. } => keeper.as_deref(),
            Named::MapsShared { .. } | Named::StartsProcesses(_) | Named::CreatesThreads(_) => None,
        }
    }
}

/// Shares of a process's growth at a line that is named as the largest; the most if the process hardly grows.
const LEAST_NAMED: f64 = 0.05;
const MOST_NAMED: f64 = 1.25;

/// The line to look at first for a process whose sites are not to blame.
pub(super) fn named<'a>(found: &'a Diagnosis, process: &Verdict) -> Option<Named<'a>> {
    let mut accounts = found.accounts.iter();
    let of_process = accounts.find(|of| of.process == process.process)?.named;
    let frame = |site: SiteKey| {
        let frames: Vec<&Frame> = found.stacks.get(site.stack).of_caller().collect();
        own_line(&frames)
    };
    match process.class {
        Class::None | Class::MachineShmem if let Some((site, rate)) = of_process.maps_shared => {
            frame(site).map(|line| Named::MapsShared { line, rate })
        }
        Class::ThreadChurn => frame(of_process.creates_threads?).map(Named::CreatesThreads),
        Class::ProcessLeak => frame(of_process.starts_processes?).map(Named::StartsProcesses),
        // Not memory in use.
        Class::FdLeak | Class::Retention | Class::MadvFree | Class::Thp | Class::CopyOnWrite => {
            None
        }
        class if class.is_of_machine() || place(process).is_some() => None,
        _ => {
            let (site, rate) = of_process.largest?;
            // More took the place of other memory, and much less is not what grows.
            let of_all = process.rate.filter(|all| *all > 0.0);
            let of_all = of_all.map_or(1.0, |all| rate / all);
            let is_flat = process.class == Class::None || replaces_older(found, site);
            if of_all < LEAST_NAMED || is_flat && of_all > MOST_NAMED {
                return None;
            }
            let keeper = found.holders.get(&site);
            let keeper = keeper.and_then(|of| keeper_of(of, &found.stacks));
            Some(Named::Largest {
                line: frame(site)?,
                rate,
                keeper: keeper
                    .map(|(of, _)| of)
                    .filter(|of| of.is_certain() && process.class != Class::None)
                    .map(Box::new),
            })
        }
    }
}
