//! `cargo xtask test-pythons`: runs the tests of Python frames and of holders on the interpreters
//! of other Debian releases, each in a root of its own.

use crate::{
    command::{self, cargo},
    roots,
};
use anyhow::{Context, Result, ensure};
use clap::Args;
use std::{env, fs, path::PathBuf};

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
    let folder = options.folder.clone();
    let folder = folder.unwrap_or_else(roots::folder);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut paths = Vec::new();
    for release in &options.releases {
        let (suite, version) = release
            .split_once(':')
            .with_context(|| format!("{release} is not RELEASE:VERSION, such as sid:3.14"))?;
        let root = folder.join(suite);
        let python = root.join(format!("usr/bin/python{version}"));
        let interpreter = format!("python{version}");
        roots::debian(suite, &[&interpreter, "gcc", "libc6-dev"], &root)?;
        ensure!(
            python.exists(),
            "{} is missing; remove {} to make it again",
            python.display(),
            root.display()
        );
        paths.push(root);
    }
    command::run(cargo().args(["build", "--workspace"]))?;
    command::run(
        cargo()
            .env("MEMTRACE_ROOTS", env::join_paths(&paths)?)
            .args(["test", "--workspace", "--test", "e2e", "--"])
            .args(["python::in_other_roots", "holders::in_other_roots"])
            .args(["--exact", "--nocapture"]),
    )
}
