//! Native frames of the Python interpreter itself. In a stack with Python frames they repeat the
//! same calls in other words; text and flame graphs fold them.
//!
//! Names alone are not enough, because a stripped interpreter has few: the decision depends on the
//! place of a frame. The code that runs a Python function is directly below its frame; the file
//! that contains it is the interpreter's. Above the innermost Python frame that file's functions do
//! the allocating, and stay, except those that only pass the call on.

use super::Frame;

/// Beginnings of the names of functions that evaluate Python code or call an object, in CPython's
/// Python/ceval.c, Objects/call.c and Objects/typeobject.c.
const CALLS: &[&str] = &[
    "PyCFunction_Call",
    "PyEval_Call",
    "PyEval_EvalCode",
    "PyEval_EvalFrame",
    "PyObject_Call",
    "_PyCFunction_",
    "_PyEval_",
    "_PyFunction_",
    "_PyObject_Call",
    "_PyObject_FastCall",
    "_PyObject_MakeTpCall",
    "_TAIL_CALL_",
    "call_function",
    "cfunction_call",
    "do_call_core",
    "function_code_fastcall",
    "method_call",
    "object_vacall",
    "slot_tp_call",
    "slot_tp_init",
    "slot_tp_new",
    "type_call",
];

/// In the names of all that speak the calling convention of PEP 590: `cfunction_vectorcall_O`,
/// `PyObject_Vectorcall`, `_PyObject_VectorcallTstate`.
const CALLING_CONVENTION: &str = "vectorcall";

/// For each frame of a stack (leaf first), whether it is the interpreter's own. All false if there
/// is no Python frame, so never all true.
pub(crate) fn marks(frames: &[&Frame]) -> Vec<bool> {
    let mut marks = vec![false; frames.len()];
    let Some(innermost) = frames.iter().position(|frame| frame.is_python()) else {
        return marks;
    };
    let modules = evaluating(frames);
    let internal = |frame: &Frame| {
        let module = frame.module.as_deref();
        !frame.is_python() && module.is_some_and(|module| modules.contains(&module))
    };
    for (mark, frame) in marks.iter_mut().zip(frames).skip(innermost) {
        *mark = internal(frame);
    }
    let callees = marks.iter_mut().zip(frames).take(innermost).rev();
    for (mark, _) in callees.take_while(|(_, frame)| internal(frame) && passes_on(frame)) {
        *mark = true;
    }
    marks
}

/// The files of the frames directly below Python frames: one, except in a process with two
/// interpreters.
fn evaluating<'a>(frames: &[&'a Frame]) -> Vec<&'a str> {
    let mut modules: Vec<&str> = frames
        .windows(2)
        .filter(|pair| pair[0].is_python() && !pair[1].is_python())
        .filter_map(|pair| pair[1].module.as_deref())
        .collect();
    modules.sort_unstable();
    modules.dedup();
    modules
}

