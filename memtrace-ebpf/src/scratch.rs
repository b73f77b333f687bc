//! The state of a stack walk. It does not fit the 512 bytes of a program's own stack, so it lives
//! in a map.

use aya_ebpf::{helpers::generated, macros::map, maps::Array};
#[cfg(not(feature = "legacy"))]
use memtrace_common::limits::SPARE_SCRATCHES;
use memtrace_common::{
    code_map::Snapshot,
    event::Stack,
    hash::{SEED, mix},
    limits::{MAX_FRAMES, SCRATCHES},
    python::{FRAME_BYTES, FRAME_BYTES_BEFORE_311, IMPORT_FILES, Imports, Interpreter},
    row_cache::FoundRow,
    unwind::{End, Registers},
};

#[cfg(not(feature = "legacy"))]
use crate::maps::{SETTINGS, loaded};
use crate::{
    arch::publish,
    atomic::claim,
    caller::Caller,
    code::Code,
    kernel::PendingReturns,
    memory::{PAGE, StackWindow, Window},
    subject::Subject,
};

/// Uprobe programs can be preempted, so each CPU has several, and more are for any CPU whose own are all in use. The
/// collector chooses the number of elements when it loads the object.
#[map]
static SCRATCH: Array<Scratch> = Array::with_max_entries(1, 0);

/// A stack record in the making. One word more than frames, so that a masked
/// index is always in range.
#[repr(C)]
pub(crate) struct Scratch {
    busy: u64,
    /// Its index in the map.
    pub(crate) slot: u64,
    pub(crate) caller: Caller,
    /// Where the walk begins.
    pub(crate) at: Registers,
    pub(crate) walk: WalkState,
    pub(crate) record: Stack,
    frames: [u64; FRAMES],
}

pub(crate) const FRAMES: usize = MAX_FRAMES + 1;

impl Scratch {
    /// A free one of this CPU's, or a spare one.
    #[inline(always)]
    pub(crate) fn claim() -> Option<&'static mut Self> {
        // SAFETY: the helper has no preconditions.
        let own = unsafe { generated::bpf_get_smp_processor_id() } * SCRATCHES;
        // VERIFIER: from 0, so that it sees the end of the loop.
        for slot in 0..SCRATCHES {
            let slot = own + slot;
            let scratch = SCRATCH.get_ptr_mut(slot)?;
            // SAFETY: a live map value; `busy` makes this program the only user of the rest of it.
            unsafe {
                if claim(&raw mut (*scratch).busy) {
                    (*scratch).slot = u64::from(slot);
                    return Some(&mut *scratch);
                }
            }
        }
        // Threads that were preempted have all of them.
        let spare = SCRATCH.get_ptr_mut(claim_spare() as u32)?;
        // SAFETY: as above.
        Some(unsafe { &mut *spare })
    }

    /// Gives it back.
    #[inline(always)]
    pub(crate) fn release(&mut self) {
        // SAFETY: a live map value, which this program has claimed.
        unsafe { publish(&raw mut self.busy, 0) };
    }

    /// Begins a record without frames.
    #[inline(always)]
    pub(crate) fn begin(&mut self) {
        self.record.stack = SEED;
        self.record.n = 0;
        self.walk.end = End::Truncated;
    }

    /// Number of frames so far.
    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.record.n
    }

    /// The frames, followed by leftovers of earlier stacks.
    #[inline(always)]
    pub(crate) fn frames(&self) -> &[u64; FRAMES] {
        &self.frames
    }

    /// Where the kernel's own walk writes.
    #[inline(always)]
    pub(crate) fn frames_mut(&mut self) -> &mut [u64; FRAMES] {
        &mut self.frames
    }

    /// One frame; an index beyond the frames gives a leftover.
    #[inline(always)]
    pub(crate) fn frame(&self, index: usize) -> u64 {
        self.frames[index & (FRAMES - 1)]
    }

    /// Adds a frame. `epoch` is mixed in if the word alone is ambiguous. False if there is no room.
    #[inline(always)]
    pub(crate) fn push(&mut self, word: u64, epoch: u64) -> bool {
        let n = self.record.n;
        if n >= MAX_FRAMES as u32 {
            return false;
        }
        self.frames[n as usize & (FRAMES - 1)] = word;
        self.record.n = n + 1;
        self.record.stack = mix(self.record.stack ^ epoch, word);
        true
    }
}

