//! The producers' side of the kernel's ring buffer, which serves where [`crate::atomic`] has no instruction that returns
//! the old value.

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    helpers::generated::{
        bpf_ringbuf_discard, bpf_ringbuf_output, bpf_ringbuf_query, bpf_ringbuf_reserve,
        bpf_ringbuf_submit,
    },
    macros::map,
    maps::RingBuf,
};

/// The collector chooses its size when it loads the object.
#[map]
static RECORDS: RingBuf = RingBuf::with_byte_size(4096, 0);

/// Wakes the collector.
#[map]
static BELL: RingBuf = RingBuf::with_byte_size(4096, 0);

/// Room for one record.
pub(crate) struct Entry {
    record: *mut u8,
}

#[inline(always)]
fn records() -> *mut core::ffi::c_void {
    (&raw const RECORDS).cast_mut().cast()
}

impl Entry {
    /// Reserves room for a record of `len` bytes, a constant; `None` if there is no room.
    #[inline(always)]
    pub(crate) fn reserve(len: u64, _most: u64) -> Option<Self> {
        Self::reserve_here(len)
    }

    /// As [`Entry::reserve`].
    #[inline(always)]
    pub(crate) fn reserve_here(len: u64) -> Option<Self> {
        // SAFETY: the map is a ring buffer.
        let record: *mut u8 = unsafe { bpf_ringbuf_reserve(records(), len, 0) }.cast();
        (!record.is_null()).then_some(Self { record })
    }

    /// Where the record goes.
    #[inline(always)]
    pub(crate) fn record<T>(&mut self) -> *mut T {
        self.record.cast()
    }

    /// The record is complete.
    #[inline(always)]
    pub(crate) fn submit(self, _len: u64) {
        // SAFETY: reserved, and given back once.
        unsafe { bpf_ringbuf_submit(self.record.cast(), BPF_RB_NO_WAKEUP.into()) };
    }

    /// There is no record after all.
    #[inline(always)]
    pub(crate) fn discard(self, _len: u64) {
        // SAFETY: as above.
        unsafe { bpf_ringbuf_discard(self.record.cast(), BPF_RB_NO_WAKEUP.into()) };
    }
}

/// Sends a record of `len` bytes; false if there is no room.
///
/// # Safety
/// `data` must be valid for `len` bytes, which the verifier must be able to see.
#[inline(always)]
pub(crate) unsafe fn copy(data: *const u8, len: u64) -> bool {
    let data = data.cast_mut().cast();
    // SAFETY: the map is a ring buffer; the rest is the caller's promise.
    unsafe { bpf_ringbuf_output(records(), data, len, BPF_RB_NO_WAKEUP.into()) == 0 }
}

/// Bytes that the collector has not read.
#[inline(always)]
pub(crate) fn unread() -> u64 {
    // SAFETY: the map is a ring buffer.
    unsafe { bpf_ringbuf_query(records(), BPF_RB_AVAIL_DATA.into()) }
}

/// Wakes the collector.
#[inline(always)]
pub(crate) fn wake() {
    // Without room, the collector has been woken already. It polls as well.
    if let Some(mut entry) = BELL.reserve::<u64>(0) {
        entry.write(0);
        entry.submit(u64::from(BPF_RB_FORCE_WAKEUP));
    }
}
