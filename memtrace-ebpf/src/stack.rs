//! Takes the current user stack and reports it once.
//!
//! The interface is [`take`]: a key now, the frames (as a record) when the key
//! is new. How the frames are found is [`crate::unwind`]'s business; where the
//! kernel cannot do that, its own walk along frame pointers has to serve.

use core::ffi::c_void;

use aya_ebpf::{bindings::BPF_F_USER_STACK, helpers::generated::bpf_get_stack};
use memtrace_common::{
    event::{COMM, Kind, Stack},
    hash::mix,
    limits::MAX_FRAME_POINTERS,
    loss::Reason,
    unwind::{End, Registers, Word},
};

use crate::{
    argument::{Argument, As},
    caller::Caller,
    emit::{emit_bytes, header, lost},
    kernel::CurrentTask,
    loops::{BREAK, CONTINUE, repeat},
    maps::{SEEN, SEEN_SETS, SEEN_WAYS, SETTINGS, changes_before, loaded},
    memo, python_code,
    scratch::{FRAMES, Scratch},
    subject::Subject,
    thread::Thread,
    timing, unwind, verify, walks,
};

/// Key of the current user stack, 0 (counted) if there is none. `at` fills in the
/// registers of a caller: `pc` is a return address. `thread`: the caller's, if what is known of its process still holds.
#[inline(always)]
pub(crate) fn take(
    context: *mut c_void,
    caller: &Caller,
    thread: Option<&mut Thread>,
    at: impl FnOnce(&mut Registers),
) -> u64 {
    take_by(context, caller, thread, at, |scratch| {
        walks::look_up(scratch.argument())
    })
}

/// Like [`take`], but faster and with more code; the most frequent records use it.
#[inline(always)]
pub(crate) fn take_here(
    context: *mut c_void,
    task: CurrentTask,
    caller: &Caller,
    thread: &mut Thread,
    at: impl FnOnce(&mut Registers),
) -> u64 {
    take_by(context, caller, Some(thread), at, |scratch| {
        walks::look_up_here(scratch, task)
    })
}

#[inline(always)]
fn take_by(
    context: *mut c_void,
    caller: &Caller,
    thread: Option<&mut Thread>,
    at: impl FnOnce(&mut Registers),
    look_up: impl FnOnce(&mut Scratch) -> u64,
) -> u64 {
    let Some(scratch) = Scratch::claim() else {
        lost(Reason::ScratchBusy);
        return 0;
    };
    scratch.caller = *caller;
    scratch.walk.found = 0;
    match thread {
        Some(thread) => {
            let (subject, as_of) = thread.subject();
            scratch.walk.memo.of = *subject;
            scratch.walk.as_of = as_of;
            scratch.walk.number = thread.next_walk();
        }
        None => {
            look_up_subject(scratch.argument());
            scratch.walk.number = 0;
        }
    }
    at(&mut scratch.at);
    let mut key = 0;
    let began = timing::begin(context);
    if loaded(&SETTINGS.unwind) == 0 {
        follow_frame_pointers(context, scratch);
    } else {
        key = look_up(scratch);
        scratch.walk.found = key;
        if key == 0 || verify::is_on() {
            key = 0;
            follow_tables(scratch);
        }
    }
    timing::end(context, scratch, began);
    if key == 0 {
        key = finish(scratch.argument());
    }
    scratch.release();
    key
}

// VERIFIER: a global function.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn look_up_subject(scratch: As<Scratch>) -> u64 {
    if let Some(scratch) = Scratch::of(scratch) {
        scratch.walk.as_of = changes_before();
        scratch.walk.memo.of = Subject::of(&scratch.caller);
    }
    0
}

/// Walks again if code was mapped or the list of mappings replaced meanwhile: the next walk mostly
/// knows the new list.
#[inline(always)]
fn follow_tables(scratch: &mut Scratch) {
    for _ in 0..ATTEMPTS {
        unwind::walk(scratch.argument());
        if scratch.walk.end != End::Stale {
            break;
        }
    }
}

/// Attempts at a walk before its stack is counted as `stack_stale`.
const ATTEMPTS: u32 = 3;

/// The kernel's own walk, which ends at the first function without a frame pointer.
#[inline(always)]
fn follow_frame_pointers(context: *mut c_void, scratch: &mut Scratch) {
    scratch.begin();
    // SAFETY: the buffer holds more.
    let bytes = unsafe {
        bpf_get_stack(
            context,
            scratch.frames_mut().as_mut_ptr().cast(),
            (MAX_FRAME_POINTERS * 8) as u32,
            u64::from(BPF_F_USER_STACK),
        )
    };
    frames_of_pointers(
        scratch.argument(),
        if bytes <= 0 { 0 } else { bytes as u64 >> 3 },
    );
}

// VERIFIER: a global function.
/// Turns `read` return addresses at the beginning of the frames into frames.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn frames_of_pointers(scratch: As<Scratch>, read: u64) -> u64 {
    let Some(scratch) = Scratch::of(scratch) else {
        return 0;
    };
    let mut kept = Kept { scratch, read };
    repeat(MAX_FRAME_POINTERS as u32, keep_frame, &mut kept);
    0
}

/// The state of [`keep_frame`].
struct Kept {
    scratch: *mut Scratch,
    read: u64,
}

