//! CPython's frames: found where the native walk meets the interpreter's
//! evaluation loop, and put in place of it.
//!
//! A run of the loop evaluates one or more Python frames, the innermost first
//! in the thread state's list; where a run ends depends on the version (see
//! `memtrace_common::python::Interpreter`). The native frame of the loop
//! follows its Python frames.

use memtrace_common::{
    hash::{SEED, mix},
    limits::MAX_FRAMES,
    loss::Reason,
    python::{
        BYTES_HEAD, CODE_BYTES, CODE_WINDOW, IMPORT_NATIVE_FRAMES, Identity, Interpreter, NONE,
        NOT_BEGUN, STR_HASH, fingerprint,
    },
    unwind::{End, Word},
};

#[cfg(feature = "legacy")]
use crate::loops::ROUND;
use crate::{
    arch::is_thread,
    argument::{Argument, As},
    codes::{self, Seen},
    emit::lost,
    facts,
    interpreter::{
        AsInterpreter, AsPythonState, interpreter, of_interpreter, of_python_state, python_state,
    },
    kernel::CurrentTask,
    loops::{BREAK, CONTINUE, repeat},
    maps::THREAD_STATES,
    memo::Memo,
    memory::{Window, word_or_zero},
    scratch::{PythonState, Scratch, ThreadSearch},
};

/// The word of a copied object that holds the field at `offset`.
#[inline(always)]
pub(crate) fn field(window: &Window, object: u64, offset: u32) -> u64 {
    let abs_addr = object.wrapping_add(u64::from(offset & !7));
    window.get(abs_addr).unwrap_or(0)
}

/// Whether a native frame is that of an evaluation loop.
#[inline(always)]
pub(crate) fn evaluates(python: &Interpreter, word: u64) -> bool {
    let [hot, cold] = &python.eval;
    let (exec, vaddr) = Word::in_file(word);
    Word::is_file(word)
        && exec == python.exec
        && ((vaddr >= hot[0] && vaddr < hot[1]) || (vaddr >= cold[0] && vaddr < cold[1]))
}

/// Whether Python frames come before this native frame of an evaluation loop; then [`next_python_frame`] collects them.
#[inline(always)]
pub(crate) fn enters(scratch: &mut Scratch, python: &Interpreter, memo: &mut Memo) -> bool {
    let state = &mut scratch.walk.python;
    if state.done != 0 {
        state.done = 0;
        return false;
    }
    if state.searched == 0 {
        state.searched = 1;
        let (interpreter, image) = (of_interpreter(python, scratch), scratch.caller.image);
        let state = of_python_state(scratch);
        if find_innermost(state, interpreter, image) == AT_ONCE {
            keep_innermost(state, interpreter, memo.argument());
        } else {
            memo.reads.open();
        }
        if scratch.walk.memo.of.has_imports != 0 {
            scratch.walk.python.imports = facts::imports(scratch);
        }
    }
    let state = &mut scratch.walk.python;
    if state.frame == 0 {
        return false;
    }
    state.running = 1;
    true
}

/// The code object of a frame that was copied.
#[inline(always)]
pub(crate) fn code_of(state: &PythonState, frame: u64, python: &Interpreter) -> u64 {
    // The low bits are tags in 3.14.
    field(&state.frames, frame, python.frame_code) & !7
}

/// The byte of a frame that was copied which says where a run of the loop ends.
#[inline(always)]
pub(crate) fn boundary_of(state: &PythonState, frame: u64, python: &Interpreter) -> u8 {
    let word = field(&state.frames, frame, python.frame_boundary);
    (word >> ((python.frame_boundary & 7) << 3)) as u8
}

/// Whether a frame with this boundary is not one of the program, but of the loop itself.
#[inline(always)]
pub(crate) fn is_shim(python: &Interpreter, boundary: u8) -> bool {
    python.minor >= 12 && boundary >= 3
}

