//! `cargo xtask demo`: from nothing to the line that leaks.

use crate::command::{self, PACKAGE, cargo, target_dir};
use anyhow::{Context, Result, ensure};
use std::{
    fs,
    io::{BufRead, BufReader, IsTerminal, Write, stderr},
    process::{Command, Stdio},
};

/// Cargo's profile that builds fastest.
const PROFILE: &str = "quick";

/// `cargo xtask demo`.
///
/// # Errors
/// When not root, something is missing, or one of the commands fails.
pub(crate) fn run(example: Option<&str>) -> Result<()> {
    command::need_root("recording")?;
    build()?;
    let folder = target_dir().join("demo");
    fs::create_dir_all(&folder)?;
    let mut demo = Command::new(target_dir().join(PROFILE).join("memtrace"));
    demo.args(["demo", "--force", "--output"])
        .arg(folder.join("leak.mtr"))
        .args(example);
    command::run(&mut demo)
}

/// Builds memtrace with one line for all crates.
fn build() -> Result<()> {
    eprintln!("building memtrace: a few minutes at first");
    let mut build = cargo();
    build.args([
        "build",
        "--quiet",
        "--package",
        PACKAGE,
        "--profile",
        PROFILE,
    ]);
    build.arg("--message-format=json-render-diagnostics");
    let mut build = build
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let output = build.stdout.take().context("cargo has no output")?;
    let mut crates = 0;
    for message in BufReader::new(output).lines() {
        crates += u32::from(message?.starts_with("{\"reason\":\"compiler-artifact\""));
        if stderr().is_terminal() {
            eprint!("\r{crates} crates ");
            stderr().flush()?;
        }
    }
    if stderr().is_terminal() {
        // Clears the line (ECMA-48, EL).
        eprint!("\r\x1b[K");
    }
    let status = build.wait()?;
    ensure!(status.success(), "`cargo build` failed: {status}");
    Ok(())
}