fn passes_on(frame: &Frame) -> bool {
    frame.function.as_deref().is_some_and(|function| {
        CALLS.iter().any(|name| function.starts_with(name))
            || function.to_ascii_lowercase().contains(CALLING_CONVENTION)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{
        Cause,
        fixture::{native, python as python_frame, stripped},
    };

    const PYTHON: &str = "/usr/bin/python3.12";
    const LIBC: &str = "/usr/lib/libc.so.6";
    const NUMPY: &str = "/usr/lib/numpy/_multiarray_umath.so";

    fn marks(frames: &[Frame]) -> Vec<bool> {
        super::marks(&frames.iter().collect::<Vec<_>>())
    }

    /// The remaining frames, by name.
    fn left(frames: &[Frame]) -> Vec<&str> {
        let shown = marks(frames).into_iter().zip(frames);
        shown
            .filter(|(mark, _)| !mark)
            .map(|(_, frame)| frame.function.as_deref().unwrap_or("?"))
            .collect()
    }

    #[test]
    fn the_interpreters_frames_between_and_below_python_frames_go() {
        let stack = [
            native("malloc", LIBC),
            native("array_new", NUMPY),
            native("type_call", PYTHON),
            native("_PyObject_MakeTpCall", PYTHON),
            python_frame("Loader.batch", "/src/load.py", 12),
            native("_PyEval_EvalFrameDefault", PYTHON),
            native("list_sort_impl", PYTHON),
            native("ufunc_call", NUMPY),
            python_frame("train_step", "/src/train.py", 41),
            python_frame("<module>", "/src/train.py", 60),
            native("_PyEval_EvalFrameDefault", PYTHON),
            native("run_mod", PYTHON),
            native("Py_BytesMain", PYTHON),
            native("__libc_start_main", LIBC),
            native("_start", PYTHON),
        ];
        let expected = [
            "malloc",
            "array_new",
            "Loader.batch",
            "ufunc_call",
            "train_step",
            "<module>",
            "__libc_start_main",
        ];
        assert_eq!(left(&stack), expected);
    }

    #[test]
    fn the_interpreters_allocating_frames_stay_but_not_their_callers() {
        let stack = [
            native("list_resize", PYTHON),
            native("PyObject_CallNoArgs", PYTHON),
            native("list_append", PYTHON),
            native("cfunction_vectorcall_O", PYTHON),
            native("_PyObject_VectorcallTstate", PYTHON),
            python_frame("fill", "/src/fill.py", 3),
            native("_PyEval_EvalFrameDefault", PYTHON),
        ];
        let expected = ["list_resize", "PyObject_CallNoArgs", "list_append", "fill"];
        assert_eq!(left(&stack), expected);
    }

    #[test]
    fn a_constructors_own_work_stays_and_its_callers_go() {
        // Bytearrays made in a key function of sorted, as CPython 3.9 calls them.
        let interpreters = |names: &'static str| names.split(' ').map(|name| native(name, PYTHON));
        let evaluation = "_PyEval_EvalFrameDefault _PyEval_EvalFrame function_code_fastcall";
        let stack: Vec<Frame> = interpreters("PyByteArray_Resize bytearray_init type_call")
            .chain(interpreters("_PyObject_MakeTpCall PyObject_Vectorcall"))
            .chain(interpreters("call_function"))
            .chain([python_frame("key", "/src/sort.py", 9)])
            .chain(interpreters(evaluation))
            .chain(interpreters("PyObject_CallOneArg list_sort_impl"))
            .chain(interpreters("builtin_sorted call_function"))
            .chain([python_frame("main", "/src/sort.py", 14)])
            .chain(interpreters(evaluation))
            .collect();
        let expected = ["PyByteArray_Resize", "bytearray_init", "key", "main"];
        assert_eq!(left(&stack), expected);
    }

    #[test]
    fn names_are_not_needed_below_a_python_frame() {
        let stack = [
            stripped(PYTHON),
            python_frame("fill", "/src/fill.py", 3),
            stripped(PYTHON),
            stripped(PYTHON),
            stripped(LIBC),
        ];
        assert_eq!(marks(&stack), [false, false, true, true, false]);
    }

    #[test]
    fn a_program_that_calls_like_the_interpreter_is_not_taken_for_it() {
        let stack = [
            native("PyObject_Call", NUMPY),
            python_frame("fill", "/src/fill.py", 3),
            native("_PyEval_EvalFrameDefault", PYTHON),
            native("embedder", "/opt/game"),
            native("PyEval_EvalCode", "/opt/game"),
        ];
        let expected = ["PyObject_Call", "fill", "embedder", "PyEval_EvalCode"];
        assert_eq!(left(&stack), expected);
    }

    #[test]
    fn without_python_frames_no_frame_is_the_interpreters() {
        let interpreter = [native("_PyEval_EvalFrameDefault", PYTHON)];
        assert_eq!(marks(&interpreter), [false]);
        let cut_off = [
            native("type_call", PYTHON),
            python_frame("fill", "/src/fill.py", 3),
        ];
        assert_eq!(marks(&cut_off), [false, false]);
        let unknown = [
            python_frame("fill", "/src/fill.py", 3),
            Frame::unknown(0x10, Cause::NotMapped),
            Frame::unknown(0x20, Cause::NotMapped),
        ];
        assert_eq!(marks(&unknown), [false; 3]);
        assert!(marks(&[]).is_empty());
    }
}
