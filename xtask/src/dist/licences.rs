//! The licences of all code that the static binary contains: most of them ask that their text goes with it.

use super::linked::linked;
use anyhow::{Context, Result};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::Path,
};

/// Beginnings of the names of files with licences, in lower case.
const NAMES: [&str; 5] = ["copying", "copyright", "licence", "license", "notice"];

/// Not cargo's packages; Rust's standard library contains its own, and musl's.
const REST: &str = "Rust's standard library: MIT OR Apache-2.0, https://github.com/rust-lang/rust\n\
                    musl, the C library: MIT, https://git.musl-libc.org/cgit/musl/tree/COPYRIGHT\n\
                    SQLite: public domain\n";

/// All texts, each once, below the names of the packages that have it.
///
/// # Errors
/// When cargo cannot list the packages, or a text cannot be read.
pub(super) fn all() -> Result<String> {
    let packages = linked()?;
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    let mut text = format!("memtrace contains these packages from crates.io, and\n{REST}\n");
    for package in packages {
        let field = |name: &str| package[name].as_str().unwrap_or_default();
        let name = format!("{} {}", field("name"), field("version"));
        writeln!(text, "{name}: {}", field("license"))?;
        let folder = Path::new(field("manifest_path")).parent();
        for licence in texts(folder.context("a package without a folder")?)? {
            let of = names.entry(licence).or_default();
            let comma = if of.is_empty() { "" } else { ", " };
            write!(of, "{comma}{name}")?;
        }
    }
    // In the order of packages.
    let mut by_names: Vec<_> = names.iter().collect();
    by_names.sort_by_key(|(_, names)| *names);
    for (licence, names) in by_names {
        write!(text, "\n\n======== {names}\n\n{licence}")?;
    }
    Ok(text)
}

/// The texts in a package's own folder.
fn texts(folder: &Path) -> Result<BTreeSet<String>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))?;
    let mut texts = BTreeSet::new();
    for entry in entries {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        if path.is_file() && NAMES.iter().any(|begin| name.starts_with(begin)) {
            let text =
                fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
            texts.insert(String::from_utf8_lossy(&text).replace('\r', ""));
        }
    }
    Ok(texts)
}
