//! The sources and the toolchain of the committed objects: `memtrace.bpf.json`.

use super::{OBJECTS, Object};
use crate::command;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// All sources of the objects, relative to the root; folders with all their contents.
const SOURCES: [&str; 5] = [
    "memtrace-common/Cargo.toml",
    "memtrace-common/src",
    "memtrace-ebpf/Cargo.lock",
    "memtrace-ebpf/Cargo.toml",
    "memtrace-ebpf/src",
];

/// Digests are lower-case hex.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Stamp {
    pub(super) sources_sha256: String,
    /// By path from the root.
    pub(super) objects_sha256: BTreeMap<String, String>,
    /// First line of `rustc --version`.
    pub(super) rustc: String,
    /// `bpf-linker --version`.
    pub(super) bpf_linker: String,
}

impl Stamp {
    fn path() -> PathBuf {
        OBJECTS[0].path().with_extension("json")
    }

    /// Empty for an object that it does not have.
    pub(super) fn digest_of(&self, object: Object) -> &str {
        self.objects_sha256
            .get(object.name)
            .map_or("", String::as_str)
    }

    pub(super) fn read() -> Result<Stamp> {
        let path = Self::path();
        let text = fs::read_to_string(&path).with_context(|| {
            format!(
                "cannot read `{}`: run `cargo xtask build-ebpf`",
                path.display()
            )
        })?;
        serde_json::from_str(&text).with_context(|| format!("cannot parse `{}`", path.display()))
    }

    pub(super) fn write(&self) -> Result<()> {
        let path = Self::path();
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))
    }
}

/// SHA-256 in hex.
pub(super) fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// SHA-256 over path, length and content of every source, by path.
pub(super) fn sources_digest() -> Result<String> {
    sources_digest_under(&command::root())
}

fn sources_digest_under(root: &Path) -> Result<String> {
    let mut files = Vec::new();
    for source in SOURCES {
        collect(&root.join(source), &mut files)?;
    }
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        let content =
            fs::read(&file).with_context(|| format!("cannot read `{}`", file.display()))?;
        let name = file.strip_prefix(root)?.to_string_lossy();
        hash.update(format!("{name}\0{}\0", content.len()));
        hash.update(content);
    }
    Ok(hex(&hash.finalize()))
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !path.is_dir() {
        files.push(path.to_path_buf());
        return Ok(());
    }
    for entry in fs::read_dir(path).with_context(|| format!("cannot read `{}`", path.display()))? {
        collect(&entry?.path(), files)?;
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
