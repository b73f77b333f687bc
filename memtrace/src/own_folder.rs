//! Folders that root writes to although its environment may name them: nobody else can lead them elsewhere.

use std::{
    fs::{self, DirBuilder, Metadata},
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Component, Path, PathBuf},
};

/// Most links in a path, as for the kernel.
const LINKS_AT_MOST: usize = 40;

/// Sticky: only the owner of a file removes or renames it.
const STICKY: u32 = 0o1000;

/// Makes the folder `path` and those above it, if they are missing. For root, each of them and each link on the way
/// must be root's, and where others may write, only to files of their own: then nobody else can change afterwards what
/// the path means. Other users can harm only themselves.
///
/// # Errors
/// `PermissionDenied` if a part of the path is another user's, or others may change it; or a part cannot be made.
pub(crate) fn make(path: &Path) -> io::Result<()> {
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return DirBuilder::new().recursive(true).mode(0o700).create(path);
    }
    Walk::default().make(&std::path::absolute(path)?).map(drop)
}

/// A way through folders that nobody else can change.
#[derive(Default)]
struct Walk {
    at: PathBuf,
    links: usize,
}

impl Walk {
    /// The folder without links.
    fn make(&mut self, path: &Path) -> io::Result<&Path> {
        for part in path.components() {
            match part {
                Component::RootDir => self.at = PathBuf::from("/"),
                Component::ParentDir => drop(self.at.pop()),
                Component::Normal(name) => self.enter(&self.at.join(name))?,
                Component::CurDir | Component::Prefix(_) => {}
            }
        }
        Ok(&self.at)
    }

    fn enter(&mut self, next: &Path) -> io::Result<()> {
        let found = match fs::symlink_metadata(next) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                DirBuilder::new().mode(0o700).create(next)?;
                fs::symlink_metadata(next)?
            }
            found => found?,
        };
        if found.uid() != 0 {
            return Err(refusal(next, &format!("belongs to user {}", found.uid())));
        }
        if found.is_symlink() {
            self.links += 1;
            if self.links > LINKS_AT_MOST {
                return Err(io::Error::from_raw_os_error(libc::ELOOP));
            }
            let target = fs::read_link(next)?;
            return self.make(&target).map(drop);
        }
        if !found.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        if is_open(&found) {
            return Err(refusal(next, "can be changed by other users"));
        }
        self.at = next.to_owned();
        Ok(())
    }
}

fn is_open(folder: &Metadata) -> bool {
    folder.mode() & 0o022 != 0 && folder.mode() & STICKY == 0
}

fn refusal(path: &Path, why: &str) -> io::Error {
    let text = format!("`{}` {why}: root writes nothing below it", path.display());
    io::Error::new(ErrorKind::PermissionDenied, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    /// A user other than root.
    const USER: Option<u32> = Some(2001);

    #[test]
    fn a_users_folder_or_link_leads_nowhere_as_root() {
        let dir = tempfile::tempdir().unwrap();
        let of_root = dir.path().join("root");
        let home = dir.path().join("home");
        for folder in [&of_root, &home] {
            fs::create_dir(folder).unwrap();
        }
        chown(&home, USER, USER).unwrap();
        let error = make(&home.join(".cache/x")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(error.to_string().contains("home` belongs to user 2001"));
        let link = dir.path().join("link");
        symlink(&of_root, &link).unwrap();
        lchown(&link, USER, USER).unwrap();
        assert!(make(&link.join("x")).is_err());
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(make(&open.join("x")).is_err());
        assert_eq!(fs::read_dir(&of_root).unwrap().count(), 0);
        assert_eq!(fs::read_dir(&open).unwrap().count(), 0);
    }

    #[test]
    fn roots_own_folders_and_links_are_used_as_root() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("real")).unwrap();
        symlink("real", dir.path().join("link")).unwrap();
        make(&dir.path().join("link/a/b")).unwrap();
        let made = fs::metadata(dir.path().join("real/a/b")).unwrap();
        assert_eq!(made.mode() & 0o777, 0o700);
        symlink("loop", dir.path().join("loop")).unwrap();
        let error = make(&dir.path().join("loop/x")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
    }
}
