//! The state kept for each process, and its beginning and end. Much of it is also kept for a
//! process whose birth was lost.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use memtrace_common::python::Interpreter;

use super::{
    addresses::Addresses,
    images::Images,
    process::{OnDevices, Process},
};
use crate::{process::gpus, recording::Untraced};

/// Least time between two inspections of a process whose code has not changed, as far as is logged.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// After the inspection of a process with more mappings of code, it rests [`REST`] times as long.
const MANY_MAPPINGS: usize = 1000;
const REST: u32 = 9;

/// See the module. Everything is by tgid.
#[derive(Default)]
pub(super) struct Processes {
    /// A process that has ended is gone from here.
    traced: HashMap<u32, Process>,
    addresses: HashMap<u32, Addresses>,
    interpreters: HashMap<u32, Interpreter>,
    /// Once a process has used a device.
    on_devices: HashMap<u32, OnDevices>,
    /// Time of the last inspection of a process's code at its own request, and the rest after it.
    looked_at: HashMap<u32, (Instant, Duration)>,
    images: Images,
    /// Processes of the job that are not traced.
    pub(super) untraced: Vec<Untraced>,
}

/// The remains of a process.
pub(super) struct Ended {
    /// `None`: its birth was lost.
    pub(super) process: Option<Process>,
    /// The image that no process runs any more.
    pub(super) image: Option<u64>,
}

impl Processes {
    pub(super) fn get(&self, tgid: u32) -> Option<&Process> {
        self.traced.get(&tgid)
    }

    pub(super) fn get_mut(&mut self, tgid: u32) -> Option<&mut Process> {
        self.traced.get_mut(&tgid)
    }

    pub(super) fn is_traced(&self, tgid: u32) -> bool {
        self.traced.contains_key(&tgid)
    }

    /// Every traced process.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Process)> {
        self.traced.iter().map(|(&tgid, process)| (tgid, process))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Process)> {
        self.traced
            .iter_mut()
            .map(|(&tgid, process)| (tgid, process))
    }

    /// Traced processes that satisfy a condition.
    pub(super) fn which(&self, holds: impl Fn(&Process) -> bool) -> Vec<u32> {
        self.iter()
            .filter(|(_, process)| holds(process))
            .map(|(tgid, _)| tgid)
            .collect()
    }

    /// Begins tracing a process. Returns one with the same number whose end was lost.
    pub(super) fn trace(&mut self, tgid: u32, process: Process) -> Option<Process> {
        self.traced.insert(tgid, process)
    }

    /// A child inherits its parent's state. Returns an image that no process runs any more.
    pub(super) fn fork(&mut self, parent: u32, child: u32) -> Option<u64> {
        let addresses = self.addresses(parent).cloned().unwrap_or_default();
        self.addresses.insert(child, addresses);
        match self.interpreters.get(&parent).copied() {
            Some(interpreter) => self.interpreters.insert(child, interpreter),
            None => self.interpreters.remove(&child),
        };
        self.images.forked(parent, child)
    }

    /// Another program begins. Returns an image that no process runs any more.
    pub(super) fn exec(&mut self, tgid: u32) -> Option<u64> {
        self.addresses.remove(&tgid);
        self.interpreters.remove(&tgid);
        self.on_devices.remove(&tgid);
        self.images.left(tgid)
    }

    /// A process has ended: nothing of it is kept.
    pub(super) fn end(&mut self, tgid: u32) -> Ended {
        self.looked_at.remove(&tgid);
        Ended {
            image: self.exec(tgid),
            process: self.traced.remove(&tgid),
        }
    }

    /// A process runs this image. Returns one that no process runs any more.
    pub(super) fn runs(&mut self, tgid: u32, image: u64) -> Option<u64> {
        // If its birth was lost, its end may be lost, too.
        self.is_traced(tgid)
            .then(|| self.images.runs(tgid, image))
            .flatten()
    }

    /// The known addresses of a process.
    pub(super) fn addresses(&self, tgid: u32) -> Option<&Addresses> {
        self.addresses.get(&tgid)
    }

    pub(super) fn addresses_mut(&mut self, tgid: u32) -> &mut Addresses {
        self.addresses.entry(tgid).or_default()
    }

    pub(super) fn interpreter(&self, tgid: u32) -> Option<&Interpreter> {
        self.interpreters.get(&tgid)
    }

    /// True if that changes something.
    pub(super) fn set_interpreter(&mut self, tgid: u32, interpreter: Interpreter) -> bool {
        self.interpreters.insert(tgid, interpreter) != Some(interpreter)
    }

    pub(super) fn on_devices(&mut self, tgid: u32) -> &mut OnDevices {
        self.on_devices
            .entry(tgid)
            .or_insert_with(|| OnDevices::new(gpus::has_one(tgid)))
    }

    /// Traced processes that have used a device.
    pub(super) fn that_used_devices(&self) -> impl Iterator<Item = (u32, &Process)> {
        self.on_devices
            .keys()
            .filter_map(|&tgid| Some((tgid, self.get(tgid)?)))
    }

    /// Entries of every kind.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.traced.len()
            + self.addresses.len()
            + self.interpreters.len()
            + self.on_devices.len()
            + self.looked_at.len()
            + self.images.len()
    }

    /// Whether the code of a process may be inspected: not if that was done a moment ago, unless it
    /// has changed since. An unmapped address requests it again and again.
    pub(super) fn may_look(&mut self, tgid: u32, has_changed: bool) -> bool {
        let is_due = self.looked_at.get(&tgid).is_none_or(|&(last, rest)| {
            let least = if has_changed {
                Duration::ZERO
            } else {
                LOOK_AGAIN
            };
            last.elapsed() >= rest.max(least)
        });
        if is_due {
            self.looked_at
                .insert(tgid, (Instant::now(), Duration::ZERO));
        }
        is_due
    }

    /// Notes how long an inspection took, and how many mappings of code it found.
    pub(super) fn looked(&mut self, tgid: u32, took: Duration, mappings: usize) {
        if mappings > MANY_MAPPINGS {
            self.looked_at.insert(tgid, (Instant::now(), took * REST));
        }
    }
}
