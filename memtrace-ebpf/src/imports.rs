//! Summaries of Python's imports.
//!
//! The code that a module runs when it is imported becomes one frame, whatever it does: modules are loaded once. The
//! frame of the import system is the outermost. The collector does the same to stacks that were walked before this side
//! knew the import system (`memtrace::collect::imports`).

use memtrace_common::{
    python::{IMPORT_NATIVE_FRAMES, Interpreter, NOT_BEGUN},
    unwind::Word,
};

#[cfg(feature = "legacy")]
use crate::interpreter::of_interpreter;
use crate::{
    argument::{Argument, As},
    codes, facts,
    interpreter::{AsInterpreter, interpreter, of_python_state},
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
pub(crate) extern "C" fn find(scratch: As<Scratch>, python: AsInterpreter) -> u64 {
    let (Some(state), Some(interpreter)) = (Scratch::of(scratch), interpreter(python)) else {
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
    python::find_innermost(of_python_state(state), python, image);
    let mut finding = Finding {
        scratch: state,
        python: interpreter,
    };
    #[cfg(not(feature = "legacy"))]
    repeat(MOST_FRAMES, next_frame, &mut finding);
    #[cfg(feature = "legacy")]
    repeat(MOST_FRAMES, next_frame_elsewhere, &mut finding);
    // SAFETY: `finding` was made from this reference.
    let state = unsafe { &mut *finding.scratch };
    let import = state.walk.python.import;
    if import.system == 0 {
        return NOT_FOUND;
    }
    if import.system != import.last {
        let print = python::fingerprint_of(state.argument(), python, import.system);
        if print == python::UNREADABLE {
            return NOT_FOUND;
        }
        let import = &mut state.walk.python.import;
        (import.last, import.last_in, import.last_print) = (import.system, image, print);
    }
    if import.module == 0 {
        return u64::from(IMPORT_NATIVE_FRAMES);
    }
    let module = python::fingerprint_of(state.argument(), python, import.module);
    if module == python::UNREADABLE {
        return NOT_FOUND;
    }
    state.push(Word::python(import.module), image);
    state.push(Word::python_at(NOT_BEGUN, module as u32), 0);
    state.walk.python.last = 1;
    end_at_found(state);
    0
}

/// As [`next_frame`].
#[cfg(feature = "legacy")]
unsafe extern "C" fn next_frame_elsewhere(_index: u64, finding: *mut Finding) -> u64 {
    // SAFETY: the pointers are those that `find` passed.
    let (scratch, python) = unsafe { (&mut *(*finding).scratch, &*(*finding).python) };
    examine_by_number(scratch.argument(), of_interpreter(python, scratch))
}

/// As [`next_frame`].
#[cfg(feature = "legacy")]
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn examine_by_number(scratch: As<Scratch>, python: AsInterpreter) -> u64 {
    let (Some(scratch), Some(python)) = (Scratch::of(scratch), interpreter(python)) else {
        return BREAK;
    };
    let mut finding = Finding { scratch, python };
    // SAFETY: live map values.
    unsafe { next_frame(0, &mut finding) }
}

/// Callback of [`repeat`]: examines one Python frame.
#[cfg_attr(feature = "legacy", inline(always))]
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