// VERIFIER: a global function, as are the others that are exported.
/// Collects one Python frame, or ends the run.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn next_python_frame(
    scratch: As<Scratch>,
    python: AsInterpreter,
    memo: As<Memo>,
) -> u64 {
    let (Some(scratch), Some(python), Some(memo)) =
        (Scratch::of(scratch), interpreter(python), Memo::of(memo))
    else {
        return BREAK;
    };
    let reads = &mut memo.reads;
    let state = &mut scratch.walk.python;
    let frame = state.frame;
    if frame == 0 || !state.copy_frame(frame, python) {
        if frame != 0 {
            reads.open();
        }
        state.frame = 0;
        state.end_run();
        return CONTINUE;
    }
    let word = |offset| field(&state.frames, frame, offset);
    let code = code_of(state, frame, python);
    let boundary = boundary_of(state, frame, python);
    let instruction = word(python.frame_instruction);
    // The instruction is in the code object since 3.11.
    let code_word = match python.minor >= 11 {
        true => NONE,
        false => python.frame_code,
    };
    for offset in [
        code_word,
        python.frame_previous,
        python.frame_instruction,
        python.frame_boundary,
    ] {
        if offset != NONE {
            let address = frame.wrapping_add(u64::from(offset & !7));
            reads.memory(address, field(&state.frames, frame, offset));
        }
    }
    state.frame = word(python.frame_previous);
    if is_shim(python, boundary) {
        state.end_run();
        return CONTINUE;
    }
    let instruction = if python.minor >= 11 {
        instruction.wrapping_sub(code.wrapping_add(u64::from(python.code_instructions)))
    } else {
        instruction >> ((python.frame_instruction & 7) << 3)
    };
    if python.minor < 11 || (python.minor == 11 && boundary == 1) {
        state.end_run();
    }
    let Some(seen) = codes::place(scratch, code) else {
        return BREAK;
    };
    if !identify(scratch, python, code, seen) {
        reads.open();
        let state = &mut scratch.walk.python;
        state.frame = 0;
        state.end_run();
        return CONTINUE;
    }
    if scratch.walk.memo.of.has_code_ends != 0 {
        reads.code(code, seen.ends());
    } else {
        reads.open();
    }
    let (filename, print) = (seen.filename, seen.fingerprint as u32);
    let image = scratch.caller.image;
    let state = &mut scratch.walk.python;
    if filename != 0 && state.imports.files.contains(&filename) {
        summarise(scratch, code, print);
        return BREAK;
    }
    if scratch.len() + 2 > MAX_FRAMES as u32
        || !scratch.push(Word::python(code), image)
        || !scratch.push(Word::python_at(instruction as u32, print), 0)
    {
        scratch.walk.end = End::Truncated;
        return BREAK;
    }
    // VERIFIER: not before the pushes, which would use the same unbounded sum.
    scratch.walk.python.last = scratch.len() - 1;
    CONTINUE
}

/// Reads what identifies a code object into its place `seen`, unless that has it; false if it cannot be read.
#[inline(always)]
fn identify(scratch: &mut Scratch, python: &Interpreter, code: u64, seen: &mut Seen) -> bool {
    let ends = codes::ends(code);
    if !seen.holds(code, ends, scratch) {
        let was_met = seen.was_met(code, scratch);
        if !read(&mut scratch.walk.python, python, code, seen, was_met) {
            return false;
        }
    }
    seen.meet(ends, scratch);
    true
}

/// Reads a code object. `was_met`: `seen` is of this code object, and stays as it is if the words are the same.
#[inline(always)]
fn read(
    state: &mut PythonState,
    python: &Interpreter,
    code: u64,
    seen: &mut Seen,
    was_met: bool,
) -> bool {
    let from = code.wrapping_add(u64::from(CODE_WINDOW));
    if !state.object.copy(from, CODE_BYTES) {
        seen.code = 0;
        return false;
    }
    let word = |offset| field(&state.object, code, offset);
    let first_line = word(python.code_first_line) >> ((python.code_first_line & 7) << 3);
    let filename = word(python.code_filename);
    let (name, linetable) = (word(python.code_name), word(python.code_linetable));
    let name_hash = word_or_zero(name.wrapping_add(u64::from(STR_HASH)));
    let words = mix(
        mix(mix(mix(name_hash, name), filename), linetable),
        first_line,
    );
    if was_met && seen.words == words {
        return true;
    }
    let from = linetable.wrapping_add(u64::from(python.bytes_size));
    state.object.copy(from, BYTES_HEAD);
    let print = fingerprint(&Identity {
        filename,
        name,
        linetable,
        first_line: first_line as u32,
        name_hash,
        linetable_size: field(&state.object, linetable, python.bytes_size),
        linetable_start: field(&state.object, linetable, python.bytes_data),
    });
    seen.code = code;
    seen.filename = filename;
    seen.fingerprint = u64::from(print);
    seen.words = words;
    true
}

