//! Calls that a recording waits for.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    condition::StartAfter,
    functions::Functions,
    python::{Pythons, Wanted},
    watched::Watched,
};
use crate::{bpf::TracerError, progress::say};

/// How often the processes are looked at.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// New processes, threads and files are looked for this often: as soon as may be at first, when most appear.
const LEAST_OFTEN: Duration = Duration::from_secs(1);
const SHARE: u32 = 10;

/// If nothing that could be called is found for this time, the user may have misspelt it.
const SILENCE: Duration = Duration::from_secs(2);

/// A call, and what is known of the functions and interpreters of the processes.
pub(super) struct Awaited {
    functions: Option<Functions>,
    pythons: Pythons,
    since: Instant,
    looked: Option<Instant>,
    is_warned: bool,
}

impl Awaited {
    /// `None`: something else is waited for.
    ///
    /// # Errors
    /// The kernel refuses the program that waits for native functions.
    pub(super) fn of(condition: &StartAfter) -> Result<Option<Self>, TracerError> {
        let (functions, wanted) = match condition {
            StartAfter::Function(name) => (
                Some(Functions::new(name)?),
                Wanted::Function(name.to_owned()),
            ),
            StartAfter::Line { file, line } => (
                None,
                Wanted::Line {
                    file: file.to_owned(),
                    line: *line,
                },
            ),
            _ => return Ok(None),
        };
        Ok(Some(Self {
            functions,
            pythons: Pythons::new(wanted),
            since: Instant::now(),
            looked: None,
            is_warned: false,
        }))
    }

    /// Who made the call, if it was made.
    ///
    /// # Errors
    /// The kernel side's map cannot be read.
    pub(super) fn check(&mut self, watched: &Watched) -> Result<Option<String>, TracerError> {
        let pause = (self.since.elapsed() / SHARE).clamp(LOOK, LEAST_OFTEN);
        if self.looked.is_none_or(|at| at.elapsed() >= pause) {
            let pids = watched.all();
            if let Some(functions) = &mut self.functions {
                functions.look(&pids);
            }
            self.pythons.look(&pids);
            self.looked = Some(Instant::now());
        }
        let functions = self.functions.as_ref();
        if let Some(caller) = functions.map_or(Ok(None), Functions::caller)? {
            return Ok(Some(format!("process {caller} has called it")));
        }
        if let Some((pid, place)) = self.pythons.seen() {
            return Ok(Some(format!("process {pid} is in {place}")));
        }
        self.warn();
        Ok(None)
    }

    /// Says, once, that there is nothing that could be called.
    fn warn(&mut self) {
        if self.is_warned || self.since.elapsed() < SILENCE {
            return;
        }
        self.is_warned = true;
        let functions = self.functions.as_ref();
        let are_found = functions.is_some_and(Functions::are_found) || self.pythons.are_found();
        if let Some(error) = functions.and_then(Functions::refused) {
            say(&error.to_string());
        } else if !are_found {
            let what = match functions {
                Some(_) => {
                    "no file of the processes has such a function, and none of them runs Python"
                }
                None => "none of the processes runs Python",
            };
            say(&format!("{what} so far; still waiting"));
        }
    }
}