/// Callback of [`repeat`].
unsafe extern "C" fn keep_frame(index: u64, kept: *mut Kept) -> u64 {
    // SAFETY: the pointers are those that `frames_of_pointers` passed.
    let (scratch, read) = unsafe { (&mut *(*kept).scratch, (*kept).read) };
    let pc = scratch.frame(index as usize);
    // A register that is not a frame pointer can lead to a zero: nothing is beyond it.
    if index >= read || pc == 0 {
        scratch.walk.end = if read == 0 {
            End::Unreadable
        } else {
            End::FramePointersOnly
        };
        return BREAK;
    }
    // Every frame is a return address (the probes fire at returns, the system calls after their
    // instruction); the call is looked up.
    scratch.push(Word::absolute(pc.wrapping_sub(1)), scratch.caller.epoch);
    CONTINUE
}

/// The reason under which a walk with this end is counted.
#[inline(always)]
fn reason(end: End) -> Option<Reason> {
    Some(match end {
        End::Complete | End::FramePointersOnly => return None,
        End::Truncated => Reason::StackTruncated,
        End::NoMapping => Reason::StackNoMapping,
        End::NoTable => Reason::StackNoTable,
        End::NoRow => Reason::StackNoRow,
        End::UnsupportedRule => Reason::StackUnsupportedRule,
        End::Unreadable => Reason::StackUnreadable,
        End::Stale => Reason::StackStale,
        End::BadFramePointer => Reason::StackBadFramePointer,
    })
}

// VERIFIER: a global function.
/// Counts how the walk ended, and sends the record unless it was sent before; its key, 0 if there is
/// no frame.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn finish(scratch: As<Scratch>) -> u64 {
    let Some(scratch) = Scratch::of(scratch) else {
        return 0;
    };
    let end = scratch.walk.end;
    if !scratch.walk.memo.is_forgotten() {
        verify::sample(scratch, end);
    }
    if let Some(reason) = reason(end) {
        lost(reason);
    }
    if scratch.record.n == 0 {
        return 0;
    }
    let thread = name_thread(&mut scratch.record.comm);
    let key = mix(scratch.record.stack ^ thread, end as u64).max(walks::NO_KEY + 1);
    verify::compare(scratch.walk.found, key);
    // Array indices are always in range.
    let Some(seen) = SEEN.get_ptr_mut(key as u32 & (SEEN_SETS - 1)) else {
        return key;
    };
    // SAFETY: a live map value.
    let seen = unsafe { &mut *seen };
    if !was_sent(seen, key) {
        python_code::report(scratch);
        if send(scratch, key, end) {
            remember(seen, key);
        }
    } else if end == End::Complete
        && scratch.walk.found == 0
        && let Some((memo, _)) = memo::of(scratch)
    {
        // Its stack was met before, and may be met again. SAFETY: a live map value, which belongs to the claimed scratch.
        walks::store(
            scratch.argument(),
            walks::of_reads(unsafe { &mut *memo }),
            key,
        );
    }
    key
}

/// False if there was no room.
#[inline(always)]
fn send(scratch: &mut Scratch, key: u64, end: End) -> bool {
    scratch.record.header = header(Kind::Stack, &scratch.caller);
    scratch.record.image = scratch.caller.image;
    scratch.record.stack = key;
    scratch.record.end = end as u32;
    let record = (&raw const scratch.record).cast();
    let n = &raw const scratch.record.n;
    // Room at the end of a chunk is left empty if the longest record would not fit.
    // SAFETY: the record and its frames lie side by side, and the length ends in them.
    unsafe {
        if u64::from(n.read()) < SHORT {
            emit_bytes::<{ bytes(SHORT) }>(record, bytes(below::<SHORT>(n)), REASON)
        } else {
            emit_bytes::<{ bytes(MOST) }>(record, bytes(below::<MOST>(n)), REASON)
        }
    }
}

/// VERIFIER: a number that it sees to be below `N`, a power of two. Volatile, or the compiler drops the mask.
///
/// # Safety
/// `n` must be valid to read.
#[inline(always)]
unsafe fn below<const N: u64>(n: *const u32) -> u64 {
    // SAFETY: the caller's promise.
    u64::from(unsafe { n.read_volatile() }) & (N - 1)
}

/// Why a stack is not sent.
const REASON: Reason = Reason::RingFullStack;

/// Most stacks have fewer words; a power of two.
const SHORT: u64 = 256;

/// All stacks have fewer words; a power of two.
const MOST: u64 = FRAMES as u64;

/// Bytes of the record of a stack of `n` words.
const fn bytes(n: u64) -> u64 {
    size_of::<Stack>() as u64 + n * 8
}

/// Writes the current thread's name; returns a hash that distinguishes it.
#[inline(always)]
fn name_thread(name: &mut [u8; COMM]) -> u64 {
    let [first, second] = CurrentTask::get().name();
    // SAFETY: as many bytes; all values are valid.
    *name = unsafe { core::mem::transmute::<[u64; 2], [u8; COMM]>([first, second]) };
    mix(mix(0, first), second)
}

/// Whether a key is in its set. Another CPU may be writing there: then the stack is merely sent
/// again.
#[inline(always)]
fn was_sent(seen: &[u64; SEEN_WAYS], key: u64) -> bool {
    // SAFETY: references are valid to read.
    seen.iter()
        .any(|known| unsafe { core::ptr::read_volatile(known) } == key)
}

/// Puts a key into its set, from which the oldest one goes.
#[inline(always)]
fn remember(seen: &mut [u64; SEEN_WAYS], key: u64) {
    let [first, second, third, _] = *seen;
    *seen = [key, first, second, third];
}

const _: () = assert!(SEEN_SETS.is_power_of_two());