#[cfg(not(feature = "legacy"))]
crate::argument::by_pointer!(Scratch);

#[cfg(feature = "legacy")]
impl crate::argument::Argument for Scratch {
    /// Its index in the map.
    type As = u64;

    #[inline(always)]
    fn argument(&mut self) -> u64 {
        self.slot
    }

    #[inline(always)]
    fn of(slot: u64) -> Option<&'static mut Self> {
        let scratch = SCRATCH.get_ptr_mut(slot as u32)?;
        // SAFETY: a live map value, which the caller has claimed.
        Some(unsafe { &mut *scratch })
    }
}

/// Where programs cannot be preempted, no processor needs a spare one.
#[cfg(feature = "legacy")]
#[inline(always)]
fn claim_spare() -> u64 {
    u64::from(u32::MAX)
}

// VERIFIER: a global function.
#[cfg(not(feature = "legacy"))]
/// The index of a spare scratch that was free, and no index if there is none.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn claim_spare() -> u64 {
    for spare in 0..SPARE_SCRATCHES {
        let slot = loaded(&SETTINGS.spares) + spare;
        let Some(scratch) = SCRATCH.get_ptr_mut(slot) else {
            break;
        };
        // SAFETY: as in `claim`.
        unsafe {
            if claim(&raw mut (*scratch).busy) {
                (*scratch).slot = u64::from(slot);
                return u64::from(slot);
            }
        }
    }
    u64::from(u32::MAX)
}

/// The facts about a process that walks have used last, see [`crate::facts`].
#[repr(C)]
pub(crate) struct Facts {
    /// The process whose memory it is.
    pub(crate) space: u32,
    /// 1 if there is a snapshot.
    pub(crate) has_snapshot: u32,
    /// The number of changes as of which they are right; 0: none are known.
    pub(crate) as_of: u64,
    pub(crate) snapshot: Snapshot,
    pub(crate) imports: Imports,
}

/// Where a walk along native frames is.
#[repr(C)]
pub(crate) struct WalkState {
    pub(crate) at: Registers,
    /// The meaning of addresses.
    pub(crate) code: Code,
    /// 1 if `at.pc` is a return address: the call before it is looked up.
    pub(crate) is_return: u64,
    /// How the walk ended.
    pub(crate) end: End,
    /// 1 if the last step was along a frame pointer.
    pub(crate) by_frame_pointer: i32,
    pub(crate) returns: PendingReturns,
    /// Where the last step has read the return address, and what was there, see [`memtrace_common::unwind::Caller`].
    pub(crate) slot: u64,
    pub(crate) slot_word: u64,
    /// The known facts about the present address.
    pub(crate) row: FoundRow,
    pub(crate) stack: StackWindow,
    pub(crate) memo: MemoState,
    /// The key of this walk, if it is among [`crate::walks`]; else 0.
    pub(crate) found: u64,
    /// The number of the walk before among those, 0: none, and its thread.
    pub(crate) before: u64,
    pub(crate) before_of: u64,
    /// Walks since one was found there.
    pub(crate) missed: u64,
    /// Place of a walk in its set that this one replaces, plus one; 0: any.
    pub(crate) replaces: u64,
    /// Of the words that were compared so far.
    pub(crate) hash: u64,
    /// The number of changes as of which the subject is right.
    pub(crate) as_of: u64,
    /// See [`crate::thread::Thread::next_walk`]; 0: none of those.
    pub(crate) number: u64,
    pub(crate) facts: Facts,
    pub(crate) python: PythonState,
}

impl WalkState {
    /// The present address: of a caller, that of the call.
    #[inline(always)]
    pub(crate) fn pc(&self) -> u64 {
        self.at.pc.wrapping_sub(self.is_return)
    }
}

