//! Calls and lines of Python programs, by looking at their stacks again and again.

use std::collections::{HashMap, HashSet};

use crate::{holders::Calls, process::maps, python::CodeObject};

/// What a stack is searched for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A call of a function, with or without its class: `step`, `Trainer.step`.
    Function(String),
    /// A call that is at this line of the file, or past it in the same function.
    Line { file: String, line: u32 },
}

impl Wanted {
    fn is_met(&self, code: &CodeObject, instruction: u32) -> bool {
        match self {
            Self::Function(name) => is_end(&code.name, name, '.'),
            Self::Line { file, line } => {
                // Scripts may have a path from their working folder on.
                (is_end(&code.filename, file, '/') || is_end(file, &code.filename, '/'))
                    && code.has_reached(*line, instruction)
            }
        }
    }
}

/// Whether `whole` ends with the parts of `end`.
fn is_end(whole: &str, end: &str, separator: char) -> bool {
    let before = whole.strip_suffix(end);
    before.is_some_and(|before| before.is_empty() || before.ends_with(separator))
}

/// The interpreters of the processes.
pub(super) struct Pythons {
    wanted: Wanted,
    known: HashMap<u32, Calls>,
    /// Processes whose executable files, so many of them, have no interpreter.
    others: HashMap<u32, usize>,
}

impl Pythons {
    pub(super) fn new(wanted: Wanted) -> Self {
        Self {
            wanted,
            known: HashMap::new(),
            others: HashMap::new(),
        }
    }

    pub(super) fn are_found(&self) -> bool {
        !self.known.is_empty()
    }

    /// Looks for interpreters.
    pub(super) fn look(&mut self, pids: &[u32]) {
        let running: HashSet<u32> = pids.iter().copied().collect();
        self.known.retain(|pid, _| running.contains(pid));
        self.others.retain(|pid, _| running.contains(pid));
        for &pid in pids {
            let files = maps::read(pid).map_or(0, |all| maps::executable_files(&all).len());
            if self.known.contains_key(&pid) || self.others.get(&pid) == Some(&files) {
                continue;
            }
            match Calls::open(pid) {
                Ok(Some(calls)) => drop(self.known.insert(pid, calls)),
                Ok(None) => drop(self.others.insert(pid, files)),
                // It is starting.
                Err(_) => {}
            }
        }
    }

    /// A process whose stack has what is wanted, and where.
    pub(super) fn seen(&mut self) -> Option<(u32, String)> {
        let mut found = None;
        self.known.retain(|&pid, calls| {
            let mut is_running = false;
            for (code, instruction) in calls.now() {
                is_running = true;
                if found.is_none() && self.wanted.is_met(&code, instruction) {
                    let line = code.line(instruction).unwrap_or(code.first_line);
                    let place = format!("`{}` ({}:{line})", code.name, code.filename);
                    found = Some((pid, place));
                }
            }
            // Otherwise the process runs another program now.
            is_running
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_and_files_are_named_in_part() {
        let is_met = |wanted: &Wanted, name, file| wanted.is_met(&CodeObject::of(name, file), 0);
        let function = |name: &str| Wanted::Function(name.to_owned());
        assert!(is_met(&function("step"), "Trainer.step", "a.py"));
        assert!(is_met(&function("Trainer.step"), "Trainer.step", "a.py"));
        assert!(!is_met(&function("step"), "train_step", "a.py"));
        let line = |file: &str| Wanted::Line {
            file: file.to_owned(),
            line: 1,
        };
        // An instruction below zero is at the first line, as before a call begins.
        for (wanted, file) in [
            ("train.py", "/app/train.py"),
            ("/app/train.py", "train.py"),
            ("app/train.py", "/srv/app/train.py"),
        ] {
            let code = CodeObject::of("main", file);
            assert!(line(wanted).is_met(&code, u32::MAX), "{wanted} {file}");
        }
        let code = CodeObject::of("main", "/app/retrain.py");
        assert!(!line("train.py").is_met(&code, u32::MAX));
    }
}