/// Ends a stack at the frame `code` of the import system.
#[inline(always)]
pub(crate) fn summarise(scratch: &mut Scratch, code: u64, print: u32) {
    let (image, epoch) = (scratch.caller.image, scratch.caller.epoch);
    let (last, n) = (scratch.walk.python.last, scratch.len());
    scratch.walk.memo.forget();
    scratch.walk.end = End::Complete;
    scratch.record.stack = SEED;
    scratch.record.n = 0;
    if last != 0 {
        let word = scratch.frame(last as usize - 1);
        let at = scratch.frame(last as usize) as u32;
        scratch.push(word, image);
        scratch.push(Word::python_at(NOT_BEGUN, at), 0);
    } else {
        for index in 0..IMPORT_NATIVE_FRAMES {
            let word = scratch.frame(index as usize);
            if index < n {
                scratch.push(word, if Word::is_file(word) { 0 } else { epoch });
            }
        }
    }
    scratch.push(Word::python(code), image);
    scratch.push(Word::python_at(NOT_BEGUN, print), 0);
}

/// The result of [`fingerprint_of`] if the code object cannot be read; others have 32 bits.
pub(crate) const UNREADABLE: u64 = u64::MAX;

/// The fingerprint of a code object.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn fingerprint_of(
    scratch: As<Scratch>,
    python: AsInterpreter,
    code: u64,
) -> u64 {
    let (Some(scratch), Some(python)) = (Scratch::of(scratch), interpreter(python)) else {
        return UNREADABLE;
    };
    let Some(seen) = codes::place(scratch, code) else {
        return UNREADABLE;
    };
    if !identify(scratch, python, code, seen) {
        return UNREADABLE;
    }
    seen.fingerprint
}

/// Most thread states that are examined to find a thread's own.
const MOST_THREADS: u32 = 4096;

/// The state of [`next_thread`].
struct Searching {
    search: *mut ThreadSearch,
    python: *const Interpreter,
    #[cfg(feature = "legacy")]
    arguments: (AsPythonState, AsInterpreter),
}

/// The result of [`find_innermost`] if the thread state was the one that is known.
const AT_ONCE: u64 = 2;

/// Keeps what [`find_innermost`] has read, if it needed no search. Whether there is another interpreter need not be kept:
/// if the thread ran frames of that one, its native stack would have further evaluation loops.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn keep_innermost(state: AsPythonState, python: AsInterpreter, memo: As<Memo>) -> u64 {
    let (Some(state), Some(python), Some(memo)) =
        (python_state(state), interpreter(python), Memo::of(memo))
    else {
        return 0;
    };
    for offset in [python.thread_id, python.thread_frame] {
        let address = state.thread.wrapping_add(u64::from(offset));
        let value = field(&state.object, state.thread, offset);
        memo.reads.memory(address, value);
    }
    let frame = field(&state.object, state.thread, python.thread_frame);
    if python.cframe_frame != NONE && frame != 0 {
        // Mostly on the stack, so it is kept among the words of that.
        let address = frame.wrapping_add(u64::from(python.cframe_frame));
        memo.reads.stack(address, state.frame);
    }
    0
}

/// Finds the innermost Python frame of the current thread; 0 if there is none.
///
/// By the thread pointer and not by the interpreter's own "current" one, which is unset while the global lock is
/// released: exactly where extension modules allocate. A thread that has entered a subinterpreter from another one has
/// frames in each; their nesting is then unknown, so none are taken (counted).
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn find_innermost(
    state: AsPythonState,
    python: AsInterpreter,
    image: u64,
) -> u64 {
    #[cfg(feature = "legacy")]
    let arguments = (state, python);
    let (Some(state), Some(python)) = (python_state(state), interpreter(python)) else {
        return 0;
    };
    let task = CurrentTask::get();
    let (tid, id) = (task.ids() as u32, task.thread_pointer());
    let follow = |address: u64, offset: u32| word_or_zero(address.wrapping_add(u64::from(offset)));
    let interpreter = follow(python.runtime, python.runtime_interpreters);
    // A further one would be the first of the list.
    if (interpreter, image) != (state.alone, state.alone_in) {
        state.alone = match follow(interpreter, python.interpreter_next) {
            0 => interpreter,
            _ => 0,
        };
        state.alone_in = image;
    }
    let known = match (state.own_of, state.own_in) == (tid.into(), image) {
        true => state.own,
        // SAFETY: copied at once.
        false => unsafe { THREAD_STATES.get(&tid) }.copied().unwrap_or(0),
    };
    if interpreter == state.alone && known != 0 {
        // Its number and its frame lie close together.
        let first = python.thread_id.min(python.thread_frame) & !7;
        let last = python.thread_id.max(python.thread_frame);
        let bytes = u64::from(last.wrapping_sub(first)).wrapping_add(8);
        state
            .object
            .copy(known.wrapping_add(u64::from(first)), bytes);
        if is_thread(field(&state.object, known, python.thread_id), id) {
            state.frame = innermost(field(&state.object, known, python.thread_frame), python);
            // One that runs nothing may have been freed, with its words still there.
            if state.frame != 0 {
                state.thread = known;
                (state.own, state.own_of, state.own_in) = (known, tid.into(), image);
                return AT_ONCE;
            }
        }
    }
    let thread = {
        state.search = ThreadSearch {
            id,
            interpreter,
            thread: 0,
            found: 0,
            another: 0,
        };
        let mut searching = Searching {
            search: &raw mut state.search,
            python,
            #[cfg(feature = "legacy")]
            arguments,
        };
        #[cfg(not(feature = "legacy"))]
        repeat(MOST_THREADS, next_thread, &mut searching);
        #[cfg(feature = "legacy")]
        repeat(MOST_THREADS / ROUND, next_threads, &mut searching);
        // SAFETY: `searching` was made from this reference.
        let ThreadSearch { found, another, .. } = unsafe { *searching.search };
        if another != 0 {
            lost(Reason::PythonAmbiguous);
            return 0;
        }
        if found != 0 {
            let _ = THREAD_STATES.insert(&tid, &found, 0);
        }
        found
    };
    if thread == 0 {
        return 0;
    }
    state.thread = thread;
    state.frame = top_frame(thread, python);
    1
}

