//! Builds the programs as users build a release: optimised, with debug information.

use crate::command::{output, run};
use anyhow::{Context, Result};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The interpreter itself, not a version manager's wrapper.
///
/// # Errors
/// There is none.
pub(crate) fn python() -> Result<String> {
    let print = ["-c", "import sys; print(sys.executable)"];
    output(Command::new("python3").args(print)).context("apt-get install python3")
}

/// Builds a source into the folder; those of interpreters are left alone.
///
/// # Errors
/// The compiler is missing or fails.
pub(crate) fn build(source: &Path, folder: &Path, python: &Path) -> Result<()> {
    match compiler(source, folder, python)? {
        Some(mut compiler) => {
            run(&mut compiler).context("apt-get install gcc g++ golang-go default-jdk python3-dev")
        }
        None => Ok(()),
    }
}

/// The program that [`build`] makes of a source.
pub(crate) fn binary(source: &Path, folder: &Path) -> PathBuf {
    folder.join(source.file_stem().unwrap_or_default())
}

fn compiler(source: &Path, folder: &Path, python: &Path) -> Result<Option<Command>> {
    let language = source.extension().unwrap_or_default();
    let mut binary = binary(source, folder);
    let mut command = match language.to_str() {
        Some("rs") => Command::new("rustc"),
        Some("cc") => Command::new("c++"),
        Some("c") => Command::new("cc"),
        Some("go") => Command::new("go"),
        Some("java") => Command::new("javac"),
        _ => return Ok(None),
    };
    match language.to_str() {
        Some("rs") => command.args(["-g", "-O", "--edition", "2024"]),
        Some("go") => command.arg("build"),
        Some("java") => {
            command.args(["-g", "-d"]).arg(folder).arg(source);
            return Ok(Some(command));
        }
        _ => command.args(["-g", "-O2", "-pthread"]),
    };
    if source.ends_with("extension.c") {
        let print = [
            "-c",
            "import sysconfig; print(sysconfig.get_path('include'))",
        ];
        let headers = output(Command::new(python).args(print))?;
        command.args(["-shared", "-fPIC", "-I", &headers]);
        binary.set_extension("so");
    }
    command.arg("-o").arg(binary).arg(source);
    Ok(Some(command))
}
