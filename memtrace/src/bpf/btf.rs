//! Offsets of kernel structure fields from the running kernel's BTF
//! (`/sys/kernel/btf/vmlinux`). Reads types only; nothing here is loaded.
//!
//! Format: Documentation/bpf/btf.rst of the kernel.

use std::collections::HashMap;

use bytes::Buf;
use memtrace_common::kernel::{LegacyOffsets, Offsets};

use crate::arch::THREAD_POINTER;

/// Why offsets could not be resolved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BtfError {
    #[error("cannot read `{path}`: {source}; the kernel needs CONFIG_DEBUG_INFO_BTF")]
    Unreadable {
        path: &'static str,
        source: std::io::Error,
    },
    #[error("the kernel's BTF is malformed at byte {0}")]
    Malformed(usize),
    #[error("the kernel's BTF has no `{structure}.{field}`")]
    Missing {
        structure: &'static str,
        field: &'static str,
    },
}

const VMLINUX: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;

/// Offsets for the running kernel.
pub(crate) fn kernel_offsets() -> Result<Offsets, BtfError> {
    resolve(&Btf::parse(&vmlinux()?)?)
}

/// Those that the legacy object needs.
pub(crate) fn legacy_offsets() -> Result<LegacyOffsets, BtfError> {
    let bytes = vmlinux()?;
    let btf = Btf::parse(&bytes)?;
    // It is optional only for the usual object.
    btf.offset("task_struct", "utask")?;
    Ok(LegacyOffsets {
        task_stack: btf.offset("task_struct", "stack")?,
        utask_vaddr: btf.offset("uprobe_task", "vaddr")?,
        dispatch_probe: btf.offset("uprobe_dispatch_data", "tu")?,
        probe_path: btf.offset("trace_uprobe", "filename")?,
    })
}

fn vmlinux() -> Result<Vec<u8>, BtfError> {
    std::fs::read(VMLINUX).map_err(|source| BtfError::Unreadable {
        path: VMLINUX,
        source,
    })
}

fn resolve(btf: &Btf) -> Result<Offsets, BtfError> {
    Ok(Offsets {
        task_tgid: btf.offset("task_struct", "tgid")?,
        task_pid: btf.offset("task_struct", "pid")?,
        task_mm: btf.offset("task_struct", "mm")?,
        task_files: btf.offset("task_struct", "files")?,
        task_signal: btf.offset("task_struct", "signal")?,
        task_exit_code: btf.offset("task_struct", "exit_code")?,
        signal_live: btf.offset("signal_struct", "live")?,
        newtask_pid: btf.offset("trace_event_raw_task_newtask", "pid")?,
        newtask_clone_flags: btf.offset("trace_event_raw_task_newtask", "clone_flags")?,
        exec_old_pid: btf.offset("trace_event_raw_sched_process_exec", "old_pid")?,
        files_fdt: btf.offset("files_struct", "fdt")?,
        fdtable_fd: btf.offset("fdtable", "fd")?,
        file_inode: btf.offset("file", "f_inode")?,
        inode_ino: btf.offset("inode", "i_ino")?,
        inode_sb: btf.offset("inode", "i_sb")?,
        sb_dev: btf.offset("super_block", "s_dev")?,
        task_ptrace: btf.offset("task_struct", "ptrace")?,
        task_parent: btf.offset("task_struct", "parent")?,
        task_comm: btf.offset("task_struct", "comm")?,
        task_thread_pid: btf.offset("task_struct", "thread_pid")?,
        pid_level: btf.offset("pid", "level")?,
        // Without it threads of Python are not found.
        task_thread_pointer: btf
            .offset("task_struct", "thread")
            .and_then(|thread| Ok(thread + btf.offset("thread_struct", THREAD_POINTER)?))
            .unwrap_or(0),
        inode_mtime_sec: mtime(btf).map_or(0, |(sec, _)| sec),
        inode_mtime_nsec: mtime(btf).map_or(0, |(_, nsec)| nsec),
        ..return_probes(btf).unwrap_or_else(|error| {
            tracing::warn!("stacks end at functions with a pending return probe: {error}");
            Offsets::default()
        })
    })
}

/// Offsets of the seconds and nanoseconds of an inode's last change.
fn mtime(btf: &Btf) -> Result<(u32, u32), BtfError> {
    if let (Ok(sec), Ok(nsec)) = (
        btf.offset("inode", "i_mtime_sec"),
        btf.offset("inode", "i_mtime_nsec"),
    ) {
        return Ok((sec, nsec));
    }
    let time = btf
        .offset("inode", "i_mtime")
        .or_else(|_| btf.offset("inode", "__i_mtime"))?;
    Ok((
        time + btf.offset("timespec64", "tv_sec")?,
        time + btf.offset("timespec64", "tv_nsec")?,
    ))
}

/// Offsets for finding return addresses that return probes have replaced.
fn return_probes(btf: &Btf) -> Result<Offsets, BtfError> {
    Ok(Offsets {
        task_utask: btf.offset("task_struct", "utask")?,
        utask_return_instances: btf.offset("uprobe_task", "return_instances")?,
        return_instance_stack: btf.offset("return_instance", "stack")?,
        return_instance_original: btf.offset("return_instance", "orig_ret_vaddr")?,
        return_instance_next: btf.offset("return_instance", "next")?,
        mm_xol_area: btf.offset("mm_struct", "uprobes_state")?
            + btf.offset("uprobes_state", "xol_area")?,
        xol_area_vaddr: btf.offset("xol_area", "vaddr")?,
        ..Offsets::default()
    })
}

