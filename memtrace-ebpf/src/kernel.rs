//! Reads of kernel structures by the offsets of the running kernel's BTF.

use core::{ffi::c_void, mem::MaybeUninit};

#[cfg(not(feature = "legacy"))]
use aya_ebpf::helpers::generated::{bpf_get_current_task_btf, bpf_task_pt_regs};
use aya_ebpf::helpers::{bpf_get_current_task, generated::bpf_probe_read_kernel};
#[cfg(feature = "legacy")]
use memtrace_common::numbered_path::WORDS;
use memtrace_common::{
    arch::code_address,
    event::PendingReturn,
    process::FileKey,
    unwind::{Registers, held},
};

use crate::{
    arch::offset,
    loops::{BREAK, CONTINUE, repeat},
    maps::{OFFSETS, loaded},
};
#[cfg(feature = "legacy")]
use crate::{
    arch::registers_on_stack,
    maps::{LEGACY_OFFSETS, SETTINGS},
};

/// Address of a `task_struct`.
#[derive(Clone, Copy)]
pub(crate) struct Task(u64);

/// The current thread's `task_struct`. The verifier knows its type, so its own fields are read without a helper; a
/// [`Task`] serves for what they point to.
#[cfg(not(feature = "legacy"))]
#[derive(Clone, Copy)]
pub(crate) struct CurrentTask(*const u8);

/// The current thread's `task_struct`.
#[cfg(feature = "legacy")]
#[derive(Clone, Copy)]
pub(crate) struct CurrentTask(u64);

#[cfg(feature = "legacy")]
impl CurrentTask {
    #[inline(always)]
    pub(crate) fn get() -> Self {
        // SAFETY: the helper has no preconditions.
        Self(unsafe { bpf_get_current_task() })
    }

    /// The field at an offset.
    ///
    /// # Safety
    /// It must be a `T`.
    #[inline(always)]
    unsafe fn field<T: Integer>(self, offset: u32) -> T {
        read(self.0.wrapping_add(offset.into()))
    }

    /// The beginning of the path by which the file of the running probe was opened (`uprobe_dispatcher`,
    /// kernel/trace/trace_uprobe.c).
    #[inline(always)]
    pub(crate) fn probed_path(self) -> [u64; WORDS] {
        let follow = |address: u64, offset: u32| read(address.wrapping_add(offset.into()));
        // SAFETY: a pointer.
        let utask: u64 = unsafe { self.field(loaded(&OFFSETS.task_utask)) };
        let dispatched = follow(utask, loaded(&LEGACY_OFFSETS.utask_vaddr));
        let probe = follow(dispatched, loaded(&LEGACY_OFFSETS.dispatch_probe));
        let path: u64 = follow(probe, loaded(&LEGACY_OFFSETS.probe_path));
        read(path)
    }
}

#[cfg(not(feature = "legacy"))]
impl CurrentTask {
    #[inline(always)]
    pub(crate) fn get() -> Self {
        // SAFETY: the helper has no preconditions.
        Self(unsafe { bpf_get_current_task_btf() }.cast())
    }

    /// The field at an offset.
    ///
    /// # Safety
    /// It must be a `T`.
    #[inline(always)]
    unsafe fn field<T: Integer>(self, offset: u32) -> T {
        // SAFETY: the pointer is valid, and the rest is the caller's promise.
        unsafe { core::ptr::read_volatile(self.0.add(offset as usize).cast()) }
    }
}

impl CurrentTask {
    /// The ids of process and thread, in the upper and the lower half.
    #[inline(always)]
    pub(crate) fn ids(self) -> u64 {
        // SAFETY: both are integers of 32 bits.
        let (tgid, pid): (u32, u32) = unsafe {
            (
                self.field(loaded(&OFFSETS.task_tgid)),
                self.field(loaded(&OFFSETS.task_pid)),
            )
        };
        u64::from(tgid) << 32 | u64::from(pid)
    }

    /// The thread's name, for comparison.
    #[inline(always)]
    pub(crate) fn name(self) -> [u64; 2] {
        let offset = loaded(&OFFSETS.task_comm);
        // SAFETY: 16 bytes of any value.
        unsafe { [self.field(offset), self.field(offset + 8)] }
    }

    /// The thread pointer, of thread-local storage. On aarch64, it may be that of when the thread last began to wait.
    #[inline(always)]
    pub(crate) fn thread_pointer(self) -> u64 {
        match loaded(&OFFSETS.task_thread_pointer) {
            0 => 0,
            // SAFETY: an integer of 64 bits.
            offset => unsafe { self.field(offset) },
        }
    }

    /// Whether a return address of the thread is replaced, by memtrace or another tool.
    #[cfg(not(feature = "legacy"))]
    #[inline(always)]
    pub(crate) fn has_pending_returns(self) -> bool {
        self.pending_returns() != 0
    }

    /// First `struct return_instance`, see [`PendingReturns`]; 0: there is none.
    #[inline(always)]
    fn pending_returns(self) -> u64 {
        match loaded(&OFFSETS.task_utask) {
            0 => 0,
            offset => {
                // SAFETY: a pointer.
                let utask: u64 = unsafe { self.field(offset) };
                // VERIFIER: with a helper, whose result is a number: functions that take one refuse pointers.
                read(utask.wrapping_add(u64::from(loaded(&OFFSETS.utask_return_instances))))
            }
        }
    }
}

