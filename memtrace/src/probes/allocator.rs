//! `--allocator PATH[:PREFIX]`: an allocator that the tables do not know.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A file whose functions count as an allocator's, on the user's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExtraAllocator {
    /// As the traced process sees it.
    pub path: PathBuf,
    /// Text before `malloc`, `free` and so on; may be empty.
    pub prefix: String,
}

impl ExtraAllocator {
    /// The prefixes given for the file that a process sees as `path`.
    pub(crate) fn prefixes(all: &[ExtraAllocator], path: &Path) -> Vec<String> {
        all.iter()
            .filter(|extra| extra.path == path)
            .map(|extra| extra.prefix.clone())
            .collect()
    }

    /// Every prefix that was given, sorted.
    pub(crate) fn all_prefixes(all: &[ExtraAllocator]) -> Vec<String> {
        let given: BTreeSet<_> = all.iter().map(|extra| &extra.prefix).collect();
        let given = given.into_iter().filter(|prefix| !prefix.is_empty());
        given.cloned().collect()
    }
}

impl FromStr for ExtraAllocator {
    type Err = Infallible;

    /// The prefix is the part after the last colon, if it could begin a symbol; otherwise the colon
    /// belongs to the path and the prefix is empty.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let symbol = |prefix: &str| {
            prefix
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$')
        };
        let (path, prefix) = match text.rsplit_once(':') {
            Some((path, prefix)) if symbol(prefix) => (path, prefix),
            _ => (text, ""),
        };
        Ok(ExtraAllocator {
            path: path.into(),
            prefix: prefix.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_follows_the_last_colon() {
        for (text, path, prefix) in [
            ("/opt/a.so:my_", "/opt/a.so", "my_"),
            ("/opt/a.so", "/opt/a.so", ""),
            ("/opt/a.so:", "/opt/a.so", ""),
            ("/opt/a:b/c.so", "/opt/a:b/c.so", ""),
            ("/opt/a:b/c.so:x", "/opt/a:b/c.so", "x"),
        ] {
            let Ok(extra) = text.parse::<ExtraAllocator>();
            assert_eq!(
                (extra.path.as_path(), &*extra.prefix),
                (Path::new(path), prefix)
            );
        }
    }

    #[test]
    fn a_file_has_the_prefixes_given_for_it() {
        let all = ["/a:x_", "/b:y_", "/a:z_"].map(|text| text.parse().unwrap());
        assert_eq!(
            ExtraAllocator::prefixes(&all, Path::new("/a")),
            ["x_", "z_"]
        );
        assert!(ExtraAllocator::prefixes(&all, Path::new("/c")).is_empty());
    }

    #[test]
    fn a_recording_has_each_prefix_once() {
        let all = ["/a:y_", "/b:x_", "/c:y_", "/d"].map(|text| text.parse().unwrap());
        assert_eq!(ExtraAllocator::all_prefixes(&all), ["x_", "y_"]);
    }
}
