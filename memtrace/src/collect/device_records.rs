//! Device memory: records of the kernel side as events, and the driver's functions that a process
//! found by asking for them.

use memtrace_common::{
    device::{self, Current},
    event::{Kind, flags},
    loss::Reason,
};

use super::{
    collector::{CollectError, Collector},
    location::{Location, ModuleIndex},
    modules::Module,
    sink::Message,
};
use crate::{
    bpf::{self, Attached},
    event::{Action, CacheReport, Device, Layer, OUT_OF_MEMORY, Pool, Source, StackId},
    probes::{Probe, device_libraries},
    process::memory,
    recording::{Fact, Origin, capacity_of},
};

impl Collector {
    /// The device of a call. A thread that never chose one uses the first. The choice of a thread
    /// that ran before tracing began is unknown: if its caching allocator reported only one device,
    /// that one is assumed.
    fn device(&mut self, tgid: u32, current: Current) -> Device {
        self.chosen_device(tgid, current).or_else(|| {
            let mut cached = self.processes.on_devices(tgid).cached.iter();
            let first = cached.next().copied();
            first.filter(|_| cached.next().is_none())
        })
    }

    /// The same, if it is known.
    fn chosen_device(&mut self, tgid: u32, current: Current) -> Device {
        let process = self.processes.get(tgid);
        let attached = process.is_none_or(|process| process.row.origin == Origin::Attached);
        let known = self.processes.on_devices(tgid);
        if let Some(index) = current.checked_sub(1) {
            return u8::try_from(index).ok();
        }
        (!attached || known.one).then_some(0)
    }

    pub(super) fn device_alloc(&mut self, alloc: device::Alloc) {
        let header = alloc.header;
        let Ok(layer) = Layer::try_from(header.layer) else {
            self.accounts.lost(Reason::Undecodable);
            return;
        };
        let stack = self.stack_id(alloc.stack);
        let by_cache = self.naming.calling_cache(layer, stack);
        let device = if by_cache.is_some() && alloc.error == 0 {
            // If unknown, its next block reports it.
            self.chosen_device(header.tgid, alloc.device)
        } else {
            self.device(header.tgid, alloc.device)
        };
        let device::Alloc { addr, size, .. } = alloc;
        let action = if alloc.error == 0 {
            let is = |flag| header.flags & flag != 0;
            Action::DeviceAlloc {
                layer,
                addr,
                size,
                stack,
                device,
                source: Source {
                    below: is(flags::BELOW),
                    by_cache,
                    stream_ordered: is(flags::STREAM_ORDERED),
                    physical: is(flags::PHYSICAL),
                },
            }
        } else {
            // A caching allocator tries again, as does a function that others call.
            let is_final = by_cache.is_none() && header.flags & flags::BELOW == 0;
            if is_final && alloc.error == OUT_OF_MEMORY && layer != Layer::Pinned {
                self.device_ran_out(header.tgid, header.time_ns);
            }
            Action::DeviceFailed {
                layer,
                size,
                stack,
                device,
                error: alloc.error,
                report: None,
            }
        };
        self.accounts.apply(&header, action);
    }

    pub(super) fn device_report(&mut self, block: device::Report) {
        let (Ok(device), Ok(layer)) = (
            u8::try_from(block.device),
            Layer::try_from(block.header.layer),
        ) else {
            self.accounts.lost(Reason::Undecodable);
            return;
        };
        self.processes
            .on_devices(block.header.tgid)
            .cached
            .insert(device);
        let stack = if block.size < 0 {
            StackId::UNKNOWN
        } else {
            self.stack_id(block.stack)
        };
        let size = u64::try_from(block.size).unwrap_or(0);
        let device = Some(device);
        let report = CacheReport {
            allocated: block.allocated,
            reserved: block.reserved,
        };
        let action = if block.addr == 0 && size > 0 {
            self.device_ran_out(block.header.tgid, block.header.time_ns);
            Action::DeviceFailed {
                layer,
                size,
                stack,
                device,
                error: OUT_OF_MEMORY,
                report: Some(report),
            }
        } else {
            Action::CachedBlock {
                layer,
                addr: block.addr,
                size,
                stack,
                device,
                report,
            }
        };
        self.accounts.apply(&block.header, action);
    }

    pub(super) fn device_range(&mut self, kind: Kind, range: device::Range) {
        let tgid = range.header.tgid;
        let device::Range {
            addr, len, handle, ..
        } = range;
        let action = match kind {
            Kind::DeviceMap => Action::DeviceMap { addr, len, handle },
            Kind::DeviceUnmap => Action::DeviceUnmap { addr, len },
            Kind::DeviceRetain => Action::DeviceRetain { handle },
            Kind::DeviceRequest => {
                let Ok(layer) = Layer::try_from(range.header.layer) else {
                    self.accounts.lost(Reason::Undecodable);
                    return;
                };
                Action::DeviceRequest {
                    layer,
                    addr,
                    size: len,
                    stream: handle,
                }
            }
            Kind::DevicePool => {
                let Ok(figure) = Pool::try_from(handle) else {
                    self.accounts.lost(Reason::Undecodable);
                    return;
                };
                Action::DevicePool {
                    device: self.device(tgid, range.device),
                    bytes: len,
                    figure,
                }
            }
            _ => {
                self.processes
                    .on_devices(tgid)
                    .entry_points
                    .push((addr, handle));
                return;
            }
        };
        self.accounts.apply(&range.header, action);
    }

