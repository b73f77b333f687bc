//! Whether another memtrace records a process already: its map of processes has it.

use std::{io, os::fd::AsRawFd};

use aya_obj::generated::{bpf_attr, bpf_cmd};
use memtrace_common::process::Process;

use super::{
    inventory,
    raw::{bpf, call},
};

/// Whether process `tgid` is recorded by anybody. False where the kernel does not tell.
pub fn is_recorded(tgid: u32) -> bool {
    let mut id = 0;
    while let Some(next) = next_map(id) {
        id = next;
        if holds(id, tgid).unwrap_or(false) {
            return true;
        }
    }
    false
}

/// Number of the map after the one of number `id`.
fn next_map(id: u32) -> Option<u32> {
    // SAFETY: an all-zero attribute is a valid one.
    let mut attr: bpf_attr = unsafe { std::mem::zeroed() };
    attr.__bindgen_anon_6.__bindgen_anon_1.start_id = id;
    call(bpf_cmd::BPF_MAP_GET_NEXT_ID, &attr).ok()?;
    // SAFETY: the member that this command writes.
    Some(unsafe { attr.__bindgen_anon_6 }.next_id)
}

fn holds(id: u32, tgid: u32) -> io::Result<bool> {
    // SAFETY: an all-zero attribute is a valid one.
    let mut attr: bpf_attr = unsafe { std::mem::zeroed() };
    attr.__bindgen_anon_6.__bindgen_anon_1.map_id = id;
    let map = bpf(bpf_cmd::BPF_MAP_GET_FD_BY_ID, &attr)?;
    let (name, key, value) = inventory::shape_of_map(&map)?;
    if (name.as_str(), key as usize, value as usize)
        != ("PROCESSES", size_of::<u32>(), size_of::<Process>())
    {
        return Ok(false);
    }
    let mut found = [0u8; size_of::<Process>()];
    // SAFETY: an all-zero attribute is a valid one.
    let mut attr: bpf_attr = unsafe { std::mem::zeroed() };
    // SAFETY: this is the member for BPF_MAP_LOOKUP_ELEM, and only it is written.
    let element = unsafe { &mut attr.__bindgen_anon_2 };
    element.map_fd = map.as_raw_fd().cast_unsigned();
    element.key = (&raw const tgid) as u64;
    element.__bindgen_anon_1.value = found.as_mut_ptr() as u64;
    match call(bpf_cmd::BPF_MAP_LOOKUP_ELEM, &attr) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
