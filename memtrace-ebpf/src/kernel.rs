//! Reads of kernel structures by the offsets of the running kernel's BTF.

use aya_ebpf::helpers::{
    bpf_get_current_task, bpf_probe_read_kernel,
    generated::{bpf_get_current_task_btf, bpf_task_pt_regs},
};
use memtrace_common::{
    event::PendingReturn,
    process::FileKey,
    unwind::{Registers, rbx},
};

use crate::maps::{OFFSETS, loaded};

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
        read(self.0 + u64::from(loaded(&OFFSETS.task_tgid)))
    }

    /// Address of its `mm_struct`, an identity of its address space.
    #[inline(always)]
    pub(crate) fn mm(self) -> u64 {
        read(self.0 + u64::from(loaded(&OFFSETS.task_mm)))
    }

    /// Whether the process `tgid` is its ptracer.
    #[inline(always)]
    pub(crate) fn is_traced_by(self, tgid: u32) -> bool {
        let ptrace: u32 = read(self.0 + u64::from(loaded(&OFFSETS.task_ptrace)));
        let parent: u64 = read(self.0 + u64::from(loaded(&OFFSETS.task_parent)));
        ptrace != 0 && Task(parent).tgid() == tgid
    }

    /// What pthread_self gives: the fs base.
    #[inline(always)]
    pub(crate) fn thread_pointer(self) -> u64 {
        match loaded(&OFFSETS.task_fsbase) {
            0 => 0,
            offset => read(self.0 + u64::from(offset)),
        }
    }

    /// Wait status, once it is exiting.
    #[inline(always)]
    pub(crate) fn exit_code(self) -> u32 {
        read(self.0 + u64::from(loaded(&OFFSETS.task_exit_code)))
    }

    /// Threads of its process that have not begun to exit.
    #[inline(always)]
    pub(crate) fn live_threads(self) -> u32 {
        let signal: u64 = read(self.0 + u64::from(loaded(&OFFSETS.task_signal)));
        read(signal + u64::from(loaded(&OFFSETS.signal_live)))
    }

    /// The file that `fd` refers to; `None` where a pointer on the way is null.
    #[inline(always)]
    pub(crate) fn file(self, fd: u64) -> Option<FileKey> {
        let files: u64 = read(self.0 + u64::from(loaded(&OFFSETS.task_files)));
        let table: u64 = read(files + u64::from(loaded(&OFFSETS.files_fdt)));
        let array: u64 = read(table + u64::from(loaded(&OFFSETS.fdtable_fd)));
        let file: u64 = read(array + (fd & 0xffff_ffff) * 8);
        let inode: u64 = read(file + u64::from(loaded(&OFFSETS.file_inode)));
        if file == 0 || inode == 0 {
            return None;
        }
        let superblock: u64 = read(inode + u64::from(loaded(&OFFSETS.inode_sb)));
        let version = match loaded(&OFFSETS.inode_mtime_sec) {
            0 => 0,
            offset => FileKey::version(
                read(inode + u64::from(offset)),
                read(inode + u64::from(loaded(&OFFSETS.inode_mtime_nsec))),
            ),
        };
        Some(FileKey {
            ino: read(inode + u64::from(loaded(&OFFSETS.inode_ino))),
            dev: read(superblock + u64::from(loaded(&OFFSETS.sb_dev))),
            version,
        })
    }
}

/// Offsets in `struct pt_regs` (arch/x86/include/asm/ptrace.h), which user tools
/// know as the ABI of ptrace(2).
#[cfg(bpf_target_arch = "x86_64")]
mod pt_regs {
    pub(super) const BP: u64 = 4 * 8;
    pub(super) const BX: u64 = 5 * 8;
    pub(super) const IP: u64 = 16 * 8;
    pub(super) const SP: u64 = 19 * 8;
}

/// The registers with which the current thread entered the kernel by a system call.
#[inline(always)]
pub(crate) fn user_registers() -> Registers {
    // SAFETY: the helpers have no preconditions, and `read` checks the address.
    let regs = unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) } as u64;
    Registers {
        pc: read(regs + pt_regs::IP),
        sp: read(regs + pt_regs::SP),
        fp: read(regs + pt_regs::BP),
        bx: read(regs + pt_regs::BX),
        bx_is: rbx::VALUE,
    }
}

/// Return addresses that the kernel has replaced to probe returns. It keeps the
/// originals in a list of its own (kernel/events/uprobes.c, `prepare_uretprobe`).
#[repr(C)]
pub(crate) struct PendingReturns {
    /// What they were replaced by; 0 if the thread has none.
    trampoline: u64,
    /// First `struct return_instance`.
    list: u64,
}

/// As many as one thread can have (MAX_URETPROBE_DEPTH, kernel/events/uprobes.c).
pub(crate) const MAX_PENDING_RETURNS: usize = 64;

impl PendingReturns {
    /// Those of the current thread.
    #[inline(always)]
    pub(crate) fn current() -> Self {
        let task = Task::current();
        let utask: u64 = match loaded(&OFFSETS.task_utask) {
            0 => 0,
            offset => read(task.0 + u64::from(offset)),
        };
        let list: u64 = if utask == 0 {
            0
        } else {
            read(utask + u64::from(loaded(&OFFSETS.utask_return_instances)))
        };
        let trampoline = if list == 0 {
            0
        } else {
            let area: u64 = read(task.mm() + u64::from(loaded(&OFFSETS.mm_xol_area)));
            read(area + u64::from(loaded(&OFFSETS.xol_area_vaddr)))
        };
        Self { trampoline, list }
    }

    /// Where a list of them begins that [`PendingReturns::entry`] goes along.
    #[inline(always)]
    pub(crate) fn first(&self) -> u64 {
        self.list
    }

    /// What return addresses were replaced by; 0 if the thread has none.
    #[inline(always)]
    pub(crate) fn trampoline(&self) -> u64 {
        self.trampoline
    }

    /// The entry at `instance`, and where the next one is (0: nowhere).
    #[inline(always)]
    pub(crate) fn entry(instance: u64) -> (PendingReturn, u64) {
        let entry = PendingReturn {
            slot: read(instance + u64::from(loaded(&OFFSETS.return_instance_stack))),
            original: read(instance + u64::from(loaded(&OFFSETS.return_instance_original))),
        };
        let next = read(instance + u64::from(loaded(&OFFSETS.return_instance_next)));
        (entry, next)
    }

    /// The return address of which `pc` was read at `slot`. By the slot, not in order:
    /// a longjmp leaves entries behind.
    #[inline(always)]
    pub(crate) fn original(&self, pc: u64, slot: u64) -> u64 {
        if self.trampoline == 0 || pc != self.trampoline {
            return pc;
        }
        let mut instance = self.list;
        for _ in 0..MAX_PENDING_RETURNS {
            if instance == 0 {
                break;
            }
            let stack: u64 = read(instance + u64::from(loaded(&OFFSETS.return_instance_stack)));
            if stack == slot {
                return read(instance + u64::from(loaded(&OFFSETS.return_instance_original)));
            }
            instance = read(instance + u64::from(loaded(&OFFSETS.return_instance_next)));
        }
        pc
    }
}
