//! `cargo xtask lint`: formatting, clippy, and the repository's own rules.

use crate::{
    command::{self, cargo, output, root},
    cycles, docs, imports,
};
use anyhow::{Context, Result, bail};
use std::{fs, path::Path, process::Command};

/// Most lines of a Rust file.
const LONG_FILE: usize = 600;
/// Parents that many checkouts share, so their names in a file give nothing away.
const COMMON_PARENTS: [&str; 6] = ["/", "/tmp/", "/home/", "/root/", "/srv/", "/opt/"];

/// `cargo xtask lint`.
///
/// # Errors
/// When one of the checks fails.
pub(crate) fn run() -> Result<()> {
    command::run(cargo().args(["fmt", "--all", "--check"]))?;
    for apart in ["memtrace-ebpf/Cargo.toml", "memtrace/fuzz/Cargo.toml"] {
        command::run(cargo().args(["fmt", "--check", "--manifest-path", apart]))?;
    }
    command::run(cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))?;
    files()?;
    imports::check()?;
    cycles::check()?;
    docs::check()?;
    if command::find("cargo-deny").is_some() {
        command::run(cargo().args(["deny", "check"]))?;
    } else {
        println!(
            "lint: licences and advisories not checked; to check them: `cargo install cargo-deny`"
        );
    }
    println!("lint: ok");
    Ok(())
}

/// Rules about the text of tracked files.
fn files() -> Result<()> {
    let tracked = output(
        Command::new("git")
            .args(["ls-files", "-z"])
            .current_dir(root()),
    )
    .context("cannot list the repository's files")?;
    let private = private_paths(&root());
    let mut bad = Vec::new();
    for name in tracked.split('\0').filter(|name| !name.is_empty()) {
        // A binary, a link to a folder and a file just removed have no text to check.
        let Ok(text) = fs::read_to_string(root().join(name)) else {
            continue;
        };
        let lines = text.lines().count();
        if name.ends_with(".rs") && lines > LONG_FILE {
            bad.push(format!(
                "`{name}` has {lines} lines, more than {LONG_FILE}: split it"
            ));
        }
        bad.extend(
            private
                .iter()
                .filter(|path| text.contains(path.as_str()))
                .map(|path| format!("`{name}` contains `{path}`, a path on this machine")),
        );
    }
    if !bad.is_empty() {
        bail!("{}", bad.join("\n"));
    }
    Ok(())
}

/// The place of this checkout, and its neighbours: no file should contain them.
fn private_paths(root: &Path) -> Vec<String> {
    [Some(root), root.parent()]
        .into_iter()
        .flatten()
        .map(|path| format!("{}/", path.display().to_string().trim_end_matches('/')))
        .filter(|path| !COMMON_PARENTS.contains(&path.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::private_paths;
    use std::path::Path;

    #[test]
    fn a_checkout_and_its_parent_are_private_unless_common() {
        assert_eq!(
            private_paths(Path::new("/data/me/memtrace")),
            ["/data/me/memtrace/", "/data/me/"]
        );
        assert_eq!(
            private_paths(Path::new("/tmp/memtrace")),
            ["/tmp/memtrace/"]
        );
    }
}
