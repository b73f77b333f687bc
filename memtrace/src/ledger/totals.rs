//! The books: figures of every site and every layer of every process. Knows sites and sizes, not
//! addresses.
//!
//! # Peaks
//! To keep each site's size at its layer's peak would cost a walk over all sites at each new peak.
//! Instead every peak of a layer has a number, its epoch, and each site keeps its figures at one
//! peak and that peak's epoch. Invariant: a site whose epoch is its layer's has the figures of the
//! latest peak in `at_peak_*`; a site whose epoch is older has not changed since the latest peak,
//! so its live figures are those of the peak. [`Book::touch`] keeps it so: before a site changes,
//! it moves the site to the layer's epoch.

use super::{
    Changes, Counts, LayerTotals, ProcessId, SiteKey, SiteTotals, Totals,
    device_totals::DeviceBook,
    lifetimes::{LIFETIME_BUCKETS, bucket_of, without_zeros_at_end},
    lineage::Ancestor,
    table::Block,
};
use crate::{
    event::{Device, Layer, StackId},
    hash::FastMap,
};

/// Effect of a release on the number of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The block stays, smaller.
    No,
    /// The block ended after this many ns.
    After(u64),
    /// The block ended at an unknown time.
    Sometime,
}

pub(super) struct SiteEntry {
    pub(super) key: SiteKey,
    /// `None` once the process has ended and its last changes were taken: the
    /// key lives on while blocks that children inherited may refer to it.
    pub(super) tally: Option<Box<Tally>>,
}

#[derive(Default)]
pub(super) struct Tally {
    pub(super) totals: Totals,
    pub(super) at_peak_bytes: u64,
    pub(super) at_peak_count: u64,
    pub(super) peak_epoch: u64,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    /// Allocated at the first release: sites that never release, above all
    /// those that are only inherited, stay small.
    pub(super) lifetimes: Option<Box<[u64; LIFETIME_BUCKETS]>>,
    changed: bool,
    /// Already reported at least once.
    reported: bool,
}

#[derive(Default)]
pub(super) struct Account {
    pub(super) layers: [(LayerTotals, bool); Layer::ALL.len()],
    /// Indices of the process's sites.
    pub(super) sites: Vec<u32>,
}

/// All sites and all processes.
#[derive(Default)]
pub(super) struct Book {
    pub(super) sites: Vec<SiteEntry>,
    /// Indices in `sites` that can be given to new ones.
    free_sites: Vec<u32>,
    pub(super) by_key: FastMap<SiteKey, u32>,
    /// Accounts of processes that run, or whose last changes were not taken yet, and of groups.
    pub(super) accounts: FastMap<ProcessId, Account>,
    /// Processes so far.
    processes: u32,
    changed_sites: Vec<u32>,
    changed_layers: Vec<(ProcessId, Layer)>,
    ended: Vec<(ProcessId, Ancestor)>,
    /// Sites of ended processes whose blocks descendants may hold.
    orphaned: Vec<(Ancestor, Vec<u32>)>,
    pub(super) devices: DeviceBook,
    pub(super) counts: Counts,
}

impl Book {
    pub(super) fn new_process(&mut self) -> ProcessId {
        self.processes += 1;
        let process = ProcessId(self.processes);
        self.accounts.insert(process, Account::default());
        process
    }

    /// The process has ended: its figures are final. Descendants may still hold blocks inherited
    /// from it.
    pub(super) fn end_process(&mut self, process: ProcessId, ancestor: Ancestor) {
        self.ended.push((process, ancestor));
    }

    pub(super) fn key(&self, site: u32) -> SiteKey {
        self.sites[site as usize].key
    }

    /// The index of a site of a running process.
    pub(super) fn site(&mut self, key: SiteKey) -> u32 {
        if let Some(site) = self.by_key.get(&key) {
            return *site;
        }
        let account = self.accounts.entry(key.process).or_default();
        // It held nothing at the latest peak, so it begins at that epoch.
        let tally = Tally {
            peak_epoch: account.layers[key.layer as usize].0.peak_epoch,
            ..Tally::default()
        };
        let new = SiteEntry {
            key,
            tally: Some(Box::new(tally)),
        };
        let site = match self.free_sites.pop() {
            Some(site) => {
                self.sites[site as usize] = new;
                site
            }
            None => {
                self.sites.push(new);
                self.sites.len() as u32 - 1
            }
        };
        account.sites.push(site);
        self.by_key.insert(key, site);
        site
    }

    /// A block of `size` bytes was allocated.
    pub(super) fn allocate(&mut self, site: u32, size: u64, time_ns: u64) {
        let Some((tally, layer)) = self.touch(site) else {
            return;
        };
        if tally.totals.alloc_count == 0 {
            tally.first_ns = time_ns;
        }
        // Threads share a site, and their times can differ by a tick of the kernel.
        tally.first_ns = tally.first_ns.min(time_ns);
        tally.last_ns = tally.last_ns.max(time_ns);
        tally.totals.gain(size, time_ns);
        if layer.totals.gain(size, time_ns) {
            layer.peak_epoch += 1;
        }
        let key = self.key(site);
        if key.layer.of_device() {
            self.devices.allocated(&key, size);
        }
    }

