//! Root file systems to test in: of Debian releases, made by debootstrap, and a small one with musl.

use crate::{command, setup};
use anyhow::{Context, Result};
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

/// Where they are kept.
pub(crate) fn folder() -> PathBuf {
    command::target_dir().join("roots")
}

/// Makes a root of a Debian release with these packages, if it is missing.
///
/// # Errors
/// When not root, or debootstrap fails.
pub(crate) fn debian(suite: &str, packages: &[&str], root: &Path) -> Result<()> {
    make(root, |unfinished| {
        debootstrap(&[], suite, packages, unfinished)
    })
}

/// Unpacks a root for another architecture, if it is missing. No package is set up: that would take its processor.
///
/// # Errors
/// When not root, or a package cannot be fetched or unpacked.
pub(crate) fn unpacked(
    suite: &str,
    architecture: &str,
    packages: &[&str],
    root: &Path,
) -> Result<()> {
    // `dpkg-deb -x` would replace links such as /bin by folders. The files are those that base-passwd makes.
    const UNPACK: &str = "for package in var/cache/apt/archives/*.deb; do \
         dpkg-deb --fsys-tarfile $package | tar -x --keep-directory-symlink; rm $package; done; \
         rm -r proc debootstrap; mkdir proc; \
         for file in passwd group; do cp usr/share/base-passwd/$file.master etc/$file; done";
    make(root, |unfinished| {
        let options = ["--foreign", "--arch", architecture];
        debootstrap(&options, suite, packages, unfinished)?;
        let mut unpack = Command::new("bash");
        unpack.args(["-e", "-o", "pipefail", "-c", UNPACK]);
        command::output(unpack.current_dir(unfinished)).map(drop)
    })
}

fn debootstrap(options: &[&str], suite: &str, packages: &[&str], root: &Path) -> Result<()> {
    setup::install(&["debootstrap"])?;
    let mut debootstrap = Command::new("debootstrap");
    debootstrap
        .args(options)
        .arg("--variant=minbase")
        .arg(format!("--include={}", packages.join(",")))
        .arg(suite)
        .arg(root);
    command::run(&mut debootstrap)
        .with_context(|| format!("cannot create a root file system of {suite}"))
}

/// Makes a root, if it is missing. One under its final name is complete.
fn make(root: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if root.exists() {
        return Ok(());
    }
    let unfinished = root.with_extension("unfinished");
    let _ = fs::remove_dir_all(&unfinished);
    fs::create_dir_all(&unfinished)
        .with_context(|| format!("cannot make `{}`", unfinished.display()))?;
    fill(&unfinished)?;
    Ok(fs::rename(&unfinished, root)?)
}

/// Makes a root that has musl and busybox, and nothing of glibc.
///
/// # Errors
/// When the packages with both cannot be installed here, or copied.
pub(crate) fn musl(root: &Path) -> Result<()> {
    const FILES: [(&str, &str); 2] = [
        ("/bin/busybox", "bin/busybox"),
        ("/lib/ld-musl-x86_64.so.1", "lib/ld-musl-x86_64.so.1"),
    ];
    if root.exists() {
        return Ok(());
    }
    setup::install(&["busybox-static", "musl"])?;
    let unfinished = root.with_extension("unfinished");
    let _ = fs::remove_dir_all(&unfinished);
    for folder in ["bin", "dev", "etc", "lib", "proc", "root", "sys", "tmp"] {
        fs::create_dir_all(unfinished.join(folder))?;
    }
    for (from, to) in FILES {
        fs::copy(from, unfinished.join(to)).with_context(|| format!("cannot copy `{from}`"))?;
    }
    let commands = command::output(Command::new("/bin/busybox").arg("--list"))?;
    for command in commands.lines().filter(|name| *name != "busybox") {
        symlink("busybox", unfinished.join("bin").join(command))?;
    }
    Ok(fs::rename(&unfinished, root)?)
}

/// A program in a root, with the host's /proc, /sys and /dev, whose mounts end with it.
pub(crate) fn enter(root: &Path, program: &str) -> Command {
    const SCRIPT: &str = "for folder in proc sys dev; do \
         mkdir -p \"$0/$folder\" && mount --rbind \"/$folder\" \"$0/$folder\" || exit; done; \
         exec chroot \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT])
        .arg(root)
        .arg(program)
        .env_clear()
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .env("HOME", "/root");
    command
}
