//! The holders of the blocks of growing sites: searched for at the end of a recording, in the memory of the processes
//! that still run, once they are free of probes and tracers.

use std::{cmp::Reverse, time::Duration};

use super::{
    census::{self, Grown},
    ending::Ending,
    growing::{self, Growing, Which},
    release::Released,
    running::Running,
    sink::{Message, Stopped},
};
use crate::{
    holders::{self, Examined, Known, OfSites, Reading},
    ledger::ProcessId,
    progress::Progress,
    recording::{Found, Unsearched, Way},
};

/// Least growth of Python's objects that is worth a search although no site grows, bytes, and most processes that are searched
/// for that.
const LEAST_BYTES: u64 = 32 << 10;
const WITH_TYPES_ONLY: usize = 4;

/// Shown while a search takes long.
const DOING: &str = "searching for what keeps the growing blocks; Ctrl-C skips it";

/// The result of the search for holders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Looked {
    /// Results of searches before the end, a line each.
    pub(super) early: Vec<String>,
    /// Sites whose blocks were searched for.
    sites: usize,
    /// Those with known holders, and those to whose blocks nothing points.
    found: usize,
    lost: usize,
    longest_stop: Duration,
    pub(crate) took: Duration,
    /// Searches that came to their end.
    searched: usize,
    /// Processes that could not be searched, and why.
    notes: Vec<String>,
    /// The user did not want to wait.
    is_cut_short: bool,
}

impl Looked {
    /// For people: the result, unless every search failed, and the processes that could not be searched.
    pub(crate) fn lines(&self) -> Vec<String> {
        let result = (self.searched > 0 || self.is_cut_short).then(|| self.result());
        let early = self.early.iter().cloned();
        early.chain(result).chain(self.notes.clone()).collect()
    }

    fn result(&self) -> String {
        let sites = match self.sites {
            0 => "the objects that grow in number".to_owned(),
            1 => "1 growing site".to_owned(),
            n => format!("{n} growing sites"),
        };
        let lost = match self.lost {
            0 => String::new(),
            lost => format!(", nothing points to the blocks of {lost}"),
        };
        let stop = self.longest_stop.as_secs_f64() * 1e3;
        let cut = match self.is_cut_short {
            true => "; ended early",
            false => "",
        };
        let found = match self.sites {
            0 => String::new(),
            _ => format!(", found them for {}", self.found),
        };
        format!("searched for the holders of {sites}{found}{lost} (longest stop {stop:.1} ms{cut})")
    }

    fn add(&mut self, tgid: u32, found: &Found<OfSites>) {
        self.searched += 1;
        for of in &found.holders.sites {
            // Elements of an array are a way each, but all that is lost is one.
            let is_held = |way: &Way| !way.held.is_lost();
            match of.ways.iter().any(is_held) {
                true => self.found += 1,
                false => self.lost += usize::from(!of.ways.is_empty()),
            }
        }
        self.longest_stop = self.longest_stop.max(found.longest_stop);
        self.took += found.took;
        let notes = found.notes.iter();
        self.notes
            .extend(notes.map(|note| format!("process {tgid}: {note}")));
    }
}

/// How to look.
pub(super) struct How {
    /// The time up to which the ledger is complete, CLOCK_MONOTONIC ns.
    pub(super) now_ns: u64,
    pub(super) redact: bool,
    pub(super) most_memory: Option<u64>,
}

impl Released {
    /// Searches for the holders of the blocks of growing sites, and records them. `None`: nothing grows. A failed
    /// search leaves a note about its process, and nothing else is lost.
    pub(super) fn look_for_holders(
        &mut self,
        how: &How,
        progress: &Progress,
        ending: &Ending,
    ) -> Option<Looked> {
        let mut chosen = growing::chosen(Which::Growing, &self.ledger, &self.running, how.now_ns);
        chosen.extend(self.with_types_only(&chosen, how.now_ns));
        if chosen.is_empty() && self.early.is_empty() {
            return None;
        }
        let mut looked = Looked {
            early: std::mem::take(&mut self.early),
            sites: chosen.iter().map(Growing::sites).sum(),
            ..Looked::default()
        };
        if chosen.is_empty() {
            return Some(looked);
        }
        progress.doing(DOING);
        let is_over = || ending.ends_search();
        for of in chosen {
            let running = of.running;
            looked.is_cut_short = is_over();
            if looked.is_cut_short {
                self.leave_out(&of, Unsearched::CutShort);
                continue;
            }
            match self.look(&of, how, &is_over) {
                Ok(mut found) => {
                    looked.add(running.tgid, &found);
                    let types = std::mem::take(&mut found.holders.types);
                    self.examined(running.process, types);
                    if self.record(found).is_err() {
                        // Completing the recording reports why.
                        break;
                    }
                }
                Err(holders::Error::Over) => self.leave_out(&of, Unsearched::CutShort),
                Err(error) => {
                    let tgid = running.tgid;
                    self.leave_out(&of, Unsearched::Failed(error.to_string()));
                    looked.notes.push(format!(
                        "cannot search for the holders of growing blocks of process {tgid}: {error}"
                    ));
                }
            }
        }
        looked.is_cut_short |= is_over();
        Some(looked)
    }