/// Reads kernel memory; 0 where it cannot be read, which every caller treats as absent.
#[inline(always)]
fn read<T: Integer>(address: u64) -> T {
    let mut value = MaybeUninit::<T>::uninit();
    // VERIFIER: the result is not tested, which would double the paths: if it fails, the helper writes zeroes. SAFETY:
    // there is room for one; the helper checks the address, and of an integer all values are valid.
    unsafe {
        bpf_probe_read_kernel(
            value.as_mut_ptr().cast(),
            size_of::<T>() as u32,
            address as *const c_void,
        );
        value.assume_init()
    }
}

trait Integer: Copy {}
impl Integer for u32 {}
impl Integer for u64 {}
impl Integer for i64 {}
#[cfg(feature = "legacy")]
impl Integer for [u64; WORDS] {}

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

    /// The id of the thread.
    #[inline(always)]
    pub(crate) fn tid(self) -> u32 {
        read(self.0 + u64::from(loaded(&OFFSETS.task_pid)))
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

    /// Whether it lives in the host's pid namespace, so that it names others by the host's numbers.
    #[inline(always)]
    pub(crate) fn is_in_host_namespace(self) -> bool {
        let pid: u64 = read(self.0 + u64::from(loaded(&OFFSETS.task_thread_pid)));
        let level: u32 = read(pid + u64::from(loaded(&OFFSETS.pid_level)));
        pid != 0 && level == 0
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

// VERIFIER: a global function, see `unwind::walk`: its stack does not count beside a walk's.
#[cfg(not(feature = "legacy"))]
/// The registers with which the current thread entered the kernel by a system call.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn user_registers(to: *mut Registers) -> u64 {
    // SAFETY: null, or part of the caller's map value.
    let Some(to) = (unsafe { to.as_mut() }) else {
        return 0;
    };
    // SAFETY: the helpers have no preconditions, and `read` checks the address.
    let regs = unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) } as u64;
    *to = registers_at(regs);
    1
}

/// The registers with which the current thread entered the kernel by a system call: at the end of its kernel stack.
#[cfg(feature = "legacy")]
#[inline(always)]
pub(crate) fn user_registers(to: &mut Registers) {
    // SAFETY: a pointer.
    let stack: u64 = unsafe { CurrentTask::get().field(loaded(&LEGACY_OFFSETS.task_stack)) };
    let page_size = u64::from(loaded(&SETTINGS.page_size));
    *to = registers_at(stack.wrapping_add(registers_on_stack(page_size)));
}

/// Registers as the kernel keeps them at an address.
#[inline(always)]
fn registers_at(regs: u64) -> Registers {
    Registers {
        pc: read(regs + offset::PC),
        sp: read(regs + offset::SP),
        fp: read(regs + offset::FP),
        extra: read(regs + offset::EXTRA),
        extra_is: held::VALUE,
    }
}

/// Return addresses that the kernel has replaced to probe returns. It keeps the
/// originals in a list of its own (kernel/events/uprobes.c, `prepare_uretprobe`).
#[repr(C)]
pub(crate) struct PendingReturns {
    /// The address that replaced them; 0 if the thread has none.
    trampoline: u64,
    /// First `struct return_instance`.
    list: u64,
}

/// As many as one thread can have (MAX_URETPROBE_DEPTH, kernel/events/uprobes.c).
pub(crate) const MAX_PENDING_RETURNS: u32 = 64;

impl PendingReturns {
    /// Those of the current thread.
    #[inline(always)]
    pub(crate) fn current() -> Self {
        let list = CurrentTask::get().pending_returns();
        let trampoline = if list == 0 {
            0
        } else {
            let area: u64 = read(Task::current().mm() + u64::from(loaded(&OFFSETS.mm_xol_area)));
            read(area + u64::from(loaded(&OFFSETS.xol_area_vaddr)))
        };
        Self { trampoline, list }
    }

    /// Where a list of them begins that [`PendingReturns::entry`] goes along.
    #[inline(always)]
    pub(crate) fn first(&self) -> u64 {
        self.list
    }

    /// The address that replaced return addresses; 0 if the thread has none.
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

    /// The original of the return address `pc` of a function whose entry saw the stack pointer `entry`. By that, not in
    /// order: a longjmp leaves entries behind.
    #[inline(always)]
    pub(crate) fn original(&self, pc: u64, entry: u64) -> u64 {
        if self.trampoline == 0 || pc != code_address(self.trampoline) {
            return pc;
        }
        original_return(self.list, pc, entry)
    }
}

// VERIFIER: a global function, see `unwind::walk`.
/// The original of a return address that was replaced, as above; 0 if the kernel does not know it.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn original_at(entry: u64) -> u64 {
    original_return(CurrentTask::get().pending_returns(), 0, entry)
}

/// A search for the function whose entry saw a stack pointer.
struct Search {
    instance: u64,
    entry: u64,
    /// The return address.
    pc: u64,
}

// VERIFIER: a global function, see `unwind::walk`, and a loop of the kernel's.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn original_return(list: u64, pc: u64, entry: u64) -> u64 {
    let mut search = Search {
        instance: list,
        entry,
        pc,
    };
    repeat(MAX_PENDING_RETURNS, next_return, &mut search);
    search.pc
}

/// Callback of [`repeat`].
unsafe extern "C" fn next_return(_index: u64, search: *mut Search) -> u64 {
    // SAFETY: the pointer is that which `original_return` passed.
    let search = unsafe { &mut *search };
    if search.instance == 0 {
        return BREAK;
    }
    let (pending, next) = PendingReturns::entry(search.instance);
    if pending.slot == search.entry {
        search.pc = pending.original;
        return BREAK;
    }
    search.instance = next;
    CONTINUE
}
