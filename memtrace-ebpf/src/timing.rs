//! The duration of a walk, beside that of the kernel's own for the same event (`memtrace record
//! --time-walks`). When off, the verifier drops all of it.

use core::ffi::c_void;

use aya_ebpf::{bindings::BPF_F_USER_STACK, helpers::generated::bpf_get_stackid};
use memtrace_common::event::{Kind, Timing};

use crate::{
    emit::{Wake, emit_in_place, header, now},
    maps::{SETTINGS, STACK_IDS, loaded},
    scratch::Scratch,
};

/// When a walk began, and the duration of the kernel's own if that came before it, else 0.
pub(crate) struct Began {
    at_ns: u64,
    stackid_ns: u64,
}

/// A walk is about to begin.
#[inline(always)]
pub(crate) fn begin(context: *mut c_void) -> Began {
    let mut began = Began {
        at_ns: 0,
        stackid_ns: 0,
    };
    if loaded(&SETTINGS.time_walks) != 0 {
        // Whichever comes second finds the stack in the cache: each comes first about as often.
        if now() & 64 != 0 {
            began.stackid_ns = stackid(context);
        }
        began.at_ns = now();
    }
    began
}

/// It has ended: sends its duration if that is requested.
#[inline(always)]
pub(crate) fn end(context: *mut c_void, scratch: &Scratch, began: Began) {
    if loaded(&SETTINGS.time_walks) == 0 {
        return;
    }
    let walk_ns = now().wrapping_sub(began.at_ns);
    let stackid_ns = match began.stackid_ns {
        0 => stackid(context),
        known => known,
    };
    let timing = Timing {
        header: header(Kind::Timing, &scratch.caller),
        walk_ns,
        stackid_ns,
        frames: scratch.len(),
        end: scratch.walk.end as u32,
    };
    // SAFETY: the pointer is to room for one.
    emit_in_place(None, Wake::Lazily, |to: *mut Timing| unsafe {
        to.write(timing)
    });
}

/// Nanoseconds of `bpf_get_stackid`.
#[inline(always)]
fn stackid(context: *mut c_void) -> u64 {
    let begin = now();
    // SAFETY: the map is one of stacks; the context is the program's own.
    unsafe {
        bpf_get_stackid(
            context,
            (&raw const STACK_IDS).cast_mut().cast(),
            u64::from(BPF_F_USER_STACK),
        )
    };
    now().wrapping_sub(begin)
}
