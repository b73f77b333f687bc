//! The licences of all code that the static binary contains: most of them ask that their text goes with it.

use super::binary::TARGET;
use crate::command::{cargo, output};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
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
/// When cargo cannot list the packages.
pub(super) fn all() -> Result<String> {
    let mut metadata = cargo();
    metadata.args([
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--filter-platform",
        TARGET,
    ]);
    let metadata: Value = serde_json::from_str(&output(&mut metadata)?)
        .context("`cargo metadata` printed no JSON")?;
    let packages = linked(&metadata);
    ensure!(packages.len() > 1, "`cargo metadata` names no dependencies");
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

/// The packages whose code is in memtrace, without those of this repository, by name.
fn linked(metadata: &Value) -> Vec<&Value> {
    let all = |value: &'static str| metadata[value].as_array().into_iter().flatten();
    let by_id = |item: &'_ Value| item["id"].as_str().map(str::to_owned);
    let nodes = metadata["resolve"]["nodes"]
        .as_array()
        .into_iter()
        .flatten();
    let nodes: HashMap<_, _> = nodes
        .filter_map(|node| Some((by_id(node)?, node)))
        .collect();
    let memtrace = all("packages").find(|package| package["name"] == "memtrace");
    let mut pending: Vec<String> = memtrace.and_then(by_id).into_iter().collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = pending.pop() {
        let dependencies = nodes.get(&id).and_then(|node| node["deps"].as_array());
        if !seen.insert(id) {
            continue;
        }
        // `null`: neither of tests nor of build scripts.
        let is_linked = |of: &&Value| {
            let kinds = of["dep_kinds"].as_array();
            kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
        };
        let dependencies = dependencies.into_iter().flatten().filter(is_linked);
        pending.extend(dependencies.filter_map(|of| of["pkg"].as_str().map(str::to_owned)));
    }
    let mut linked: Vec<_> = all("packages")
        .filter(|package| !package["source"].is_null())
        .filter(|package| by_id(package).is_some_and(|id| seen.contains(&id)))
        .collect();
    linked.sort_by_key(|package| (package["name"].as_str(), package["version"].as_str()));
    linked
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
