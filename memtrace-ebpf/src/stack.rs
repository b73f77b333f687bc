//! Takes the current user stack and tells the collector of it once.
//!
//! The interface is [`take`]: a key now, the frames (as a record) when the key
//! is new. How the frames are found is nobody else's business: today the kernel
//! follows frame pointers.

use core::ffi::c_void;

use aya_ebpf::{bindings::BPF_F_USER_STACK, helpers::generated::bpf_get_stack};
use memtrace_common::{
    event::{Kind, Stack, flags},
    limits::MAX_FRAMES,
    loss::Reason,
};

use crate::{
    atomic::{claim, release},
    emit::{emit_bytes, header, lost},
    maps::{SCRATCH, SCRATCH_SLOTS, SEEN},
    thread::Caller,
};

/// A stack record in the making. One word more than frames, so that a masked
/// index is always in range.
#[repr(C)]
pub(crate) struct Scratch {
    busy: u64,
    record: Stack,
    frames: [u64; MAX_FRAMES + 1],
}

const FRAME_BYTES: u32 = (MAX_FRAMES * 8) as u32;

/// Key of the current user stack, 0 (counted) if there is none.
#[inline(always)]
pub(crate) fn take(context: *mut c_void, caller: &Caller) -> u64 {
    for slot in 0..SCRATCH_SLOTS {
        let Some(scratch) = SCRATCH.get_ptr_mut(slot) else {
            continue;
        };
        // SAFETY: a live map value; `busy` makes this program the only user of the rest of it.
        unsafe {
            if claim(&raw mut (*scratch).busy) {
                let key = take_into(context, caller, &mut *scratch);
                release(&raw mut (*scratch).busy);
                return key;
            }
        }
    }
    lost(Reason::ScratchBusy);
    0
}

#[inline(never)]
fn take_into(context: *mut c_void, caller: &Caller, scratch: &mut Scratch) -> u64 {
    // SAFETY: the buffer holds FRAME_BYTES bytes.
    let bytes = unsafe {
        bpf_get_stack(
            context,
            scratch.frames.as_mut_ptr().cast(),
            FRAME_BYTES,
            u64::from(BPF_F_USER_STACK),
        )
    };
    if bytes <= 0 {
        lost(Reason::StackUnreadable);
        return 0;
    }
    let n = (bytes as u64 >> 3).min(MAX_FRAMES as u64);
    let mut key = caller.epoch ^ 0x9e37_79b9_7f4a_7c15;
    let read = n;
    let mut n = 0;
    for i in 0..MAX_FRAMES {
        // A frame pointer that was none can lead to a zero: nothing is beyond it.
        if i as u64 >= read || scratch.frames[i] == 0 {
            break;
        }
        n = i as u64 + 1;
        // Every frame is a return address (the probes fire at returns, the
        // system calls after their instruction); the call is what is looked up.
        let pc = scratch.frames[i].wrapping_sub(1);
        scratch.frames[i] = pc;
        key = (key ^ pc).wrapping_mul(0xff51_afd7_ed55_8ccd);
        key ^= key >> 32;
    }
    let key = key.max(1);
    let truncated = read == MAX_FRAMES as u64;
    if truncated {
        lost(Reason::StackTruncated);
    }
    // SAFETY: the value is not kept.
    if unsafe { SEEN.get(&key) }.is_some() {
        return key;
    }
    let mut head = header(Kind::Stack, caller);
    if truncated {
        head.flags = flags::TRUNCATED;
    }
    scratch.record = Stack {
        header: head,
        stack: key,
        n,
    };
    let len = (size_of::<Stack>() as u64 + n * 8) & 0x7ff;
    // SAFETY: the record and its frames lie side by side, and `len` ends in them.
    let sent = unsafe {
        emit_bytes(
            (&raw const scratch.record).cast(),
            len,
            Reason::RingFullStack,
        )
    };
    if sent {
        // Full or not, a stack that is not remembered is merely reported again.
        let _ = SEEN.insert(&key, &1, 0);
    }
    key
}

const _: () = assert!(size_of::<Stack>() + FRAME_BYTES as usize <= 0x7ff);
