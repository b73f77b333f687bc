//! NVIDIA's GPUs from outside: those visible to a process, and its total memory on each, from
//! `nvidia-smi` if that is installed.

use std::{collections::HashMap, fs, time::Duration};

use super::nvidia_smi::NvidiaSmi;
use crate::{ledger::ProcessId, process_root};

/// A folder for each GPU of the machine, made by the driver.
const GPUS: &str = "/proc/driver/nvidia/gpus";

/// Whether a process can have one device only.
pub(crate) fn has_one(tgid: u32) -> bool {
    match visible(tgid) {
        Some(visible) => visible.len() == 1,
        None => fs::read_dir(GPUS).is_ok_and(|gpus| gpus.count() == 1),
    }
}

/// The list in `CUDA_VISIBLE_DEVICES` of a process; `None` if it is not set.
fn visible(tgid: u32) -> Option<Vec<String>> {
    let environment = process_root::read_memory(tgid, "environ").ok()?;
    listed(&environment)
}

fn listed(environment: &[u8]) -> Option<Vec<String>> {
    environment.split(|byte| *byte == 0).find_map(|variable| {
        let list = variable.strip_prefix(b"CUDA_VISIBLE_DEVICES=")?;
        let list = String::from_utf8_lossy(list);
        Some(list.split(',').map(|name| name.trim().to_owned()).collect())
    })
}

/// The answers of `nvidia-smi`, which runs once a process uses a device.
pub(crate) struct Gpus {
    smi: Option<Option<NvidiaSmi>>,
    /// Between two questions.
    least_rest: Duration,
    /// Capacity of each device in use, and whether it was reported.
    capacities: HashMap<(ProcessId, u8), (u64, bool)>,
}

impl Gpus {
    pub(crate) fn new(least_rest: Duration) -> Self {
        Self {
            smi: None,
            least_rest,
            capacities: HashMap::new(),
        }
    }

    /// Bytes that each of these processes (tgid, id) has of each device, by the index that the
    /// process knows it by. Empty without a new answer, which only the last call waits for.
    pub(crate) fn usage(
        &mut self,
        processes: &[(u32, ProcessId)],
        is_last: bool,
    ) -> Vec<(ProcessId, u8, u64)> {
        if processes.is_empty() {
            return Vec::new();
        }
        let least_rest = self.least_rest;
        let smi = self.smi.get_or_insert_with(|| NvidiaSmi::start(least_rest));
        let gpus = smi.as_mut().and_then(|smi| match is_last {
            true => smi.last_answer(),
            false => smi.answer(),
        });
        let mut usage = Vec::new();
        for gpu in gpus.unwrap_or_default() {
            for (pid, bytes) in gpu.processes {
                let process = processes.iter().find(|(tgid, _)| *tgid == pid);
                if let Some(&(tgid, id)) = process
                    && let Some(index) = index_in(visible(tgid).as_deref(), gpu.number, &gpu.uuid)
                {
                    usage.push((id, index, bytes));
                    let capacity = self.capacities.entry((id, index));
                    capacity.or_insert_with(|| (gpu.capacity.unwrap_or(0), false));
                }
            }
        }
        usage
    }

    /// Capacity of each device found by [`Gpus::usage`] since the last call, bytes; without those
    /// that do not report it.
    pub(crate) fn new_capacities(&mut self) -> Vec<(ProcessId, u8, u64)> {
        let all = self.capacities.iter_mut();
        let new = all.filter(|(_, (bytes, reported))| *bytes > 0 && !*reported);
        new.map(|((process, index), (bytes, reported))| {
            *reported = true;
            (*process, *index, *bytes)
        })
        .collect()
    }
}

/// The index by which a process knows the GPU with the number `gpu` on the machine. Numbers on the
/// machine follow the bus; a process counts that way too, unless its GPUs differ in speed and
/// `CUDA_DEVICE_ORDER` is not set accordingly.
fn index_in(visible: Option<&[String]>, gpu: u32, uuid: &str) -> Option<u8> {
    let Some(visible) = visible else {
        return u8::try_from(gpu).ok();
    };
    let is_it = |name: &String| match name.parse::<u32>() {
        Ok(number) => number == gpu,
        // An unambiguous beginning of its UUID.
        Err(_) => name.starts_with("GPU-") && uuid.starts_with(name.as_str()),
    };
    let index = visible.iter().position(is_it)?;
    u8::try_from(index).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_visible_devices_is_read_from_an_environment() {
        assert_eq!(listed(b"A=1\0CUDA_DEVICE_ORDER=x\0"), None);
        let some = listed(b"A=1\0CUDA_VISIBLE_DEVICES=2, 0\0B=3").unwrap();
        assert_eq!(some, ["2", "0"]);
    }

    #[test]
    fn a_process_counts_the_devices_that_it_can_see() {
        let visible = ["3".to_owned(), "GPU-ab".to_owned()];
        assert_eq!(index_in(None, 2, "GPU-x"), Some(2));
        assert_eq!(index_in(Some(&visible), 3, "GPU-x"), Some(0));
        assert_eq!(index_in(Some(&visible), 0, "GPU-abcd"), Some(1));
        assert_eq!(index_in(Some(&visible), 1, "GPU-x"), None);
    }
}
