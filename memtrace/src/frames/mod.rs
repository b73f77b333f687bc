//! Classification of frames: their code, their names, and whether they belong to the program, an
//! allocator or an interpreter. Pure, and below everything that reads stacks: recording, analysis,
//! comparison and reports classify frames here, so that they agree.

pub(crate) mod allocators;
pub(crate) mod caching;
pub(crate) mod containers;
pub(crate) mod device_functions;
#[cfg(test)]
pub(crate) mod fixture;
mod frame;
pub(crate) mod functions;
mod imports;
mod innermost;
mod installed;
mod interpreter;
pub(crate) mod known_caches;
mod language;
pub(crate) mod library;
pub(crate) mod mappings;
pub(crate) mod names;
mod own_line;
mod runtime;
pub(crate) mod runtime_heaps;
pub(crate) mod starters;
pub(crate) mod symbol;
mod unresolved;
mod wrappers;

pub(crate) use frame::Shown;
pub use frame::{Frame, FrameKind};
pub(crate) use imports::is_import;
pub(crate) use innermost::innermost_of_program;
pub(crate) use installed::installed;
pub(crate) use interpreter::marks as interpreter_marks;
pub(crate) use language::{Language, language};
pub(crate) use own_line::{
    callers, compared_line, extension, is_of_language, is_of_program, library_call, own_line,
    program_line,
};
pub(crate) use runtime::Runtime;
pub(crate) use unresolved::{Cause, Unresolved};
pub(crate) use wrappers::Wrappers;

/// Selects the frames of a stack that are left out when it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fold {
    /// Frames that lead to the allocator.
    pub wrappers: bool,
    /// The Python interpreter's own.
    pub interpreter: bool,
}

impl Fold {
    /// The default of reports.
    pub(crate) const ALL: Fold = Fold {
        wrappers: true,
        interpreter: true,
    };

    /// The frames of a stack that are shown, leaf first. `wrappers` of them lead to an allocator.
    pub(crate) fn of(self, frames: Vec<&Frame>, wrappers: usize) -> Vec<&Frame> {
        let wrappers = if self.wrappers { wrappers } else { 0 };
        if !self.interpreter {
            return frames.into_iter().skip(wrappers).collect();
        }
        let interpreter = interpreter_marks(&frames);
        let frames = frames.into_iter().zip(interpreter).skip(wrappers);
        frames
            .filter(|(_, interpreter)| !interpreter)
            .map(|(frame, _)| frame)
            .collect()
    }
}
