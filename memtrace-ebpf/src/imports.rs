//! Summaries of Python's imports.
//!
//! The code that a module runs when it is imported becomes one frame, whatever it does: modules are loaded once. The
//! frame of the import system is the outermost. The collector does the same to stacks that were walked before this side
//! knew the import system (`memtrace::collect::imports`).

use memtrace_common::{
    python::{IMPORT_NATIVE_FRAMES, Interpreter, NOT_BEGUN},
    unwind::Word,
};

use crate::{
    codes, facts,
    loops::{BREAK, CONTINUE, repeat},
    memory::word_or_zero,
    python,
    scratch::{Import, Scratch},
};

/// Ends the stack whose innermost native frames were walked at what [`find`] has found.
#[inline(always)]
pub(crate) fn end_at_found(scratch: &mut Scratch) {
    let Import {
        system, last_print, ..
    } = scratch.walk.python.import;
    python::summarise(scratch, system, last_print as u32);
}

/// The result of [`find`] where every native frame has to be walked.
pub(crate) const NOT_FOUND: u64 = u64::MAX;

/// Python frames that are examined.
const MOST_FRAMES: u32 = 256;

/// The state of [`next_frame`].
struct Finding {
    scratch: *mut Scratch,
    python: *const Interpreter,
}

// VERIFIER: a global function.
/// Looks for the import system on the current thread's stack by Python frames alone: while a program loads its modules,
/// it is on most stacks, and then native frames hardly matter. Gives how many of those are needed, or [`NOT_FOUND`].
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn find(scratch: *mut Scratch, python: *const Interpreter) -> u64 {
    // SAFETY: null, or the caller's map values.
    let (Some(state), Some(interpreter)) = (unsafe { (scratch.as_mut(), python.as_ref()) }) else {
        return NOT_FOUND;
    };
    state.begin();
    state.walk.python.begin();
    state.walk.python.imports = facts::imports(state);
    let image = state.caller.image;
    let import = &mut state.walk.python.import;
    import.module = 0;
    import.system = 0;
    if import.last_in != image {
        import.last = 0;
    }
    python::find_innermost(&raw mut state.walk.python, interpreter, image);
    let mut finding = Finding { scratch, python };
    repeat(MOST_FRAMES, next_frame, &mut finding);
    // SAFETY: `finding` was made from this reference.
    let state = unsafe { &mut *finding.scratch };
    let import = state.walk.python.import;
    if import.system == 0 {
        return NOT_FOUND;
    }
    if import.system != import.last {
        let print = python::fingerprint_of(state, interpreter, import.system);
        if print == python::UNREADABLE {
            return NOT_FOUND;
        }
        let import = &mut state.walk.python.import;
        (import.last, import.last_in, import.last_print) = (import.system, image, print);
    }
    if import.module == 0 {
        return u64::from(IMPORT_NATIVE_FRAMES);
    }
    let module = python::fingerprint_of(state, interpreter, import.module);
    if module == python::UNREADABLE {
        return NOT_FOUND;
    }
    state.push(Word::python(import.module), image);
    state.push(Word::python_at(NOT_BEGUN, module as u32), 0);
    state.walk.python.last = 1;
    end_at_found(state);
    0
}

/// Callback of [`repeat`]: examines one Python frame.
unsafe extern "C" fn next_frame(_index: u64, finding: *mut Finding) -> u64 {
    // SAFETY: the pointers are those that `find` passed.
    let (scratch, python) = unsafe { (&mut *(*finding).scratch, &*(*finding).python) };
    let state = &mut scratch.walk.python;
    let frame = state.frame;
    if frame == 0 || !state.copy_frame(frame, python) {
        return BREAK;
    }
    let code = python::code_of(state, frame, python);
    let boundary = python::boundary_of(state, frame, python);
    state.frame = python::field(&state.frames, frame, python.frame_previous);
    if python::is_shim(python, boundary) {
        return CONTINUE;
    }
    let is_last = code == state.import.last;
    let filename = match codes::place(scratch, code) {
        _ if is_last => scratch.walk.python.imports.files[0],
        Some(seen) if seen.holds(code, codes::ends(code), scratch) => seen.filename,
        _ => word_or_zero(code.wrapping_add(u64::from(python.code_filename))),
    };
    let state = &mut scratch.walk.python;
    if filename != 0 && state.imports.files.contains(&filename) {
        state.import.system = code;
        return BREAK;
    }
    state.import.module = code;
    CONTINUE
}
