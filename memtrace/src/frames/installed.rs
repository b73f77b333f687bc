//! Decides by path which Python files belong to an installation.

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
