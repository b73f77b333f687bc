//! The programs that run in virtual machines: memtrace, which may also be given by `MEMTRACE_BIN`, and the tests.

use super::architecture::{Architecture, Cross};
use crate::{
    command::{self, PACKAGE, cargo},
    setup,
};
use anyhow::{Context, Result};
use serde_json::Value;
use std::{env, path::PathBuf, process::Command};

const GIVEN: &str = "MEMTRACE_BIN";

/// Builds memtrace, unless it is given.
///
/// # Errors
/// It does not build.
pub(super) fn build(architecture: &Architecture) -> Result<()> {
    if env::var_os(GIVEN).is_some() {
        return Ok(());
    }
    let Some(cross) = &architecture.cross else {
        return command::build_workspace();
    };
    setup::install(architecture.packages)?;
    let mut build = cargo();
    build.args(["build", "--package", PACKAGE]);
    command::run(options(&mut build, cross))
}

/// The memtrace that is given or built.
pub(super) fn memtrace(architecture: &Architecture) -> PathBuf {
    if let Some(given) = env::var_os(GIVEN) {
        return PathBuf::from(given);
    }
    architecture.builds().join("debug/memtrace")
}

/// The end-to-end tests' executable.
///
/// # Errors
/// They do not build.
pub(crate) fn test_program(architecture: &Architecture) -> Result<PathBuf> {
    let mut build = cargo();
    match &architecture.cross {
        // Built like `cargo xtask test`: another selection would build twice.
        None => build.args(["test", "--workspace"]),
        Some(cross) => options(build.args(["test", "--package", "memtrace-tests"]), cross),
    };
    build.args(["--test", "*", "--no-run", "--message-format", "json"]);
    let messages = command::output(&mut build)?;
    let mut messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_tests = |message: &Value| {
        let is_theirs = message["target"]["name"] == "e2e";
        let path = message["executable"].as_str()?;
        is_theirs.then(|| PathBuf::from(path))
    };
    messages
        .find_map(|message| of_tests(&message))
        .context("no tests are built from `tests/e2e/`")
}

/// Its linker is in `.cargo/config.toml`.
fn options<'a>(build: &'a mut Command, cross: &Cross) -> &'a mut Command {
    build.args(["--target", cross.target])
}
