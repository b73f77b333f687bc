//! A folder in the place of `/`, for tests.

use super::Source;
use std::fs;

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
