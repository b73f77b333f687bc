//! The source of facts and figures: files below `/proc` and `/sys`, read to a limit.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use super::{isa, userland::System};
use crate::process_root::{Place, Root};

/// Most bytes read of a file; those of the kernel are far shorter.
pub(super) const FILE_AT_MOST: u64 = 1 << 20;

/// Most systems that are remembered.
const SYSTEMS_AT_MOST: usize = 1000;

/// Roots of `proc` and `sys`.
#[derive(Debug)]
pub(crate) struct Source {
    root: PathBuf,
    /// Needed for every process and long on large machines.
    flags: OnceLock<Option<Vec<String>>>,
    mounts: OnceLock<Option<String>>,
    /// The same for all processes of a container, and each file is read by a helper process.
    systems: Mutex<HashMap<Place, Arc<System>>>,
}

impl Source {
    /// This machine.
    pub(crate) fn host() -> Self {
        Self::at("/".into())
    }

    pub(super) fn at(root: PathBuf) -> Self {
        Self {
            root,
            flags: OnceLock::new(),
            mounts: OnceLock::new(),
            systems: Mutex::default(),
        }
    }

    /// Feature flags of the first CPU, sorted.
    pub(super) fn flags(&self) -> Option<&[String]> {
        let flags = || isa::flags(&self.text("proc/cpuinfo")?);
        self.flags.get_or_init(flags).as_deref()
    }

    /// `/proc/self/mountinfo`, as it was at first use.
    pub(super) fn mounts(&self) -> Option<&str> {
        let mounts = || self.text("proc/self/mountinfo");
        self.mounts.get_or_init(mounts).as_deref()
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Text of a file below the root; `None` if it does not exist, or may not be read.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&self.bytes(path)?).into_owned())
    }

    pub(super) fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = File::open(self.path(path)).ok()?;
        file.take(FILE_AT_MOST).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// As much of a file as one short read returns: of files that the kernel generates line by
    /// line, only the first lines.
    pub(super) fn beginning(&self, path: &str) -> Option<String> {
        let mut bytes = [0; 128];
        let length = File::open(self.path(path)).ok()?.read(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(bytes.get(..length)?).into_owned())
    }

    /// Names in a folder, sorted.
    pub(super) fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten();
        let mut names: Vec<_> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// The system that a process runs on, as it was when a process of the same user first ran there; `None` if the
    /// process is gone or hidden.
    pub(super) fn system_of(&self, tgid: u32) -> Option<Arc<System>> {
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

    pub(super) fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.root.join(path).exists()
    }
}
