//! Why a recording failed.

use super::collector::CollectError;
use crate::{
    bpf::TracerError,
    process::{choose::ChooseError, launch::LaunchError, target::TargetError},
    recording,
};
use std::io;

/// Why nothing, or not everything, was recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Choose(#[from] ChooseError),
    #[error(transparent)]
    Collect(#[from] CollectError),
    #[error(transparent)]
    Recording(#[from] recording::Error),
    #[error("nothing was recorded: the `--start-after` condition was never met")]
    NotBegun,
    #[error("cannot {what}: {source}")]
    System {
        what: &'static str,
        source: io::Error,
    },
}

impl From<TracerError> for SessionError {
    fn from(error: TracerError) -> Self {
        Self::Collect(error.into())
    }
}

pub(super) fn system(what: &'static str) -> impl Fn(io::Error) -> SessionError {
    move |source| SessionError::System { what, source }
}
