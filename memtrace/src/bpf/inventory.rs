//! Programs and maps that this process has loaded into the kernel, by their descriptors.

use std::{
    ffi::c_char,
    fs, io,
    os::fd::{AsRawFd, BorrowedFd},
};

use aya_obj::generated::{bpf_attr, bpf_cmd, bpf_map_info, bpf_prog_info};
use serde_json::{Value, json};

use super::raw::call;

/// A loaded program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoadedProgram {
    /// As stored by the kernel: at most 15 bytes.
    pub name: String,
    /// Bytes of the program after the verifier has rewritten it.
    pub translated_bytes: u32,
    /// Instructions that the verifier processed (Linux 5.16, else 0).
    pub verified_instructions: u32,
}

/// A map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoadedMap {
    /// As above.
    pub name: String,
    pub entries: u32,
    /// Kernel memory, bytes, from `memlock` of the descriptor's fdinfo. From Linux 6.4 on it is the
    /// memory in use, before that an estimate made when the map was created.
    pub bytes: u64,
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inventory {
    pub programs: Vec<LoadedProgram>,
    pub maps: Vec<LoadedMap>,
}

impl Inventory {
    /// Lists the descriptors of this process. Each program and each map is listed once.
    ///
    /// # Errors
    /// `/proc` or the kernel does not provide it.
    pub(crate) fn of_this_process() -> io::Result<Inventory> {
        let mut inventory = Inventory::default();
        let mut seen = std::collections::HashSet::new();
        for entry in fs::read_dir("/proc/self/fd")? {
            let entry = entry?;
            // The descriptor of this folder itself is closed by the time it is inspected.
            let Ok(link) = fs::read_link(entry.path()) else {
                continue;
            };
            let Some(fd) = entry.file_name().to_str().and_then(|fd| fd.parse().ok()) else {
                continue;
            };
            // SAFETY: it was just listed, and nothing else closes descriptors meanwhile.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            match link.to_str() {
                Some("anon_inode:bpf-prog") => {
                    // SAFETY: the descriptor is a program's.
                    let info: bpf_prog_info = unsafe { info(fd)? };
                    if seen.insert((true, info.id)) {
                        inventory.programs.push(LoadedProgram {
                            name: name(&info.name),
                            translated_bytes: info.xlated_prog_len,
                            verified_instructions: info.verified_insns,
                        });
                    }
                }
                Some("anon_inode:bpf-map") => {
                    // SAFETY: the descriptor is a map's.
                    let info: bpf_map_info = unsafe { info(fd)? };
                    if seen.insert((false, info.id)) {
                        inventory.maps.push(LoadedMap {
                            name: name(&info.name),
                            entries: info.max_entries,
                            bytes: memlock(fd)?,
                        });
                    }
                }
                _ => {}
            }
        }
        inventory.programs.sort_by(|a, b| a.name.cmp(&b.name));
        inventory.maps.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(inventory)
    }

    pub(crate) fn to_json(&self) -> Value {
        let programs = self.programs.iter().map(|program| {
            json!({
                "name": program.name,
                "translated_bytes": program.translated_bytes,
                "verified_instructions": program.verified_instructions,
            })
        });
        let maps = self
            .maps
            .iter()
            .map(|map| json!({ "name": map.name, "entries": map.entries, "bytes": map.bytes }));
        json!({
            "programs": programs.collect::<Value>(),
            "maps": maps.collect::<Value>(),
        })
    }
}

/// The result of BPF_OBJ_GET_INFO_BY_FD; an older kernel leaves fields that it does not know zero.
///
/// # Safety
/// `T` must be the kernel ABI's structure for the object behind the descriptor.
unsafe fn info<T>(fd: BorrowedFd<'_>) -> io::Result<T> {
    // SAFETY: the caller's promise; all zeroes is a value of such a structure.
    let (mut info, mut attr): (T, bpf_attr) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    attr.info.bpf_fd = fd.as_raw_fd().cast_unsigned();
    attr.info.info = (&raw mut info) as u64;
    attr.info.info_len = size_of::<T>() as u32;
    call(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &attr)?;
    Ok(info)
}

fn memlock(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?;
    Ok(info
        .lines()
        .find_map(|line| line.strip_prefix("memlock:")?.trim().parse().ok())
        .unwrap_or(0))
}

fn name(bytes: &[c_char]) -> String {
    bytes
        .iter()
        .map(|&byte| u8::from_ne_bytes(byte.to_ne_bytes()))
        .take_while(|&byte| byte != 0)
        .map(char::from)
        .collect()
}
