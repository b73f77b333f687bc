//! Debian packages that the tests and the kernel-side build need.

use crate::{command, ebpf};
use anyhow::{Context, Result, bail};
use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Write},
    os::unix::fs::OpenOptionsExt,
    process::Command,
};

/// Compilers for the targets (and with them LeakSanitizer), the tested allocators, libraries whose unwind tables are
/// tested, and what the action for GitHub calls.
const TESTS: [&str; 14] = [
    "curl",
    "gcc",
    "g++",
    "clang",
    "libc6-dev",
    "libjemalloc2",
    "libtcmalloc-minimal4",
    "libmimalloc2.0",
    "libssl3",
    "libstdc++6",
    "musl-tools",
    "python3",
    "python3-pytest",
    "procps",
];

/// Programs that `tests/e2e/undisturbed.rs` runs traced and untraced.
const TRACED: [&str; 13] = [
    "bubblewrap",
    "gdb",
    "git",
    "iputils-ping",
    "make",
    "nginx-light",
    "parallel",
    "postgresql",
    "python3-gunicorn",
    "redis-server",
    "strace",
    "sudo",
    "tmux",
];

/// The browser in which `cargo xtask test-html` opens pages, and fonts for it.
const BROWSER: [&str; 2] = ["chromium", "fonts-dejavu-core"];

/// Packages run it to ask whether they may start their service (invoke-rc.d(8)).
const SERVICE_POLICY: &str = "/usr/sbin/policy-rc.d";

/// A Rust compiler with the source of its `core`, and bpf-linker's link dependencies.
const KERNEL_SIDE: [&str; 6] = [
    "rustc-web",
    "rust-web-src",
    "llvm-22-dev",
    "libpolly-22-dev",
    "zlib1g-dev",
    "libzstd-dev",
];

/// `cargo xtask setup`.
///
/// # Errors
/// When something is missing and cannot be installed.
pub(crate) fn run(kernel_side: bool) -> Result<()> {
    let mut packages = [&TESTS[..], &TRACED].concat();
    if kernel_side {
        packages.extend(KERNEL_SIDE);
    }
    install(&packages)?;
    if kernel_side {
        ebpf::install_linker()?;
    }
    println!("setup: complete");
    Ok(())
}

/// Installs the packages missing for the tests; `cargo xtask test` calls it.
///
/// # Errors
/// When a package is missing and cannot be installed.
pub(crate) fn for_tests() -> Result<()> {
    install(&[&TESTS[..], &TRACED].concat())
}

/// Installs the packages missing for `cargo xtask test-html`.
///
/// # Errors
/// When a package is missing and cannot be installed.
pub(crate) fn for_html() -> Result<()> {
    install(&[&TESTS[1..2], &TESTS[4..5], &BROWSER].concat())
}

/// Installs the missing ones of these packages.
///
/// # Errors
/// When a package is missing and cannot be installed.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    if command::find("dpkg-query").is_none() || command::find("apt-get").is_none() {
        println!(
            "setup: not a Debian system; install the equivalents of these packages yourself: {}",
            packages.join(" ")
        );
        return Ok(());
    }
    let missing: Vec<_> = packages.iter().copied().filter(|p| !installed(p)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let by_hand = format!(
        "apt-get install -y --no-install-recommends {}",
        missing.join(" ")
    );
    if command::need_root("setup").is_err() {
        bail!("packages are missing; as root: {by_hand}");
    }
    println!("setup: installing {}", missing.join(" "));
    let _no_services = NoServices::begin()?;
    command::run(apt().arg("update").arg("-qq"))?;
    command::run(
        apt()
            .args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(&missing),
    )
    .with_context(|| format!("cannot install packages; by hand: {by_hand}"))
}

/// While this lives no package that is installed starts a service.
struct NoServices {
    /// Whether the policy is ours to remove: an administrator's stays as it is.
    own: bool,
}

impl NoServices {
    fn begin() -> Result<Self> {
        let mut policy = OpenOptions::new();
        match policy
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(SERVICE_POLICY)
        {
            Ok(mut file) => {
                // 101: no action is allowed.
                file.write_all(b"#!/bin/sh\nexit 101\n")?;
                Ok(Self { own: true })
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Self { own: false }),
            Err(error) => Err(error).context(format!("cannot write `{SERVICE_POLICY}`")),
        }
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.own
            && let Err(error) = fs::remove_file(SERVICE_POLICY)
        {
            eprintln!("setup: cannot remove `{SERVICE_POLICY}`: {error}");
        }
    }
}

fn apt() -> Command {
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    apt
}

fn installed(package: &str) -> bool {
    command::output(Command::new("dpkg-query").args(["-W", "-f", "${Status}", package]))
        .is_ok_and(|status| status.ends_with(" installed"))
}
