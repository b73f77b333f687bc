//! The path of an open file in `/proc`.

use std::{fs::File, os::fd::AsRawFd, path::PathBuf};

/// A path to the very inode of an open file, whatever its name means here; valid as long as the file is open.
pub(crate) fn fd_path(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}
