//! What a running Python program is doing, from outside and without stopping it.

use super::{
    memory::Live,
    python::{NotRecognised, Python},
};
use crate::{
    process::maps::{self, MapsError},
    python::CodeObject,
};

/// Why the calls of a process are unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallsError {
    #[error(transparent)]
    Maps(#[from] MapsError),
    #[error("{0}")]
    Interpreter(String),
}

impl From<NotRecognised> for CallsError {
    fn from(error: NotRecognised) -> Self {
        Self::Interpreter(error.to_string())
    }
}

/// The interpreter of a process.
pub(crate) struct Calls {
    memory: Live,
    python: Python,
}

impl Calls {
    /// `None`: no file of the process has an interpreter.
    ///
    /// # Errors
    /// The process is gone; or its interpreter has not started yet, or is of an unknown kind.
    pub(crate) fn open(pid: u32) -> Result<Option<Calls>, CallsError> {
        let mappings = maps::read(pid)?;
        let memory = Live::guarded(pid, &mappings);
        let python = Python::open(pid, &mappings, &memory)?;
        Ok(python.map(|python| Calls { memory, python }))
    }

    /// The calls of all threads that have not returned: the code object of each, and its instruction as
    /// [`CodeObject::line`] takes it. The threads run on: a call may have returned meanwhile, or be missing.
    pub(crate) fn now(&self) -> impl Iterator<Item = (CodeObject, u32)> {
        let calls = self.python.calls(&self.memory).into_iter();
        calls.filter_map(|(code, at)| Some((self.python.code(&self.memory, code)?, at)))
    }
}
