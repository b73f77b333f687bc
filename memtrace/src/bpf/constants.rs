//! Programs whose cookie is a constant: one for each function. Perf events have no cookies before Linux 5.15.

use std::{
    collections::HashMap,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    thread,
};

use super::{error::TracerError, multi::Prepared};

/// Programs loaded at the same time.
const LOADING: usize = 8;

pub(super) struct Constants {
    prepared: Box<Prepared>,
    by_cookie: HashMap<u64, OwnedFd>,
}

impl Constants {
    pub(super) fn new(prepared: Prepared) -> Self {
        Self {
            prepared: Box::new(prepared),
            by_cookie: HashMap::new(),
        }
    }

    /// Loads the missing ones of these programs, each for a cookie.
    ///
    /// # Errors
    /// The kernel refuses one.
    pub(super) fn complete(
        &mut self,
        needed: impl Iterator<Item = (u64, &'static str)>,
    ) -> Result<(), TracerError> {
        let missing: HashMap<u64, &'static str> = needed
            .filter(|(cookie, _)| !self.by_cookie.contains_key(cookie))
            .collect();
        let missing: Vec<_> = missing.into_iter().collect();
        let prepared = &self.prepared;
        for some in missing.chunks(LOADING) {
            let loaded: Vec<_> = thread::scope(|scope| {
                let load = |&(cookie, program)| {
                    scope.spawn(move || Some((cookie, prepared.load_for_event(program, cookie))))
                };
                let loading: Vec<_> = some.iter().map(load).collect();
                let loading = loading.into_iter();
                loading.filter_map(|thread| thread.join().ok()?).collect()
            });
            for (cookie, program) in loaded {
                let program = program.map_err(|error| TracerError::Late(error.to_string()))?;
                self.by_cookie.insert(cookie, program);
            }
        }
        Ok(())
    }

    /// The program for a cookie.
    pub(super) fn of(&self, cookie: u64) -> Option<BorrowedFd<'_>> {
        self.by_cookie.get(&cookie).map(AsFd::as_fd)
    }

    pub(super) fn loaded(&self) -> impl Iterator<Item = &OwnedFd> {
        self.by_cookie.values()
    }
}
