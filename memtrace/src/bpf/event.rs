//! A uprobe through a perf event. aya 0.14 can attach neither programs that it has not loaded nor a semaphore, which the
//! kernel raises while the probe is attached. It also enables the event, which costs each context switch of the process's
//! main thread: programs run without that.

use std::{
    ffi::CString,
    fs, io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use aya_obj::generated::{bpf_attach_type, bpf_attr, bpf_cmd, perf_event_attr};

use super::raw::bpf;

/// Number of the kernel's kind of perf events for uprobes.
const EVENT_TYPE: &str = "/sys/bus/event_source/devices/uprobe/type";

/// The semaphore's offset into the file is in the event's upper half, and whether it is a return probe in its lowest bit
/// (`format/ref_ctr_offset` and `format/retprobe` beside [`EVENT_TYPE`], unchanged since Linux 4.20).
const SEMAPHORE_SHIFT: u32 = 32;

// `_IOW('$', 8, u32)`, include/uapi/linux/perf_event.h.
const SET_BPF: libc::c_ulong = 0x4004_2408;

/// Where a probe is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Of the instruction, bytes into the file.
    pub(super) offset: u64,
    /// Of the semaphore; 0: none.
    pub(super) semaphore: u64,
    /// The program runs when the function returns.
    pub(super) at_return: bool,
}

/// Attaches a loaded program in all threads of a process; the probe lives as long as the returned value. `cookie`: kernels
/// without links of perf events (before Linux 5.15) take 0 only.
///
/// # Errors
/// The process or the file is gone, the kernel has no such events, or another tracer probes the place with
/// another semaphore.
pub(super) fn attach(
    program: BorrowedFd<'_>,
    tgid: u32,
    path: &str,
    place: Place,
    cookie: u64,
) -> io::Result<OwnedFd> {
    let path = CString::new(path)?;
    let event_type = fs::read_to_string(EVENT_TYPE)
        .map_err(|error| io::Error::other(format!("`{EVENT_TYPE}`: {error}")))?;
    let semaphore = u32::try_from(place.semaphore).map_err(io::Error::other)?;
    // SAFETY: an all-zero attribute is a valid one.
    let mut event: perf_event_attr = unsafe { std::mem::zeroed() };
    event.type_ = event_type.trim().parse().map_err(io::Error::other)?;
    event.size = u32::try_from(size_of::<perf_event_attr>()).map_err(io::Error::other)?;
    event.config = u64::from(semaphore) << SEMAPHORE_SHIFT | u64::from(place.at_return);
    event.__bindgen_anon_3.uprobe_path = path.as_ptr() as u64;
    event.__bindgen_anon_4.probe_offset = place.offset;
    event.set_disabled(1);
    let (any_cpu, no_group) = (-1, -1);
    // SAFETY: the attribute and its path live; the kernel reads `size` bytes.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const event,
            tgid.cast_signed(),
            any_cpu,
            no_group,
            1_u64 << 3, // PERF_FLAG_FD_CLOEXEC
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for us. The link keeps the event when this is closed.
    let event = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    if !aya::features().bpf_perf_link() {
        return match cookie {
            0 => without_link(program, event),
            _ => Err(io::ErrorKind::Unsupported.into()),
        };
    }

    // SAFETY: an all-zero attribute is a valid one.
    let mut attr: bpf_attr = unsafe { std::mem::zeroed() };
    // SAFETY: this is the member for BPF_LINK_CREATE, and only it is written.
    let link = unsafe { &mut attr.link_create };
    link.__bindgen_anon_1.prog_fd = program.as_raw_fd().cast_unsigned();
    link.__bindgen_anon_2.target_fd = event.as_raw_fd().cast_unsigned();
    link.attach_type = bpf_attach_type::BPF_PERF_EVENT as u32;
    link.__bindgen_anon_3.perf_event.bpf_cookie = cookie;
    bpf(bpf_cmd::BPF_LINK_CREATE, &attr)
}

/// Attaches a program to an event, which then is the probe.
fn without_link(program: BorrowedFd<'_>, event: OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: a request that takes a number.
    match unsafe { libc::ioctl(event.as_raw_fd(), SET_BPF as _, program.as_raw_fd()) } {
        0 => Ok(event),
        _ => Err(io::Error::last_os_error()),
    }
}
