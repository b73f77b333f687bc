//! How interpreters, and the state of a walk along Python frames, are passed to global functions: see [`crate::argument`].

use memtrace_common::python::Interpreter;

use crate::scratch::{PythonState, Scratch};
#[cfg(feature = "legacy")]
use crate::{argument::Argument, maps::INTERPRETERS};

#[cfg(not(feature = "legacy"))]
pub(crate) type AsInterpreter = *const Interpreter;
/// Its number.
#[cfg(feature = "legacy")]
pub(crate) type AsInterpreter = u64;

/// The interpreter of a walk's process as an argument.
#[inline(always)]
pub(crate) fn of_interpreter(python: &Interpreter, scratch: &Scratch) -> AsInterpreter {
    #[cfg(not(feature = "legacy"))]
    let (argument, _) = (core::ptr::from_ref(python), scratch);
    #[cfg(feature = "legacy")]
    let (argument, _) = (scratch.walk.memo.of.interpreter.into(), python);
    argument
}

/// The interpreter that an argument stands for.
#[inline(always)]
pub(crate) fn interpreter(argument: AsInterpreter) -> Option<&'static Interpreter> {
    #[cfg(not(feature = "legacy"))]
    // SAFETY: null, or a live map value.
    return unsafe { argument.as_ref() };
    #[cfg(feature = "legacy")]
    INTERPRETERS.get(argument as u32)
}

#[cfg(not(feature = "legacy"))]
pub(crate) type AsPythonState = *mut PythonState;
/// The scratch that has it.
#[cfg(feature = "legacy")]
pub(crate) type AsPythonState = crate::argument::As<Scratch>;

/// The state of a walk as an argument.
#[inline(always)]
pub(crate) fn of_python_state(scratch: &mut Scratch) -> AsPythonState {
    #[cfg(not(feature = "legacy"))]
    return &raw mut scratch.walk.python;
    #[cfg(feature = "legacy")]
    scratch.argument()
}

/// The state that an argument stands for.
#[inline(always)]
pub(crate) fn python_state(argument: AsPythonState) -> Option<&'static mut PythonState> {
    #[cfg(not(feature = "legacy"))]
    // SAFETY: null, or part of the caller's map value.
    return unsafe { argument.as_mut() };
    #[cfg(feature = "legacy")]
    Some(&mut Scratch::of(argument)?.walk.python)
}
