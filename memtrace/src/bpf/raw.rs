//! Features that aya does not offer: bpf(2) itself, shared types as map values, and arrays of the
//! kernel side in our own memory.

use std::{
    io,
    ops::{Deref, DerefMut},
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr::NonNull,
};

use aya_obj::generated::{bpf_attr, bpf_cmd};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A type that may cross the kernel boundary as plain memory.
pub(super) trait Plain: Copy + FromBytes + Immutable + IntoBytes + 'static {}

impl<T: Copy + FromBytes + Immutable + IntoBytes + 'static> Plain for T {}

/// A shared type in a map: aya's marker cannot be put on another crate's type.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Raw<T>(pub(super) T);

// SAFETY: every bit pattern is a value, and there is no padding.
unsafe impl<T: Plain> aya::Pod for Raw<T> {}

/// Runs a program by BPF_PROG_RUN, with the words of `context` as its arguments.
pub(super) fn run(program: BorrowedFd<'_>, context: &[u64]) -> io::Result<()> {
    // SAFETY: an all-zero attribute is a valid one.
    let mut attr: bpf_attr = unsafe { std::mem::zeroed() };
    // SAFETY: this is the member for BPF_PROG_RUN, and only it is written.
    let run = unsafe { &mut attr.test };
    run.prog_fd = program.as_raw_fd().cast_unsigned();
    run.ctx_in = context.as_ptr() as u64;
    run.ctx_size_in = size_of_val(context) as u32;
    query(bpf_cmd::BPF_PROG_TEST_RUN, &mut attr)
}

/// Issues a bpf(2) command that only reads `attr`; the result depends on the command.
pub(super) fn call(command: bpf_cmd, attr: &bpf_attr) -> io::Result<i32> {
    issue(command, std::ptr::from_ref(attr).cast_mut())
}

/// Issues a bpf(2) command that writes its answer into `attr`.
pub(super) fn query(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<()> {
    issue(command, attr).map(drop)
}

/// Issues a bpf(2) command. `attr` must be writable if the command writes to it.
fn issue(command: bpf_cmd, attr: *mut bpf_attr) -> io::Result<i32> {
    // SAFETY: `attr` and the memory it points to live; the kernel uses at most `size_of` bytes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as libc::c_long,
            attr,
            size_of::<bpf_attr>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result as i32)
}

/// A bpf(2) command that gives a descriptor.
pub(super) fn bpf(command: bpf_cmd, attr: &bpf_attr) -> io::Result<OwnedFd> {
    let fd = call(command, attr)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Writes one element of a map. From any thread: map of maps wait for the kernel to see
/// every CPU pass, which several threads can do at the same time.
pub(super) fn update<K: Plain, V: Plain>(map: BorrowedFd<'_>, key: K, value: V) -> io::Result<()> {
    // SAFETY: an all-zero attribute is a valid one.
    let mut attr: bpf_attr = unsafe { std::mem::zeroed() };
    // SAFETY: this is the member for BPF_MAP_UPDATE_ELEM, and only it is written.
    let element = unsafe { &mut attr.__bindgen_anon_2 };
    element.map_fd = map.as_raw_fd().cast_unsigned();
    element.key = (&raw const key) as u64;
    element.__bindgen_anon_1.value = (&raw const value) as u64;
    call(bpf_cmd::BPF_MAP_UPDATE_ELEM, &attr).map(drop)
}

/// The values of an array map (BPF_F_MMAPABLE) as a slice: the kernel side sees every write.
pub(super) struct Shared<T> {
    start: NonNull<T>,
    len: usize,
}

// SAFETY: memory that only this value refers to on this side.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T: Plain> Shared<T> {
    /// Maps `len` elements of the array `map`, whose values are `T`s.
    pub(super) fn map(map: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping of an open descriptor; the kernel checks the rest.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len * size_of::<T>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { start, len })
    }
}

impl<T> Shared<T> {
    /// One of them, which others may write at the same time as this side.
    pub(super) fn at(&self, index: usize) -> Option<*mut T> {
        // SAFETY: within the mapping.
        (index < self.len).then(|| unsafe { self.start.as_ptr().add(index) })
    }
}

impl<T> Deref for Shared<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: mapped for `len` elements, of a type for which any bytes are valid.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above. Words that the kernel side writes too are accessed by atomic or volatile operations, and
        // records of the ring buffer only while this side owns them.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len * size_of::<T>()) };
    }
}
