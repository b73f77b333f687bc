//! The workplace of one test: a folder, and mostly the machine for itself.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Held for the length of a test. Tests that trace disturb one another (the
/// machine's load, the bystander check), so most run one at a time, whichever
/// process or thread they run in.
pub struct Fixture {
    folder: tempfile::TempDir,
    _turn: File,
}

impl Fixture {
    /// Waits until no other test has a fixture.
    ///
    /// # Panics
    /// Without root.
    #[allow(clippy::new_without_default, reason = "it waits and it may panic")]
    pub fn new() -> Self {
        Self::after(File::lock)
    }

    /// Waits until all other fixtures are of this kind: for tests whose targets mostly sleep.
    ///
    /// # Panics
    /// Without root.
    pub fn shared() -> Self {
        Self::after(File::lock_shared)
    }

    fn after(lock: fn(&File) -> io::Result<()>) -> Self {
        // SAFETY: takes nothing and cannot fail.
        let user = unsafe { libc::geteuid() };
        assert_eq!(
            user, 0,
            "these tests load BPF programs and need root: run `sudo -E cargo test -p memtrace-tests`"
        );
        let path = std::env::temp_dir().join("memtrace-tests.lock");
        let turn = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        lock(&turn).unwrap();
        // A shell ignores these for background jobs, which may be the tests.
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
            // SAFETY: installs no handler.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        let folder = tempfile::tempdir().unwrap();
        // Some targets run as another user.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self {
            folder,
            _turn: turn,
        }
    }

    /// An empty folder that ends with the test.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A path in [`Fixture::folder`].
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