/// The state of a walk with regard to the one before, see [`crate::memo`].
#[repr(C)]
pub(crate) struct MemoState {
    /// Which of the scratch's two memos has the walk before.
    pub(crate) side: u32,
    /// Its step that this walk may meet next.
    pub(crate) next: u32,
    /// 1 if the frames are not those of the steps any more.
    pub(crate) is_forgotten: u32,
    pad: u32,
    /// 1 if the thread's own frame pointer matters.
    pub(crate) uses_fp: u64,
    /// Where the present frame pointer was read; 0: it is the thread's.
    pub(crate) fp_from: u64,
    /// What its steps are true of.
    pub(crate) of: Subject,
}

impl MemoState {
    /// The frames of this walk are about to be replaced.
    #[inline(always)]
    pub(crate) fn forget(&mut self) {
        self.is_forgotten = 1;
    }

    /// Whether they were.
    #[inline(always)]
    pub(crate) fn is_forgotten(&self) -> bool {
        self.is_forgotten != 0
    }
}

/// Where a walk along Python frames is.
#[repr(C)]
pub(crate) struct PythonState {
    /// The next frame; 0: none.
    pub(crate) frame: u64,
    /// The thread state that it belongs to; 0 at first.
    pub(crate) thread: u64,
    /// 1 while Python frames are collected instead of native ones.
    pub(crate) running: u32,
    /// 1 once those of the present evaluation loop were.
    pub(crate) done: u32,
    /// 1 once the innermost frame was searched.
    pub(crate) searched: u32,
    /// Index of the last Python frame so far, plus one; 0: none.
    pub(crate) last: u32,
    /// The only interpreter of a process when it was last looked at, and that process's image.
    pub(crate) alone: u64,
    pub(crate) alone_in: u64,
    /// The thread state that was found last, 0: none, and its thread and that one's image.
    pub(crate) own: u64,
    pub(crate) own_of: u64,
    pub(crate) own_in: u64,
    /// The import system, if imports are summarised.
    pub(crate) imports: Imports,
    /// Where it was entered, if that was looked for.
    pub(crate) import: Import,
    pub(crate) search: ThreadSearch,
    pub(crate) frames: Window,
    /// Part of a code object, or of an object that it refers to.
    pub(crate) object: Window,
}

/// Where Python frames enter the import system.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Import {
    /// The code of the frame that the import system has called; 0: none.
    pub(crate) module: u64,
    /// The code of the import system's innermost frame; 0: none.
    pub(crate) system: u64,
    /// The last code of the import system, the program that it belongs to, and its fingerprint. It is frozen into the
    /// interpreter, and stays as long as that runs.
    pub(crate) last: u64,
    pub(crate) last_in: u64,
    pub(crate) last_print: u64,
}

/// A search for the thread state of the thread whose thread pointer is `id`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ThreadSearch {
    pub(crate) id: u64,
    /// Where it is.
    pub(crate) interpreter: u64,
    pub(crate) thread: u64,
    /// The first that is the thread's and has frames, and another one; 0: none.
    pub(crate) found: u64,
    pub(crate) another: u64,
}

impl PythonState {
    #[inline(always)]
    pub(crate) fn begin(&mut self) {
        self.frame = 0;
        self.thread = 0;
        self.running = 0;
        self.done = 0;
        self.searched = 0;
        self.last = 0;
        self.imports.files = [0; IMPORT_FILES];
        self.frames.clear();
    }

    #[inline(always)]
    pub(crate) fn is_running(&self) -> bool {
        self.running != 0
    }

    #[inline(always)]
    pub(crate) fn end_run(&mut self) {
        self.running = 0;
        self.done = 1;
    }

    /// Copies the frame at `frame`, if it is not in the copy. False if it cannot be read.
    #[inline(always)]
    pub(crate) fn copy_frame(&mut self, frame: u64, python: &Interpreter) -> bool {
        if python.minor < 11 {
            return self.frames.copy(frame, FRAME_BYTES_BEFORE_311);
        }
        let end = frame.wrapping_add(FRAME_BYTES);
        if self.frames.get(frame).is_some() && self.frames.get(end.wrapping_sub(8)).is_some() {
            return true;
        }
        // Since 3.11 most lie behind each other, the innermost last.
        let start = end.wrapping_sub(<Window>::BYTES).max(frame & !(PAGE - 1));
        self.frames.copy(start, end.wrapping_sub(start))
    }
}

const _: () = assert!(FRAMES.is_power_of_two());
