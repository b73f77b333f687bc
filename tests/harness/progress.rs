//! Is a target that works on and on doing so? It counts its rounds in a shared file.

use crate::{Fixture, until};
use std::{fs, path::PathBuf};

/// The 16-byte file where a busy target counts its rounds.
pub struct Progress {
    path: PathBuf,
}

impl Progress {
    pub fn new(fixture: &Fixture) -> Self {
        let path = fixture.path("progress");
        fs::write(&path, [0; 16]).unwrap();
        Self { path }
    }

    pub fn path(&self) -> &PathBuf {
        &self.path
    }

    fn word(&self, index: usize) -> u64 {
        let bytes = fs::read(&self.path).unwrap();
        u64::from_ne_bytes(bytes[index * 8..][..8].try_into().unwrap())
    }

    /// Rounds done.
    pub fn rounds(&self) -> u64 {
        self.word(0)
    }

    /// Waits until the target has done at least this many more rounds.
    #[track_caller]
    pub fn await_rounds(&self, more: u64) {
        let goal = self.rounds() + more;
        until("progress of the target", || {
            (self.rounds() >= goal).then_some(())
        });
    }

    /// The target's pid, once it has begun.
    pub fn pid(&self) -> u32 {
        until("the target's pid", || match self.word(1) {
            0 => None,
            pid => Some(pid as u32),
        })
    }
}