/// The innermost frame of a thread state, 0 if it runs nothing.
#[inline(always)]
fn top_frame(thread: u64, python: &Interpreter) -> u64 {
    let follow = |address: u64, offset: u32| word_or_zero(address.wrapping_add(u64::from(offset)));
    innermost(follow(thread, python.thread_frame), python)
}

/// The same from the thread state's own word.
#[inline(always)]
fn innermost(frame: u64, python: &Interpreter) -> u64 {
    let follow = |address: u64, offset: u32| word_or_zero(address.wrapping_add(u64::from(offset)));
    if python.cframe_frame == NONE || frame == 0 {
        frame
    } else {
        follow(frame, python.cframe_frame)
    }
}

/// Callback of [`repeat`]: examines the next thread states.
#[cfg(feature = "legacy")]
unsafe extern "C" fn next_threads(_index: u64, searching: *mut Searching) -> u64 {
    // SAFETY: the pointer is that which `find_innermost` passed.
    let (state, python) = unsafe { (*searching).arguments };
    next_threads_by_number(state, python)
}

/// Calls [`next_thread_by_number`] until it breaks.
#[cfg(feature = "legacy")]
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn next_threads_by_number(state: AsPythonState, python: AsInterpreter) -> u64 {
    for _ in 0..ROUND {
        if next_thread_by_number(state, python) != CONTINUE {
            return BREAK;
        }
    }
    CONTINUE
}

/// As [`next_thread`].
#[cfg(feature = "legacy")]
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn next_thread_by_number(state: AsPythonState, python: AsInterpreter) -> u64 {
    let arguments = (state, python);
    let (Some(state), Some(python)) = (python_state(state), interpreter(python)) else {
        return BREAK;
    };
    let search = &raw mut state.search;
    let mut searching = Searching {
        search,
        python,
        arguments,
    };
    // SAFETY: live map values.
    unsafe { next_thread(0, &mut searching) }
}

/// Callback of [`repeat`]: examines the next thread state.
#[cfg_attr(feature = "legacy", inline(always))]
unsafe extern "C" fn next_thread(_index: u64, searching: *mut Searching) -> u64 {
    // SAFETY: the pointers are those that `find_innermost` passed.
    let (search, python) = unsafe { (&mut *(*searching).search, &*(*searching).python) };
    let follow = |address: u64, offset: u32| word_or_zero(address.wrapping_add(u64::from(offset)));
    if search.interpreter == 0 {
        return BREAK;
    }
    let thread = if search.thread == 0 {
        follow(search.interpreter, python.interpreter_threads)
    } else {
        follow(search.thread, python.thread_next)
    };
    search.thread = thread;
    if thread == 0 {
        search.interpreter = follow(search.interpreter, python.interpreter_next);
        return CONTINUE;
    }
    // One that runs nothing is that of an interpreter which the thread has made, or left.
    if is_thread(follow(thread, python.thread_id), search.id) && top_frame(thread, python) != 0 {
        // VERIFIER: not a count, whose values it would distinguish.
        if search.found == 0 {
            search.found = thread;
        } else {
            search.another = thread;
        }
    }
    CONTINUE
}