    /// Processes none of whose sites are searched for, but whose objects take more and more memory; the fastest few.
    fn with_types_only(&self, chosen: &[Growing], now_ns: u64) -> Vec<Growing> {
        let is_chosen = |running: &Running| {
            chosen
                .iter()
                .any(|of| of.running.process == running.process)
        };
        let running = self.running.iter().filter(|running| !is_chosen(running));
        let grown = running.map(|of| (census::bytes(self.grown(of.process)), *of));
        let mut much: Vec<(u64, Running)> =
            grown.filter(|(bytes, _)| *bytes >= LEAST_BYTES).collect();
        much.sort_by_key(|(bytes, _)| Reverse(*bytes));
        much.truncate(WITH_TYPES_ONLY);
        let much = much.into_iter();
        much.map(|(_, running)| Growing::without_sites(running, now_ns))
            .collect()
    }

    fn look(
        &self,
        of: &Growing,
        how: &How,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Found<OfSites>, holders::Error> {
        let tgid = of.running.tgid;
        let known = Known {
            blocks: &|| Box::new(self.ledger.heap_blocks(tgid)),
            of_devices: self.ledger.device_blocks(tgid),
            site_of: &|address| self.ledger.heap_site(tgid, address),
            redact: how.redact,
            most_memory: how.most_memory,
            is_over,
        };
        let wanted = of.wanted(&self.ledger);
        let types = census::searched(self.grown(of.running.process));
        holders::of_sites(tgid, &wanted, &types, known, Reading::Running)
    }

    /// The types that grow in a process.
    fn grown(&self, process: ProcessId) -> &[Grown] {
        let of_process = self.types.iter().find(|(of, ..)| *of == process);
        of_process.map_or(&[], |(_, _, grown)| grown)
    }

    /// Takes in what was found out about the types that grow in a process.
    fn examined(&mut self, process: ProcessId, types: Vec<Examined>) {
        let of_process = self.types.iter_mut().filter(|(of, ..)| *of == process);
        for (grown, found) in of_process.flat_map(|(_, _, grown)| grown).zip(types) {
            (grown.of.examined, grown.of.unreached) = (found.objects, found.unreached);
            grown.of.ways = found.ways;
        }
    }

    /// Records that a search was not requested.
    pub(super) fn look_for_none(&mut self, now_ns: u64) {
        for of in growing::chosen(Which::Growing, &self.ledger, &self.running, now_ns) {
            self.leave_out(&of, Unsearched::NotRequested);
        }
    }

    /// Records why a process is not searched. If that fails, completing the recording reports why.
    fn leave_out(&mut self, of: &Growing, why: Unsearched) {
        let process = of.running.process;
        let _ = self.sink.send(Message::Unsearched(process, why));
    }

    fn record(&mut self, found: Found<OfSites>) -> Result<(), Stopped> {
        let mut holders = found.holders.sites.into_iter();
        holders.try_for_each(|of| self.sink.send(Message::Holders(of)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_reports_the_result() {
        let mut looked = Looked {
            sites: 1,
            searched: 1,
            found: 1,
            longest_stop: Duration::from_micros(310),
            ..Looked::default()
        };
        assert_eq!(
            looked.lines(),
            ["searched for the holders of 1 growing site, found them for 1 (longest stop 0.3 ms)"]
        );
        (looked.sites, looked.lost, looked.is_cut_short) = (3, 1, true);
        let line = looked.result();
        let counts = "of 3 growing sites, found them for 1, nothing points to the blocks of 1 (";
        assert!(line.contains(counts), "{line}");
        assert!(line.ends_with("0.3 ms; ended early)"), "{line}");
    }

    #[test]
    fn a_search_that_failed_is_one_line() {
        let why = "cannot look for it".to_owned();
        let looked = Looked {
            sites: 1,
            notes: vec![why.clone()],
            ..Looked::default()
        };
        assert_eq!(looked.lines(), [why]);
    }
}
