//! A repository for apt: a folder that any web server can serve.

use super::tar;
use crate::{
    command::{output, target_dir},
    setup,
};
use anyhow::{Context, Result};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Its suite and its only component.
const SUITE: &str = "stable";
const COMPONENT: &str = "main";

/// Packs a repository of these packages into `file`. It is not signed: whoever serves it has the key.
///
/// # Errors
/// When a tool is missing, or fails.
pub(crate) fn repository(packages: &[PathBuf], file: &Path) -> Result<()> {
    setup::install(&["apt-utils", "dpkg-dev"])?;
    let root = target_dir().join("dist-apt");
    let _ = fs::remove_dir_all(&root);
    let pool = root.join("pool/main/m/memtrace");
    fs::create_dir_all(&pool).with_context(|| format!("cannot make `{}`", pool.display()))?;
    let mut architectures = Vec::new();
    for package in packages {
        fs::copy(package, pool.join(package.file_name().unwrap_or_default()))
            .with_context(|| format!("cannot copy `{}`", package.display()))?;
        let mut architecture = Command::new("dpkg-deb");
        architecture.arg("--field").arg(package).arg("Architecture");
        architectures.push(output(&mut architecture)?);
    }
    for architecture in &architectures {
        let index = format!("dists/{SUITE}/{COMPONENT}/binary-{architecture}");
        fs::create_dir_all(root.join(&index))?;
        let mut scan = Command::new("dpkg-scanpackages");
        scan.args(["--arch", architecture, "pool"]);
        let packages = output(scan.current_dir(&root))? + "\n";
        fs::write(root.join(&index).join("Packages"), packages)?;
    }
    let suite = format!("dists/{SUITE}");
    let mut release = Command::new("apt-ftparchive");
    release.current_dir(&root);
    for (name, value) in [
        ("Origin", "memtrace"),
        ("Label", "memtrace"),
        ("Suite", SUITE),
        ("Codename", SUITE),
        ("Components", COMPONENT),
        ("Architectures", &architectures.join(" ")),
    ] {
        let option = format!("APT::FTPArchive::Release::{name}={value}");
        release.args(["-o", &option]);
    }
    let release = output(release.args(["release", &suite]))? + "\n";
    fs::write(root.join(&suite).join("Release"), release)?;
    tar::pack(&root, "memtrace-apt", file)
}
