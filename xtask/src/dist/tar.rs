//! Tarballs whose bytes depend on their files alone.

use super::binary::commit_time;
use crate::command;
use anyhow::Result;
use std::{path::Path, process::Command};

/// Packs a folder, under another name.
///
/// # Errors
/// When tar or gzip fails.
pub(super) fn pack(folder: &Path, name: &str, file: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mode=u=rwX,go=rX",
    ])
    .arg(format!("--mtime=@{}", commit_time()?))
    .arg(format!("--transform=s,^\\.,{name},"))
    .args(["--use-compress-program", "gzip -9 --no-name", "-cf"])
    .arg(file)
    .arg("-C")
    .arg(folder)
    .arg(".");
    command::run(&mut tar)
}
