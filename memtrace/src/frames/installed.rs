//! Decides by path which Python files belong to an installation, and so which frames are the
//! program's own.

use super::Frame;

/// Folders of installed packages, as `site` and Debian name them.
const PACKAGES: [&str; 2] = ["/site-packages/", "/dist-packages/"];

/// `path` relative to the folder of packages, or of the standard library; `None`: it is a file of
/// the project.
pub(crate) fn installed(path: &str) -> Option<String> {
    // `<frozen importlib._bootstrap>`, `<string>`: no file.
    if path.starts_with('<') {
        return Some(path.to_owned());
    }
    let packages = PACKAGES
        .into_iter()
        .filter_map(|folder| path.rfind(folder).map(|at| at + folder.len()))
        .max();
    if let Some(at) = packages {
        return Some(format!("site-packages/{}", &path[at..]));
    }
    // `…/lib/python3.11/json/decoder.py`, `…/lib/python311.zip/json/decoder.py`
    let after_lib = ["/lib/python3", "/lib64/python3"]
        .into_iter()
        .find_map(|folder| path.rfind(folder).map(|at| &path[at + folder.len()..]))?;
    let (version, rest) = after_lib.split_once('/')?;
    let version = version.strip_suffix(".zip").unwrap_or(version);
    let digits = version.trim_end_matches(['t', 'd']);
    let is_version = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    is_version.then(|| format!("stdlib/{rest}"))
}

/// The innermost of Python's frames that is of no installed package and not of the standard library;
/// of a program that is installed itself, the innermost one.
pub(crate) fn innermost_of_program<'a>(
    mut python: impl Iterator<Item = &'a Frame>,
) -> Option<&'a Frame> {
    let is_of_program = |frame: &&Frame| frame.file.is_some() && !frame.is_installed();
    let innermost = python.next()?;
    if is_of_program(&innermost) {
        return Some(innermost);
    }
    python.find(is_of_program).or(Some(innermost))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::fixture::python;

    #[test]
    fn a_programs_line_is_outside_installed_files() {
        let [linear, json, own, main] = [
            (
                "/venv/lib/python3.11/site-packages/torch/nn/functional.py",
                5,
            ),
            ("/usr/lib/python3.11/json/decoder.py", 6),
            ("/srv/train.py", 7),
            ("/srv/main.py", 8),
        ]
        .map(|(file, line)| python("f", file, line));
        let line = |frames: &[&Frame]| {
            innermost_of_program(frames.iter().copied()).and_then(|frame| frame.line)
        };
        assert_eq!(line(&[&linear, &json, &own, &main]), Some(7));
        assert_eq!(line(&[&main, &own]), Some(8));
        assert_eq!(
            line(&[&json, &linear]),
            Some(6),
            "a program that is installed"
        );
        assert_eq!(line(&[]), None);
    }
}