    /// `process` released `bytes` of a block of `site`, which is its own or inherited.
    pub(super) fn release(&mut self, process: ProcessId, site: u32, bytes: u64, ended: Ended) {
        let blocks = u64::from(ended != Ended::No);
        let (site, own) = self.resolve(process, site);
        let Some((tally, layer)) = self.touch(site) else {
            return;
        };
        for totals in [&mut tally.totals, &mut layer.totals] {
            if own {
                totals.free_bytes += bytes;
                totals.free_count += blocks;
                totals.live_bytes -= bytes;
                totals.live_count -= blocks;
            } else {
                totals.inherited_bytes -= bytes;
                totals.inherited_count -= blocks;
            }
        }
        if own && let Ended::After(lifetime_ns) = ended {
            let lifetimes = tally
                .lifetimes
                .get_or_insert_with(|| Box::new([0; LIFETIME_BUCKETS]));
            lifetimes[bucket_of(lifetime_ns)] += 1;
        }
        let key = self.key(site);
        if key.layer.of_device() {
            self.devices.released(&key, bytes);
        }
    }

    /// A live block turns out to be on `device`: moves it to its site there, as though it had been
    /// allocated there.
    pub(super) fn place(&mut self, block: &Block, device: Device) -> u32 {
        let Block {
            size,
            birth_ns,
            site,
            ..
        } = *block;
        let key = self.key(site);
        let right = self.site(SiteKey { device, ..key });
        let layer = &self.account(key.process).layers[key.layer as usize].0;
        // It was live at the layer's latest peak, at which both sites have figures once touched.
        let in_peak = birth_ns <= layer.totals.peak_ns;
        if let Some((tally, _)) = self.touch(site) {
            let totals = &mut tally.totals;
            totals.alloc_bytes -= size;
            totals.alloc_count -= 1;
            totals.live_bytes -= size;
            totals.live_count -= 1;
            if totals.alloc_count == 0 {
                totals.peak_bytes = 0;
                totals.peak_ns = 0;
            }
            if in_peak {
                tally.at_peak_bytes = tally.at_peak_bytes.saturating_sub(size);
                tally.at_peak_count = tally.at_peak_count.saturating_sub(1);
            }
        }
        if let Some((tally, _)) = self.touch(right) {
            let totals = &mut tally.totals;
            if totals.alloc_count == 0 || birth_ns < tally.first_ns {
                tally.first_ns = birth_ns;
            }
            tally.last_ns = tally.last_ns.max(birth_ns);
            totals.gain(size, birth_ns);
            if in_peak {
                tally.at_peak_bytes += size;
                tally.at_peak_count += 1;
            }
        }
        self.devices.released(&key, size);
        self.devices
            .allocated(&self.sites[right as usize].key, size);
        right
    }

    /// The number of pieces of `site`'s mappings that `process` holds changed from `before` to
    /// `after`, the bytes did not.
    pub(super) fn repiece(&mut self, process: ProcessId, site: u32, before: u64, after: u64) {
        if before == after {
            return;
        }
        let (site, own) = self.resolve(process, site);
        let Some((tally, layer)) = self.touch(site) else {
            return;
        };
        for totals in [&mut tally.totals, &mut layer.totals] {
            let count = if own {
                &mut totals.live_count
            } else {
                &mut totals.inherited_count
            };
            *count = *count + after - before;
        }
    }

    /// `added` and `removed` bytes of mappings from before attach.
    pub(super) fn before_attach(&mut self, process: ProcessId, added: u64, removed: u64) {
        let layer = self.touch_layer(process, Layer::Vm);
        layer.before_attach_bytes = layer.before_attach_bytes + added - removed;
    }

    /// `child` was forked from `parent`: all that the parent holds is inherited.
    pub(super) fn inherit(&mut self, parent: ProcessId, child: ProcessId) {
        for index in 0..self.account(parent).sites.len() {
            let index = self.account(parent).sites[index];
            let site = &self.sites[index as usize];
            let Some(tally) = site.tally.as_ref().filter(|_| !site.key.layer.of_device()) else {
                continue;
            };
            let bytes = tally.totals.live_bytes + tally.totals.inherited_bytes;
            let count = tally.totals.live_count + tally.totals.inherited_count;
            if bytes + count == 0 {
                continue;
            }
            let own = self.site(SiteKey {
                process: child,
                ..site.key
            });
            if let Some((tally, layer)) = self.touch(own) {
                for totals in [&mut tally.totals, &mut layer.totals] {
                    totals.inherited_bytes += bytes;
                    totals.inherited_count += count;
                }
            }
        }
        let known = self.account(parent).layers[Layer::Vm as usize].0;
        if known.before_attach_bytes > 0 {
            self.before_attach(child, known.before_attach_bytes, 0);
        }
    }

