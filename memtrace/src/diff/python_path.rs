//! Paths of Python files that are the same under another prefix.

use std::collections::{BTreeMap, BTreeSet};

use crate::frames::installed;

/// Names for the Python files of two recordings, equal for the same file of a project.
///
/// A recording does not contain the root of a project. So a project's file is paired with the file
/// of the other side that shares the longest end of the path, and named by that end.
#[derive(Debug, Default)]
pub(super) struct PythonPaths {
    names: [BTreeMap<String, String>; 2],
}

impl PythonPaths {
    /// From all the files of both sides.
    pub(super) fn new(files: [BTreeSet<&str>; 2]) -> PythonPaths {
        let projects = files.each_ref().map(|files| {
            files
                .iter()
                .copied()
                .filter(|path| installed(path).is_none())
        });
        let [baseline, new] = projects.map(Iterator::collect::<Vec<_>>);
        let mut by_name: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for path in &new {
            by_name.entry(file_name(path)).or_default().push(path);
        }
        let mut pairs = Vec::new();
        for path in baseline {
            for other in by_name.get(file_name(path)).into_iter().flatten() {
                pairs.push((common_end(path, other), path, *other));
            }
        }
        // The longest first. Then in an order that does not depend on which side is which.
        pairs.sort_by_key(|(length, a, b)| (std::cmp::Reverse(*length), *a.min(b), *a.max(b)));
        let mut paths = PythonPaths::default();
        for (length, a, b) in pairs {
            if paths.names[0].contains_key(a) || paths.names[1].contains_key(b) {
                continue;
            }
            let end = match a == b {
                true => a,
                false => &a[a.len() - length..],
            };
            paths.names[0].insert(a.to_owned(), end.to_owned());
            paths.names[1].insert(b.to_owned(), end.to_owned());
        }
        paths
    }

    /// The name of a file of one side (0: baseline). A file without a counterpart keeps its path.
    pub(super) fn name(&self, side: usize, path: &str) -> String {
        installed(path)
            .or_else(|| self.names[side].get(path).cloned())
            .unwrap_or_else(|| path.to_owned())
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Bytes of the longest end of whole components that both have.
fn common_end(a: &str, b: &str) -> usize {
    let components = a.rsplit('/').zip(b.rsplit('/'));
    let common = components.take_while(|(a, b)| a == b).map(|(a, _)| a);
    let (count, bytes) = common.fold((0, 0), |(n, bytes), part| (n + 1, bytes + part.len()));
    // With the separators between them.
    bytes + usize::saturating_sub(count, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(baseline: &[&str], new: &[&str]) -> PythonPaths {
        PythonPaths::new([baseline, new].map(|files| files.iter().copied().collect()))
    }

    #[test]
    fn installed_files_are_named_relative_to_their_installation() {
        let none = PythonPaths::default();
        for (path, name) in [
            (
                "/home/u/.pyenv/versions/3.12.1/lib/python3.12/site-packages/numpy/core/x.py",
                "site-packages/numpy/core/x.py",
            ),
            (
                "/usr/lib/python3/dist-packages/numpy/core/x.py",
                "site-packages/numpy/core/x.py",
            ),
            (
                "/usr/lib/python3.11/json/decoder.py",
                "stdlib/json/decoder.py",
            ),
            (
                "/opt/lib/python313.zip/json/decoder.py",
                "stdlib/json/decoder.py",
            ),
            ("<frozen runpy>", "<frozen runpy>"),
            ("/opt/python3.11/app.py", "/opt/python3.11/app.py"),
            (
                "/opt/lib/python3-app/main.py",
                "/opt/lib/python3-app/main.py",
            ),
        ] {
            assert_eq!(none.name(0, path), name);
        }
    }

    #[test]
    fn a_projects_files_are_paired_by_the_end_of_their_paths() {
        let paths = paths(
            &[
                "/home/a/proj/main.py",
                "/home/a/proj/x/util.py",
                "/home/a/proj/y/util.py",
            ],
            &[
                "/srv/app/main.py",
                "/srv/app/y/util.py",
                "/srv/app/x/util.py",
                "/srv/app/more.py",
            ],
        );
        for (baseline, new, name) in [
            ("/home/a/proj/main.py", "/srv/app/main.py", "main.py"),
            ("/home/a/proj/x/util.py", "/srv/app/x/util.py", "x/util.py"),
            ("/home/a/proj/y/util.py", "/srv/app/y/util.py", "y/util.py"),
        ] {
            assert_eq!(paths.name(0, baseline), name);
            assert_eq!(paths.name(1, new), name);
        }
        assert_eq!(paths.name(1, "/srv/app/more.py"), "/srv/app/more.py");
    }

    #[test]
    fn one_place_keeps_its_path() {
        let paths = paths(&["/srv/main.py"], &["/srv/main.py"]);
        assert_eq!(paths.name(1, "/srv/main.py"), "/srv/main.py");
    }
}
