//! The duration of a walk, beside that of the kernel's own for the same event (`memtrace record
//! --time-walks`). When off, the verifier drops all of it.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::BPF_F_USER_STACK,
    helpers::{bpf_ktime_get_ns, generated::bpf_get_stackid},
};
use memtrace_common::event::{Kind, Timing};

use crate::{
    emit::{Wake, emit_in_place, header},
    maps::{SETTINGS, STACK_IDS, loaded},
    scratch::Scratch,
};

#[inline(always)]
fn now() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_ns() }
}

/// Does `walk`, and sends its duration if that is requested.
#[inline(always)]
pub(crate) fn measure(
    context: *mut c_void,
    scratch: &mut Scratch,
    walk: impl FnOnce(&mut Scratch),
) {
    let timed = loaded(&SETTINGS.time_walks) != 0;
    let begin = if timed { now() } else { 0 };
    // Whichever comes second finds the stack in the cache: each comes first about as often.
    let stackid_first = begin & 64 != 0;
    let mut stackid_ns = if timed && stackid_first {
        stackid(context)
    } else {
        0
    };
    let begin = if timed { now() } else { 0 };
    walk(scratch);
    if !timed {
        return;
    }
    let walk_ns = now().wrapping_sub(begin);
    if !stackid_first {
        stackid_ns = stackid(context);
    }
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
