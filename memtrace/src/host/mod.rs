//! The fingerprint: facts about the machine and its processes that may explain why a program
//! behaves differently elsewhere, and the memory use of both over time.
//!
//! Everything comes from `/proc`, `/sys` and files; nothing is executed and no network is used. By
//! allow-list: facts not named here are not read, except the names of other variables and hashes of
//! their values. `docs/reference/fingerprint.md` lists the fields.

pub(crate) mod cgroup;
mod environment;
mod gpu;
pub(crate) mod libraries;
mod machine;
pub(crate) mod malloc;
mod process;
pub(crate) mod python;
mod redact;
pub(crate) mod system;

use std::{
    collections::HashMap,
    fmt::Display,
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

pub(crate) use machine::facts as machine;
use process::System;
pub(crate) use process::facts as process;
pub(crate) use redact::Redactor;

pub(crate) use crate::recording::Fact;
use crate::{
    escape::{clean, cut},
    ledger::ProcessId,
    process_root::{Place, Root},
};

/// Most bytes read of a file; those of the kernel are far shorter.
const FILE_AT_MOST: u64 = 1 << 20;

/// Most bytes of a fact's name and value.
const FIELD_AT_MOST: usize = 256;
const VALUE_AT_MOST: usize = 4096;

/// Most systems that are remembered.
const SYSTEMS_AT_MOST: usize = 1000;

/// Roots of `proc` and `sys`.
#[derive(Debug)]
pub(crate) struct Source {
    root: PathBuf,
    /// Needed for every process and long on large machines.
    flags: OnceLock<Option<Vec<String>>>,
    mounts: OnceLock<Option<String>>,
    /// The same for all processes of a container, and each file is asked of a helper process.
    systems: Mutex<HashMap<Place, Arc<System>>>,
}

impl Source {
    /// This machine.
    pub(crate) fn host() -> Self {
        Self::at("/".into())
    }

    fn at(root: PathBuf) -> Self {
        Self {
            root,
            flags: OnceLock::new(),
            mounts: OnceLock::new(),
            systems: Mutex::default(),
        }
    }

    /// Feature flags of the first CPU, sorted.
    fn flags(&self) -> Option<&[String]> {
        self.flags.get_or_init(|| machine::flags(self)).as_deref()
    }

    /// `/proc/self/mountinfo`, as it was at first use.
    fn mounts(&self) -> Option<&str> {
        let mounts = || self.text("proc/self/mountinfo");
        self.mounts.get_or_init(mounts).as_deref()
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Text of a file below the root; `None` if it does not exist, or may not be read.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&self.bytes(path)?).into_owned())
    }

    fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = File::open(self.path(path)).ok()?;
        file.take(FILE_AT_MOST).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// As much of a file as one short read returns: of files that the kernel generates line by
    /// line, only the first lines.
    fn beginning(&self, path: &str) -> Option<String> {
        let mut bytes = [0; 128];
        let length = File::open(self.path(path)).ok()?.read(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(bytes.get(..length)?).into_owned())
    }

    /// Names in a folder, sorted.
    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten();
        let mut names: Vec<_> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// The system that a process runs on, as it was when a process of the same user first ran there; `None` if the
    /// process is gone or hidden.
    fn system_of(&self, tgid: u32) -> Option<Arc<System>> {
        let root = match self.root == Path::new("/") {
            true => Root::of_process(tgid).ok()?,
            false => Root::at(&self.path(&format!("proc/{tgid}/root"))).ok()?,
        };
        let place = root.place().ok()?;
        let mut systems = self.systems.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(system) = systems.get(&place) {
            return Some(Arc::clone(system));
        }
        if systems.len() >= SYSTEMS_AT_MOST {
            systems.clear();
        }
        let system = Arc::new(System::read(&root));
        systems.insert(place, Arc::clone(&system));
        Some(system)
    }

    fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.root.join(path).exists()
    }
}

/// Facts as they are found.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    process: Option<ProcessId>,
    redactor: &'a Redactor,
    list: Vec<Fact>,
}

impl<'a> Facts<'a> {
    /// For a process, or for the machine.
    pub(crate) fn new(process: Option<ProcessId>, redactor: &'a Redactor) -> Self {
        Self {
            process,
            redactor,
            list: Vec::new(),
        }
    }

    /// Adds a value if it was found and is not empty. Processes choose many of them, and some names too: they are
    /// bounded, and have no hidden characters.
    fn add(&mut self, field: &str, value: Option<impl Display>) {
        let Some(value) = value else { return };
        let value = value.to_string();
        let value = value.trim();
        if !value.is_empty() {
            self.list.push(Fact {
                process: self.process,
                field: clean(&cut(field, FIELD_AT_MOST)),
                value: clean(&cut(value, VALUE_AT_MOST)),
            });
        }
    }

    /// The facts, in order of discovery.
    pub(crate) fn into_vec(self) -> Vec<Fact> {
        self.list
    }

    #[cfg(test)]
    pub(crate) fn value(&self, field: &str) -> Option<&str> {
        let fact = self.list.iter().find(|fact| fact.field == field)?;
        Some(&fact.value)
    }
}

/// The word in brackets of a file such as `always [madvise] never`, or the whole text.
fn chosen(text: &str) -> &str {
    text.split_once('[')
        .and_then(|(_, rest)| Some(rest.split_once(']')?.0))
        .unwrap_or_else(|| text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with these files, in the place of `/`.
    pub(super) fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Source) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let source = Source::at(dir.path().to_owned());
        (dir, source)
    }

    #[test]
    fn facts_are_bounded_and_show_all_that_they_have() {
        let redactor = Redactor::default();
        let mut facts = Facts::new(None, &redactor);
        facts.add("env.A\u{1b}", Some("x\u{202e}y\n"));
        facts.add(&"n".repeat(1000), Some("v".repeat(1 << 20)));
        let [first, second] = facts.list.as_slice() else {
            panic!("{facts:?}")
        };
        assert_eq!(
            (&*first.field, &*first.value),
            ("env.A\\u{1b}", "x\\u{202e}y")
        );
        assert_eq!(second.field.len(), FIELD_AT_MOST);
        assert_eq!(second.value.len(), VALUE_AT_MOST);
    }

    #[test]
    fn the_choice_is_in_brackets() {
        assert_eq!(chosen("always [madvise] never\n"), "madvise");
        assert_eq!(chosen("0\n"), "0");
        assert_eq!(chosen("[broken"), "[broken");
    }
}
