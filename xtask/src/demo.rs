//! `cargo xtask demo`: records an example that leaks, from nothing to a report that
//! ends with its verdict.

use crate::command::{self, build_memtrace_in, compile_c, root, target_dir};
use anyhow::{Result, bail};
use std::process::Command;

/// Cargo's profile that builds fastest.
const PROFILE: &str = "quick";

/// `cargo xtask demo`.
///
/// # Errors
/// When not root, something is missing, or one of the commands fails.
pub(crate) fn run(python: bool) -> Result<()> {
    command::need_root("recording")?;
    let memtrace = build_memtrace_in(PROFILE)?;
    let folder = target_dir().join("demo");
    std::fs::create_dir_all(&folder)?;
    let recording = folder.join("leak.mtr");

    let mut record = Command::new(&memtrace);
    record
        .args(["record", "--force", "-o"])
        .arg(&recording)
        .arg("--");
    if python {
        if command::find("python3").is_none() {
            bail!("no python3: apt-get install python3");
        }
        record.arg("python3").arg(root().join("examples/leak.py"));
    } else {
        let leak = folder.join("leak");
        compile_c(&root().join("examples/leak.c"), &leak)?;
        record.arg(&leak);
    }
    command::run(&mut record)?;
    command::run(
        Command::new(&memtrace)
            .arg("report")
            .arg(&recording)
            .args(["--top", "3"]),
    )
}
