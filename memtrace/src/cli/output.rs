//! The files that commands write.

use std::{
    io::{self, Write},
    path::Path,
};

use crate::recording::write_private;

/// Writes `content` to a new private file, or to standard output if its name is `-`.
pub(super) fn write_file(path: &Path, force: bool, content: &[u8]) -> anyhow::Result<()> {
    if path == Path::new("-") {
        return Ok(io::stdout().lock().write_all(content)?);
    }
    Ok(write_private(path, force, content)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_once_unless_forced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.svg");
        write_file(&path, false, b"first").unwrap();
        assert!(write_file(&path, false, b"second").is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        write_file(&path, true, b"third").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"third");
    }
}