struct Member {
    name: u32,
    type_id: u32,
    bit_offset: u32,
}

/// The structures of a BTF blob.
struct Btf<'a> {
    strings: &'a [u8],
    /// Type id → members, of structures and unions only.
    members: HashMap<u32, Vec<Member>>,
    /// Name → type ids of structures.
    structures: HashMap<&'a [u8], Vec<u32>>,
}

impl<'a> Btf<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, BtfError> {
        let mut header = bytes;
        let at = |rest: &[u8]| BtfError::Malformed(bytes.len() - rest.len());
        if header.len() < 24 || header.get_u16_le() != MAGIC {
            return Err(BtfError::Malformed(0));
        }
        header.advance(2); // version, flags
        let header_len = header.get_u32_le() as usize;
        let [type_at, type_len, string_at, string_len] =
            [(); 4].map(|()| header.get_u32_le() as usize);
        let section = |start: usize, len: usize| {
            let start = header_len.checked_add(start)?;
            bytes.get(start..start.checked_add(len)?)
        };
        let mut types = section(type_at, type_len).ok_or(BtfError::Malformed(8))?;
        let strings = section(string_at, string_len).ok_or(BtfError::Malformed(16))?;

        let mut btf = Btf {
            strings,
            members: HashMap::new(),
            structures: HashMap::new(),
        };
        let mut id = 0;
        while types.has_remaining() {
            id += 1;
            if types.remaining() < 12 {
                return Err(at(types));
            }
            let name = types.get_u32_le();
            let info = types.get_u32_le();
            types.advance(4); // size or type
            let count = (info & 0xffff) as usize;
            let bitfields = info >> 31 == 1;
            // Bytes that follow the common part, by kind (include/uapi/linux/btf.h).
            let trailing = match info >> 24 & 0x1f {
                1 | 14 | 17 => 4,
                3 => 12,
                4 | 5 | 6 | 13 | 15 | 19 => {
                    count
                        * match info >> 24 & 0x1f {
                            6 | 13 => 8,
                            _ => 12,
                        }
                }
                0 | 2 | 7..=12 | 16 | 18 => 0,
                _ => return Err(at(types)),
            };
            if types.remaining() < trailing {
                return Err(at(types));
            }
            let mut body = types.copy_to_bytes(trailing);
            if matches!(info >> 24 & 0x1f, 4 | 5) {
                let members = (0..count)
                    .map(|_| {
                        let (name, type_id, offset) =
                            (body.get_u32_le(), body.get_u32_le(), body.get_u32_le());
                        let bit_offset = if bitfields {
                            offset & 0xff_ffff
                        } else {
                            offset
                        };
                        Member {
                            name,
                            type_id,
                            bit_offset,
                        }
                    })
                    .collect();
                btf.members.insert(id, members);
                btf.structures.entry(btf.string(name)).or_default().push(id);
            }
        }
        Ok(btf)
    }

    fn string(&self, at: u32) -> &'a [u8] {
        let rest = self.strings.get(at as usize..).unwrap_or_default();
        let end = rest
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(rest.len());
        &rest[..end]
    }

    /// Offset in bytes of a field, also inside anonymous members.
    fn offset(&self, structure: &'static str, field: &'static str) -> Result<u32, BtfError> {
        self.structures
            .get(structure.as_bytes())
            .into_iter()
            .flatten()
            .find_map(|&id| self.bit_offset(id, field.as_bytes(), 0))
            .map(|bits| bits / 8)
            .ok_or(BtfError::Missing { structure, field })
    }

    fn bit_offset(&self, id: u32, field: &[u8], depth: u32) -> Option<u32> {
        // Anonymous members nest a few levels; a cyclic blob must not hang us.
        if depth > 8 {
            return None;
        }
        self.members
            .get(&id)?
            .iter()
            .find_map(|member| match self.string(member.name) {
                name if name == field => Some(member.bit_offset),
                b"" => Some(self.bit_offset(member.type_id, field, depth + 1)? + member.bit_offset),
                _ => None,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_kernel_has_every_field() {
        let offsets = kernel_offsets().unwrap();
        assert_ne!(offsets.task_tgid, 0);
        assert_ne!(offsets.task_mm, offsets.task_files);
        assert_ne!(offsets.task_utask, 0);
        assert_ne!(offsets.task_thread_pointer, 0);
        assert_ne!(offsets.inode_mtime_sec, 0);
    }

    #[test]
    fn a_damaged_blob_is_an_error() {
        let bytes = std::fs::read(VMLINUX).unwrap();
        assert!(matches!(
            Btf::parse(&bytes[..10]),
            Err(BtfError::Malformed(_))
        ));
        assert!(matches!(
            Btf::parse(&bytes[..bytes.len() / 2]),
            Err(BtfError::Malformed(_))
        ));
        assert!(matches!(
            Btf::parse(b"not btf at all, really not"),
            Err(BtfError::Malformed(0))
        ));
    }

    #[test]
    fn a_missing_field_is_named() {
        let bytes = std::fs::read(VMLINUX).unwrap();
        let btf = Btf::parse(&bytes).unwrap();
        let error = btf.offset("task_struct", "no_such_field").unwrap_err();
        assert!(error.to_string().contains("task_struct.no_such_field"));
    }
}
