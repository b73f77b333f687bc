//! What a server knows already. Servers add up the profiles of a time: allocations are sent once, and the live memory of
//! a process until it ends.

use std::collections::HashSet;

use crate::{
    hash::FastMap,
    ledger::{ProcessId, SiteKey},
    recording::Snapshot,
};

/// The state of the server after a push.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// Allocated bytes and blocks since the start.
    sites: FastMap<SiteKey, (u64, u64)>,
    ended: HashSet<ProcessId>,
    /// CLOCK_MONOTONIC ns.
    time_ns: Option<u64>,
}

impl Sent {
    /// Leaves in a snapshot what is not sent yet: allocations since the last push, and the live memory of processes that
    /// have run since. Returns the state once the snapshot is sent.
    ///
    /// A process that is folded takes its sites to a group, which would seem to allocate them again.
    pub(super) fn leave_out(&self, snapshot: &mut Snapshot) -> Sent {
        let mut groups = HashSet::new();
        let mut ended = HashSet::new();
        for process in &snapshot.processes {
            let row = &process.row;
            if row.is_group() {
                groups.insert(row.id);
            } else if row.ended_ns.is_some() {
                ended.insert(row.id);
            }
        }
        let mut sites = FastMap::default();
        sites.reserve(snapshot.sites.len());
        for site in &snapshot.sites {
            let totals = &site.totals;
            sites.insert(site.key, (totals.alloc_bytes, totals.alloc_count));
        }
        let mut folded: FastMap<SiteKey, (u64, u64)> = FastMap::default();
        for (key, (bytes, count)) in &self.sites {
            if !sites.contains_key(key) {
                let sum = folded.entry(without_process(*key)).or_default();
                sum.0 += bytes;
                sum.1 += count;
            }
        }
        for site in &mut snapshot.sites {
            let process = site.key.process;
            let totals = &mut site.totals;
            let known = self.sites.get(&site.key).copied().unwrap_or_default();
            totals.alloc_bytes = totals.alloc_bytes.saturating_sub(known.0);
            totals.alloc_count = totals.alloc_count.saturating_sub(known.1);
            if groups.contains(&process)
                && let Some(of) = folded.get_mut(&without_process(site.key))
            {
                take(&mut totals.alloc_bytes, &mut of.0);
                take(&mut totals.alloc_count, &mut of.1);
            }
            if groups.contains(&process) || self.ended.contains(&process) {
                (totals.live_bytes, totals.live_count) = (0, 0);
            }
        }
        let sent = Sent {
            sites,
            ended,
            time_ns: snapshot.time_ns,
        };
        // The profile is about the time since the last one.
        if let Some(last_ns) = self.time_ns {
            let meta = &mut snapshot.meta;
            meta.started_unix_ns += last_ns.saturating_sub(meta.started_ns);
            meta.started_ns = last_ns;
        }
        sent
    }
}

fn without_process(key: SiteKey) -> SiteKey {
    SiteKey {
        process: ProcessId(0),
        ..key
    }
}

/// Takes as much as possible of `known` off a figure.
fn take(figure: &mut u64, known: &mut u64) {
    let part = (*figure).min(*known);
    *figure -= part;
    *known -= part;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::fixture;

    /// Allocated and live bytes of each process.
    fn bytes(snapshot: &Snapshot) -> Vec<(u32, u64, u64)> {
        let processes = snapshot.processes.iter().map(|process| {
            let id = process.row.id;
            let sites = snapshot.sites.iter().filter(|of| of.key.process == id);
            let sums = sites.fold((0, 0), |(allocated, live), of| {
                (
                    allocated + of.totals.alloc_bytes,
                    live + of.totals.live_bytes,
                )
            });
            (id.0, sums.0, sums.1)
        });
        processes.collect()
    }

    #[test]
    fn allocations_are_sent_once_and_live_memory_until_the_end_of_its_process() {
        let whole = bytes(&fixture::snapshot());
        let mut first = fixture::snapshot();
        let sent = Sent::default().leave_out(&mut first);
        assert_eq!(bytes(&first), whole);

        let mut second = fixture::snapshot();
        second.sites[1].totals.alloc_bytes += 1000;
        second.sites[1].totals.live_bytes += 500;
        second.time_ns = second.time_ns.map(|time| time + 7);
        let parent = whole[0].2 + 500;
        sent.leave_out(&mut second);
        assert_eq!(bytes(&second), [(1, 1000, parent), (2, 0, 0)]);
    }

    #[test]
    fn a_profile_is_about_the_time_since_the_last_one() {
        let mut first = fixture::snapshot();
        let began = first.meta.started_unix_ns;
        let sent = Sent::default().leave_out(&mut first);
        assert_eq!(first.meta.started_unix_ns, began);
        let mut second = fixture::snapshot();
        sent.leave_out(&mut second);
        assert_eq!(second.meta.started_unix_ns, began + 10_000_000_000);
        assert_eq!(Some(second.meta.started_ns), first.time_ns);
    }

    #[test]
    fn folding_allocates_nothing() {
        let mut first = fixture::snapshot();
        let sent = Sent::default().leave_out(&mut first);
        // The child becomes a group, which has something of its own too.
        let mut second = fixture::snapshot();
        second.processes[1].row.id = ProcessId(9);
        second.processes[1].row.folded = Some(2);
        second.sites[3].key.process = ProcessId(9);
        second.sites[3].totals.alloc_bytes += 30;
        let sent = sent.leave_out(&mut second);
        let parent = bytes(&first)[0].2;
        assert_eq!(bytes(&second), [(1, 0, parent), (9, 30, 0)]);

        let mut third = fixture::snapshot();
        third.processes[1].row.id = ProcessId(9);
        third.processes[1].row.folded = Some(3);
        third.sites[3].key.process = ProcessId(9);
        third.sites[3].totals.alloc_bytes += 35;
        sent.leave_out(&mut third);
        assert_eq!(bytes(&third)[1], (9, 5, 0));
    }
}