    /// Probes the functions that a process obtained since the last time and that have no probe: the
    /// function that the driver returns may differ from the one it exports.
    pub(super) fn probe_entry_points(&mut self, tgid: u32) {
        let given = std::mem::take(&mut self.processes.on_devices(tgid).entry_points);
        if given.is_empty() {
            return;
        }
        let rows = device_libraries::entry_points();
        for (addr, number) in given {
            let row = usize::try_from(number).ok().and_then(|n| rows.get(n));
            let (Some(&(name, row)), Some((index, offset))) = (row, self.code_at(tgid, addr))
            else {
                continue;
            };
            if let Some(probe) = self.naming.modules.add_probe(index, offset, row) {
                tracing::debug!(
                    "`{name}` was requested by name: at offset {offset:#x} of its file"
                );
                for tgid in self.probed() {
                    self.attach_to(tgid, index, std::slice::from_ref(&probe));
                }
            }
        }
    }

    /// File and offset of an address; the mappings are read again if it is in none.
    fn code_at(&mut self, tgid: u32, addr: u64) -> Option<(ModuleIndex, u64)> {
        for look_again in [true, false] {
            // The image matters only for generated code, which has no file.
            let addresses = self.processes.addresses(tgid);
            let found = addresses.map(|addresses| addresses.locate(tgid, 0, addr));
            if let Some(Location::File(index, offset)) = found {
                return Some((index, offset));
            }
            if look_again && let Err(error) = self.inspect(tgid) {
                tracing::debug!("{error}");
            }
        }
        None
    }

    /// Processes that have the probes of every allocator known so far.
    pub(super) fn probed(&self) -> Vec<u32> {
        self.processes.which(|process| process.probed)
    }

    pub(super) fn attach_to(&mut self, tgid: u32, index: ModuleIndex, probes: &[Probe]) {
        let module = self.naming.modules.get(index);
        match self.control.kernel.attach(tgid, &module.file.file, probes) {
            Ok(Attached {
                links,
                shared,
                taken,
            }) => {
                if let Some(process) = self.processes.get_mut(tgid) {
                    process.links.extend(links);
                }
                report_others(module, probes, &shared, "recorded all the same");
                report_others(
                    module,
                    probes,
                    &taken,
                    "NOT recorded; end that tool and record again",
                );
                taken
                    .iter()
                    .for_each(|_| self.accounts.lost(Reason::AttachFailed));
            }
            // One that has ended meanwhile needs no probes.
            Err(error) if memory::identity(tgid).is_ok() => {
                tracing::warn!("`{}`: {error}", module.file.path.display());
                self.accounts.lost(Reason::AttachFailed);
            }
            Err(error) => tracing::debug!("process {tgid} ended while it was probed: {error}"),
        }
    }

    /// Reports to the recording which functions a version of a device library lacks.
    pub(super) fn report_lacking(&mut self, index: ModuleIndex) {
        let module = self.naming.modules.get(index);
        if let Some(lacking) = &module.lacking {
            // A store that has failed shows at the next interval.
            let _ = self.output.sink.send(Message::Library(
                module.file.path.display().to_string(),
                lacking.clone(),
            ));
        }
    }

    /// Process totals of device memory, bytes, from `nvidia-smi`.
    ///
    /// # Errors
    /// The store has failed.
    pub(super) fn device_usage(
        &mut self,
        is_last: bool,
    ) -> Result<Vec<(crate::ledger::ProcessId, u8, u64)>, CollectError> {
        let processes: Vec<_> = self
            .processes
            .that_used_devices()
            .map(|(tgid, process)| (tgid, process.row.id))
            .collect();
        let usage = self.accounts.gpus.usage(&processes, is_last);
        let capacities = self.accounts.gpus.new_capacities().into_iter();
        let facts: Vec<Fact> = capacities
            .map(|(process, index, bytes)| Fact {
                process: Some(process),
                field: capacity_of(index),
                value: bytes.to_string(),
            })
            .collect();
        if !facts.is_empty() {
            self.output.sink.send(Message::Facts(facts))?;
        }
        Ok(usage)
    }
}

/// One line about the functions that another tracer probes in a way that excludes every other.
fn report_others(module: &Module, probes: &[Probe], offsets: &[u64], outcome: &str) {
    let Some(&first) = offsets.first() else {
        return;
    };
    let is_there = |probe: &&Probe| offsets.contains(&probe.file_offset);
    let names = probes
        .iter()
        .filter(is_there)
        .map(|probe| format!("`{}`", probe.symbol));
    let names: Vec<String> = names.collect();
    let by = bpf::other_tracer(first);
    tracing::warn!(
        "{} of `{}`: {} probes them in a way that excludes other tracers (ref_ctr_offset); {outcome}",
        names.join(", "),
        module.file.path.display(),
        by.as_deref().unwrap_or("another tool"),
    );
}
