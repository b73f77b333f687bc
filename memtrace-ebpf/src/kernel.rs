//! Reads of kernel structures by the offsets of the running kernel's BTF.

use aya_ebpf::helpers::{bpf_get_current_task, bpf_probe_read_kernel};
use memtrace_common::process::FileKey;

use crate::maps::offsets;

/// Address of a `task_struct`.
#[derive(Clone, Copy)]
pub(crate) struct Task(u64);

/// Reads kernel memory; 0 where it cannot be read, which every caller treats as absent.
#[inline(always)]
fn read<T: Default>(address: u64) -> T {
    // SAFETY: the helper checks the address and fails on a bad one.
    unsafe { bpf_probe_read_kernel(address as *const T) }.unwrap_or_default()
}

impl Task {
    #[inline(always)]
    pub(crate) fn current() -> Self {
        // SAFETY: the helper has no preconditions.
        Self(unsafe { bpf_get_current_task() })
    }

    #[inline(always)]
    pub(crate) fn at(address: u64) -> Self {
        Self(address)
    }

    #[inline(always)]
    pub(crate) fn tgid(self) -> u32 {
        read(self.0 + u64::from(offsets().task_tgid))
    }

    /// Address of its `mm_struct`, an identity of its address space.
    #[inline(always)]
    pub(crate) fn mm(self) -> u64 {
        read(self.0 + u64::from(offsets().task_mm))
    }

    /// Wait status, once it is exiting.
    #[inline(always)]
    pub(crate) fn exit_code(self) -> u32 {
        read(self.0 + u64::from(offsets().task_exit_code))
    }

    /// Threads of its process that have not begun to exit.
    #[inline(always)]
    pub(crate) fn live_threads(self) -> u32 {
        let signal: u64 = read(self.0 + u64::from(offsets().task_signal));
        read(signal + u64::from(offsets().signal_live))
    }

    /// The file that `fd` refers to; `None` where a pointer on the way is null.
    #[inline(always)]
    pub(crate) fn file(self, fd: u64) -> Option<FileKey> {
        let at = offsets();
        let files: u64 = read(self.0 + u64::from(at.task_files));
        let table: u64 = read(files + u64::from(at.files_fdt));
        let array: u64 = read(table + u64::from(at.fdtable_fd));
        let file: u64 = read(array + (fd & 0xffff_ffff) * 8);
        let inode: u64 = read(file + u64::from(at.file_inode));
        if file == 0 || inode == 0 {
            return None;
        }
        let superblock: u64 = read(inode + u64::from(at.inode_sb));
        Some(FileKey {
            ino: read(inode + u64::from(at.inode_ino)),
            dev: read(superblock + u64::from(at.sb_dev)),
            pad: 0,
        })
    }
}
