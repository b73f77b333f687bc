//! The workplace of one test: the machine for itself and a folder.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Held for the length of a test. Tests that trace disturb one another (the
/// machine's load, the bystander check), so there is one at a time, whichever
/// process or thread it runs in.
pub struct Bench {
    folder: tempfile::TempDir,
    _turn: File,
}

impl Bench {
    /// Waits for the test's turn.
    ///
    /// # Panics
    /// Without root.
    #[allow(clippy::new_without_default, reason = "it waits and it may panic")]
    pub fn new() -> Self {
        // SAFETY: takes nothing and cannot fail.
        let user = unsafe { libc::geteuid() };
        assert_eq!(
            user, 0,
            "these tests load BPF programs and need root: run `sudo -E cargo test -p memtrace-tests`"
        );
        let lock = std::env::temp_dir().join("memtrace-tests.lock");
        let turn = OpenOptions::new()
            .create(true)
            .append(true)
            .open(lock)
            .unwrap();
        turn.lock().unwrap();
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

    /// A path in [`Bench::folder`].
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
