//! The static binary: it needs no library of the system, has no symbols, and is the same from any folder.

use crate::{
    command::{self, output, root, target_dir},
    setup,
};
use anyhow::{Context, Result, ensure};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

pub(super) const TARGET: &str = "x86_64-unknown-linux-musl";
/// Not `dist`: cargo would put files of its own where the packages go.
pub(super) const PROFILE: &str = "installed";

/// Builds it and returns its path.
///
/// # Errors
/// When there is no standard library for musl, or the build fails.
pub(super) fn build() -> Result<PathBuf> {
    setup::install(&["musl-tools"])?;
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    ensure!(
        Path::new(&sysroot)
            .join("lib/rustlib")
            .join(TARGET)
            .is_dir(),
        "Rust's standard library for musl is missing: `rustup target add {TARGET}`"
    );
    build_in(&root(), &target_dir())
}

/// Builds it again from a copy of the sources in another folder, and compares.
///
/// # Errors
/// When the build fails, or its bytes are others.
pub(super) fn build_again(first: &Path) -> Result<()> {
    let files = output(
        Command::new("git")
            .args(["ls-files", "-z"])
            .current_dir(root()),
    )
    .context("cannot list the repository's files")?;
    let folder = env::temp_dir().join(format!("memtrace-again-{}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    let mut copy = Command::new("cp");
    copy.args(["--archive", "--parents", "--target-directory"])
        .arg(&folder)
        .args(files.split('\0').filter(|file| !file.is_empty()))
        .current_dir(root());
    // Not shown: its line is all files.
    output(&mut copy)?;
    let second = build_in(&folder, &folder.join("target"))?;
    let [first_bytes, second_bytes] = [first, &second].map(fs::read);
    ensure!(
        first_bytes? == second_bytes?,
        "`{}` and `{}` differ: the build depends on its folder",
        first.display(),
        second.display()
    );
    println!("dist: the same binary was built in `{}`", folder.display());
    fs::remove_dir_all(&folder).with_context(|| format!("cannot remove `{}`", folder.display()))
}

fn build_in(sources: &Path, target_dir: &Path) -> Result<PathBuf> {
    let mut cargo = command::cargo();
    cargo
        .current_dir(sources)
        .args([
            "build",
            "--locked",
            "--package",
            command::PACKAGE,
            "--bin",
            "memtrace",
        ])
        .args(["--target", TARGET, "--profile", PROFILE, "--target-dir"])
        .arg(target_dir);
    prepare(&mut cargo, sources, target_dir)?;
    command::run(&mut cargo)?;
    Ok(target_dir.join(TARGET).join(PROFILE).join("memtrace"))
}

/// Sets up cargo, or a program that calls it: what it builds contains no path of this machine and no time of today.
///
/// # Errors
/// When rustc or git cannot be asked.
pub(super) fn prepare(build: &mut Command, sources: &Path, target_dir: &Path) -> Result<()> {
    let rustc = output(Command::new("rustc").arg("-vV"))?;
    let commit = rustc
        .lines()
        .find_map(|line| line.strip_prefix("commit-hash: "));
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    // A later one overrides an earlier one.
    let renamed = [
        (
            command::cargo_home()?.join("registry/src"),
            "/cargo".to_owned(),
        ),
        (
            Path::new(&sysroot).join("lib/rustlib/src/rust"),
            format!("/rustc/{}", commit.unwrap_or_default()),
        ),
        (sources.to_path_buf(), "/memtrace".to_owned()),
        (target_dir.to_path_buf(), "/memtrace/target".to_owned()),
    ];
    let map = |option: &str| {
        let pairs = renamed.iter();
        let options = pairs.map(|(from, to)| format!("{option}={}={to}", from.display()));
        options.collect::<Vec<_>>()
    };
    let variable = TARGET.replace('-', "_");
    build
        .env(
            "CARGO_ENCODED_RUSTFLAGS",
            map("--remap-path-prefix").join("\x1f"),
        )
        .env(format!("CC_{variable}"), "musl-gcc")
        .env(
            format!("CFLAGS_{variable}"),
            map("-ffile-prefix-map").join(" "),
        )
        .env("SOURCE_DATE_EPOCH", commit_time()?)
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    Ok(())
}

/// When the sources were committed, in seconds since 1970: the time that packages have for their files.
///
/// # Errors
/// When git does not know.
pub(super) fn commit_time() -> Result<String> {
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%ct"]).current_dir(root());
    output(&mut git).context("cannot ask git for the time of the last commit")
}
