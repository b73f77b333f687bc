//! The packages whose code is in the static binary.

use super::binary::TARGET;
use crate::command::{PACKAGE, cargo, output};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};

/// Those from crates.io as `cargo metadata` describes them, by name.
///
/// # Errors
/// When cargo cannot list the packages.
pub(super) fn linked() -> Result<Vec<Value>> {
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
    let packages = below_memtrace(&metadata);
    ensure!(packages.len() > 1, "`cargo metadata` names no dependencies");
    Ok(packages.into_iter().cloned().collect())
}

fn below_memtrace(metadata: &Value) -> Vec<&Value> {
    let all = |value: &'static str| metadata[value].as_array().into_iter().flatten();
    let by_id = |item: &'_ Value| item["id"].as_str().map(str::to_owned);
    let nodes = metadata["resolve"]["nodes"]
        .as_array()
        .into_iter()
        .flatten();
    let nodes: HashMap<_, _> = nodes
        .filter_map(|node| Some((by_id(node)?, node)))
        .collect();
    let memtrace = all("packages").find(|package| package["name"] == PACKAGE);
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