    /// The process's memory was replaced by exec.
    pub(super) fn clear_by_exec(&mut self, process: ProcessId) {
        self.devices.cleared(process);
        for index in 0..self.account(process).sites.len() {
            let site = self.account(process).sites[index];
            let held = self.sites[site as usize]
                .tally
                .as_ref()
                .is_some_and(|t| t.totals.live_count + t.totals.inherited_count > 0);
            if held && let Some((tally, _)) = self.touch(site) {
                tally.totals.clear_outstanding();
            }
        }
        for layer in Layer::ALL {
            // A layer that the program never used stays unmentioned.
            if self.account(process).layers[layer as usize]
                .0
                .holds_nothing()
            {
                continue;
            }
            let layer = self.touch_layer(process, layer);
            layer.cleared_by_exec_bytes += layer.totals.live_bytes;
            layer.cleared_by_exec_count += layer.totals.live_count;
            layer.totals.clear_outstanding();
            layer.before_attach_bytes = 0;
        }
    }

    pub(super) fn take_changes(&mut self) -> Changes {
        let mut changes = Changes {
            devices: self.devices.take_totals(),
            streams: self.devices.take_streams(),
            failures: self.devices.take_failures(),
            ..Changes::default()
        };
        for index in std::mem::take(&mut self.changed_sites) {
            let site = &mut self.sites[index as usize];
            if let Some(tally) = &mut site.tally {
                tally.changed = false;
                // A site that was never reported and has become empty is skipped.
                tally.reported |= tally.totals != Totals::default();
                if tally.reported {
                    changes.sites.push((site.key, tally.site_totals()));
                }
            }
        }
        for (process, layer) in std::mem::take(&mut self.changed_layers) {
            // One that was folded since has none.
            if let Some(account) = self.accounts.get_mut(&process)
                && let (totals, changed @ true) = &mut account.layers[layer as usize]
            {
                *changed = false;
                changes.layers.push(((process, layer), *totals));
            }
        }
        for (process, ancestor) in std::mem::take(&mut self.ended) {
            self.devices.forget(process);
            if let Some(account) = self.accounts.remove(&process) {
                self.close(&account.sites);
                self.orphaned.push((ancestor, account.sites));
            }
        }
        self.free_orphans();
        changes
    }

    /// The last changes of sites were taken.
    fn close(&mut self, sites: &[u32]) {
        for index in sites {
            let site = &mut self.sites[*index as usize];
            site.tally = None;
            self.by_key.remove(&site.key);
        }
    }

    /// Reuses the sites of ended processes that nothing refers to any more.
    fn free_orphans(&mut self) {
        let free = &mut self.free_sites;
        self.orphaned.retain(|(ancestor, sites)| {
            if ancestor.has_descendants() {
                return true;
            }
            free.extend(sites);
            false
        });
    }

    /// Sites that are kept, used or not.
    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        self.sites.len()
    }

    fn account(&mut self, process: ProcessId) -> &mut Account {
        self.accounts.entry(process).or_default()
    }

    /// `process`'s own site for a block of `site`, and whether the block is its own (otherwise it
    /// is inherited, and `site` an ancestor's).
    fn resolve(&mut self, process: ProcessId, site: u32) -> (u32, bool) {
        let key = self.key(site);
        if key.process == process {
            return (site, true);
        }
        (self.site(SiteKey { process, ..key }), false)
    }

    /// A site that is about to change and its layer, both marked as changed.
    /// `None` for a site whose process's last figures were taken.
    pub(super) fn touch(&mut self, index: u32) -> Option<(&mut Tally, &mut LayerTotals)> {
        let site = &mut self.sites[index as usize];
        let key = site.key;
        let tally = site.tally.as_deref_mut()?;
        let account = self.accounts.entry(key.process).or_default();
        let (layer, layer_changed) = &mut account.layers[key.layer as usize];
        if !*layer_changed {
            *layer_changed = true;
            self.changed_layers.push((key.process, key.layer));
        }
        if !tally.changed {
            tally.changed = true;
            self.changed_sites.push(index);
        }
        if tally.peak_epoch != layer.peak_epoch {
            tally.at_peak_bytes = tally.totals.live_bytes;
            tally.at_peak_count = tally.totals.live_count;
            tally.peak_epoch = layer.peak_epoch;
        }
        Some((tally, layer))
    }

    pub(super) fn touch_layer(&mut self, process: ProcessId, layer: Layer) -> &mut LayerTotals {
        let account = self.accounts.entry(process).or_default();
        let (totals, changed) = &mut account.layers[layer as usize];
        if !*changed {
            *changed = true;
            self.changed_layers.push((process, layer));
        }
        totals
    }
}

impl Tally {
    fn site_totals(&self) -> SiteTotals {
        SiteTotals {
            totals: self.totals,
            at_peak_bytes: self.at_peak_bytes,
            at_peak_count: self.at_peak_count,
            peak_epoch: self.peak_epoch,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            lifetimes: self
                .lifetimes
                .as_deref()
                .map_or_else(Box::default, |counts| without_zeros_at_end(counts)),
        }
    }
}

/// Key of a heap-like layer's site.
pub(super) fn block_site(process: ProcessId, layer: Layer, stack: StackId) -> SiteKey {
    SiteKey {
        process,
        layer,
        stack,
        by_allocator: false,
        device: None,
    }
}
