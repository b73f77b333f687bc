//! Compiles the library of `memtrace record --preload`, which memtrace contains as a file.

use std::{
    env,
    path::Path,
    process::{Command, ExitCode},
};

const SOURCE: &str = "preload/preload.rs";

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed={SOURCE}");
    let variable = |name| env::var(name).unwrap_or_default();
    let output = Path::new(&variable("OUT_DIR")).join("preload.so");
    let mut command = Command::new(variable("RUSTC"));
    command
        // Of the builder's own target: it needs no C library, so it also serves where memtrace is built for another one.
        .args(["--target", &variable("HOST")])
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "cdylib",
            "--crate-name",
            "memtrace_preload",
        ])
        .args([
            "-C",
            "panic=abort",
            "-C",
            "opt-level=s",
            "-C",
            "link-arg=-nostdlib",
        ])
        .arg("--remap-path-prefix")
        .arg(format!("{}=", variable("CARGO_MANIFEST_DIR")))
        .arg("-o")
        .arg(&output)
        .arg(SOURCE);
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        result => {
            println!("cargo::error=cannot compile `{SOURCE}`: {command:?}: {result:?}");
            ExitCode::FAILURE
        }
    }
}
