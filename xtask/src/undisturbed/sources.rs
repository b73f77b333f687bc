//! Sources of Debian's packages, fetched without a change to the machine's own list of sources.

use crate::command;
use anyhow::{Context, Result};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The unpacked source of a package below `folder`, fetched if it is not there.
///
/// # Errors
/// When the machine is not Debian, or the source cannot be fetched.
pub(super) fn unpacked(package: &str, folder: &Path) -> Result<PathBuf> {
    let unpacked = folder.join("source");
    if unpacked.exists() {
        return Ok(unpacked);
    }
    let release = fs::read_to_string("/etc/os-release")?;
    let mut lines = release.lines();
    let suite = lines.find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let suite = suite.context("no VERSION_CODENAME in /etc/os-release: not a Debian release")?;
    let list = folder.join("sources.list");
    fs::write(
        &list,
        format!("deb-src http://deb.debian.org/debian {suite} main\n"),
    )?;
    let lists = folder.join("lists");
    fs::create_dir_all(lists.join("partial"))?;
    let apt = || {
        let mut apt = Command::new("apt-get");
        apt.current_dir(folder)
            .arg(format!("-oDir::Etc::SourceList={}", list.display()))
            .args([
                "-oDir::Etc::SourceParts=-",
                "-oAPT::Sandbox::User=root",
                "-qq",
            ])
            .arg(format!("-oDir::State::Lists={}", lists.display()));
        apt
    };
    command::run(apt().arg("update"))?;
    command::run(apt().args(["source", "--download-only", package]))?;
    let description = fs::read_dir(folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "dsc"))
        .with_context(|| format!("`apt-get source {package}` left no .dsc file"))?;
    let unfinished = folder.join("unfinished");
    let _ = fs::remove_dir_all(&unfinished);
    let mut unpack = Command::new("dpkg-source");
    command::run(unpack.arg("-x").arg(description).arg(&unfinished))?;
    fs::rename(&unfinished, &unpacked)?;
    Ok(unpacked)
}
