//! Folding: the figures of ended processes are added to those of a group, so that the state kept is
//! proportional to the processes alive. See [`super::Ledger::fold`].

use super::{
    LayerTotals, ProcessId, SiteKey, Totals,
    lifetimes::LIFETIME_BUCKETS,
    totals::{Account, Book, Tally},
};
use crate::event::Layer;

impl Book {
    /// Moves a process's figures to `group`.
    pub(super) fn fold(&mut self, process: ProcessId, group: ProcessId) {
        let Some(account) = self.accounts.get_mut(&process) else {
            return;
        };
        let Account { layers, sites } = std::mem::take(account);
        let mut has_largest = [false; Layer::ALL.len()];
        for layer in Layer::ALL {
            let (ended, _) = layers[layer as usize];
            if ended == LayerTotals::default() {
                continue;
            }
            let whole = self.touch_layer(group, layer);
            has_largest[layer as usize] = ended.totals.peak_bytes > whole.totals.peak_bytes;
            whole.add(&ended);
        }
        self.forget_peaks(group, has_largest);
        for index in &sites {
            let site = &mut self.sites[*index as usize];
            let key = site.key;
            let Some(tally) = site.tally.take() else {
                continue;
            };
            self.by_key.remove(&key);
            // It became empty before it was ever reported.
            if tally.totals == Totals::default() {
                continue;
            }
            let (layer, _) = layers[key.layer as usize];
            let at_peak = has_largest[key.layer as usize].then(|| tally.at_peak(&layer));
            let whole = self.site(SiteKey {
                process: group,
                ..key
            });
            if let Some((whole, _)) = self.touch(whole) {
                whole.add(&tally);
                (whole.at_peak_bytes, whole.at_peak_count) =
                    at_peak.unwrap_or((whole.at_peak_bytes, whole.at_peak_count));
            }
        }
        // Its end frees them, once nothing refers to them.
        if let Some(account) = self.accounts.get_mut(&process) {
            account.sites = sites;
        }
    }

    /// Drops the figures that the group's largest process had at its peak: a larger process has
    /// joined.
    fn forget_peaks(&mut self, group: ProcessId, of: [bool; Layer::ALL.len()]) {
        let Some(account) = self.accounts.get(&group).filter(|_| of.contains(&true)) else {
            return;
        };
        for index in account.sites.clone() {
            let layer = self.key(index).layer;
            if of[layer as usize]
                && let Some((tally, _)) = self.touch(index)
            {
                (tally.at_peak_bytes, tally.at_peak_count) = (0, 0);
            }
        }
    }
}

impl Tally {
    /// Its figures at its layer's latest peak.
    fn at_peak(&self, layer: &LayerTotals) -> (u64, u64) {
        match self.peak_epoch == layer.peak_epoch {
            true => (self.at_peak_bytes, self.at_peak_count),
            false => (self.totals.live_bytes, self.totals.live_count),
        }
    }

    fn add(&mut self, ended: &Tally) {
        let is_first = self.totals.alloc_count == 0;
        if ended.totals.alloc_count > 0 {
            self.first_ns = match is_first {
                true => ended.first_ns,
                false => self.first_ns.min(ended.first_ns),
            };
            self.last_ns = self.last_ns.max(ended.last_ns);
        }
        self.totals.add_ended(&ended.totals);
        if let Some(more) = &ended.lifetimes {
            let counts = self
                .lifetimes
                .get_or_insert_with(|| Box::new([0; LIFETIME_BUCKETS]));
            for (count, more) in counts.iter_mut().zip(more.iter()) {
                *count += more;
            }
        }
    }
}

impl LayerTotals {
    fn add(&mut self, ended: &LayerTotals) {
        self.totals.add_ended(&ended.totals);
        self.before_attach_bytes += ended.before_attach_bytes;
        self.cleared_by_exec_bytes += ended.cleared_by_exec_bytes;
        self.cleared_by_exec_count += ended.cleared_by_exec_count;
    }
}

impl Totals {
    /// Sums, and the larger peak.
    fn add_ended(&mut self, ended: &Totals) {
        self.live_bytes += ended.live_bytes;
        self.live_count += ended.live_count;
        self.inherited_bytes += ended.inherited_bytes;
        self.inherited_count += ended.inherited_count;
        self.alloc_bytes += ended.alloc_bytes;
        self.alloc_count += ended.alloc_count;
        self.free_bytes += ended.free_bytes;
        self.free_count += ended.free_count;
        if ended.peak_bytes > self.peak_bytes {
            self.peak_bytes = ended.peak_bytes;
            self.peak_ns = ended.peak_ns;
        }
    }
}
