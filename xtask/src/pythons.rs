//! `cargo xtask test-pythons`: runs the tests of Python frames and of holders on the interpreters
//! of other Debian releases, each in a root of its own.

use crate::{
    command::{self, cargo, target_dir},
    setup,
};
use anyhow::{Context, Result, ensure};
use clap::Args;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

#[derive(Args)]
pub(crate) struct Options {
    /// Releases and their interpreters, e.g. sid:3.14
    #[arg(default_values = ["bullseye:3.9", "trixie:3.13", "sid:3.14"])]
    releases: Vec<String>,
    /// Folder of the roots, which are created there if missing (half a GB each)
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// `cargo xtask test-pythons`.
///
/// # Errors
/// When not root, a root cannot be made, or a test fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    command::need_root("a test in other roots")?;
    setup::install(&["debootstrap"])?;
    let folder = options.folder.clone();
    let folder = folder.unwrap_or_else(|| target_dir().join("roots"));
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut roots = Vec::new();
    for release in &options.releases {
        let (suite, version) = release
            .split_once(':')
            .with_context(|| format!("{release} is not RELEASE:VERSION, such as sid:3.14"))?;
        let root = folder.join(suite);
        let python = root.join(format!("usr/bin/python{version}"));
        // A root that was not finished may have one of both.
        if !python.exists() || !root.join("usr/bin/gcc").exists() {
            bootstrap(suite, version, &root)?;
        }
        ensure!(python.exists(), "{} is still missing", python.display());
        roots.push(root);
    }
    command::run(cargo().args(["build", "--workspace"]))?;
    command::run(
        cargo()
            .env("MEMTRACE_ROOTS", env::join_paths(&roots)?)
            .args([
                "test",
                "--workspace",
                "--test",
                "python",
                "--test",
                "holders",
                "--",
            ])
            .args(["in_other_roots", "--exact", "--nocapture"]),
    )
}

fn bootstrap(suite: &str, version: &str, root: &Path) -> Result<()> {
    let mut debootstrap = Command::new("debootstrap");
    debootstrap
        .arg("--variant=minbase")
        .arg(format!("--include=python{version},gcc,libc6-dev"))
        .arg(suite)
        .arg(root);
    command::run(&mut debootstrap).with_context(|| {
        format!(
            "cannot create a root file system of {suite}; remove {}",
            root.display()
        )
    })
}
