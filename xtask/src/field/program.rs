//! Builds and starts the programs, and says what of them this machine lacks.

use super::table::{Case, Packages};
use crate::{
    command::{find, output, root},
    targets::{building, mode},
};
use anyhow::{Context, Result};
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// As on a small machine: with a large heap and G1, a leak fills memory that garbage has touched before.
const JAVA: [&str; 3] = ["-Xms16m", "-Xmx512m", "-XX:+UseSerialGC"];

pub(super) struct Programs {
    /// The built ones.
    folder: PathBuf,
    python: PathBuf,
    /// Interpreters and folders of packages, by their version and requirement.
    packages: BTreeMap<(&'static str, &'static str), (PathBuf, PathBuf)>,
    /// Programs that cannot run here, and why.
    missing: BTreeMap<&'static str, String>,
}

/// Where the sources are.
pub(super) fn source(case: &Case) -> PathBuf {
    root().join("tests/targets/field").join(case.source)
}

impl Programs {
    /// Builds what the machine has tools for, and installs packages.
    ///
    /// # Errors
    /// A compiler fails.
    pub(super) fn build(
        cases: &[&'static Case],
        python: Option<&Path>,
        folder: &Path,
    ) -> Result<Programs> {
        let mut programs = Programs {
            folder: folder.join("programs"),
            python: match python {
                Some(python) => python.to_owned(),
                None => PathBuf::from(building::python()?),
            },
            packages: BTreeMap::new(),
            missing: BTreeMap::new(),
        };
        fs::create_dir_all(&programs.folder)?;
        let mut built = BTreeSet::new();
        for case in cases {
            let tool = tool(case.source);
            if tool.is_some_and(|tool| find(tool).is_none()) {
                let missing = format!("no {}", tool.unwrap_or_default());
                programs.missing.insert(case.name, missing);
            } else if built.insert(case.source) {
                building::build(&source(case), &programs.folder, &programs.python)?;
            }
            if let Some(packages) = &case.packages {
                programs.install(case, packages, &folder.join("packages"));
            }
        }
        Ok(programs)
    }

    /// A package that cannot be installed is skipped: the registry may be unreachable.
    fn install(&mut self, case: &'static Case, packages: &Packages, folder: &Path) {
        for requirement in packages.requirements() {
            let installed = interpreter(packages.python).and_then(|python| {
                Ok((
                    install(&python, packages.python, requirement, folder)?,
                    python,
                ))
            });
            match installed {
                Ok((folder, python)) => {
                    self.packages
                        .insert((packages.python, requirement), (python, folder));
                }
                Err(error) => {
                    self.missing.insert(case.name, format!("{error:#}"));
                }
            }
        }
    }

    pub(super) fn missing(&self, case: &Case) -> Option<&str> {
        self.missing.get(case.name).map(String::as_str)
    }

    /// Starts a program with its fault or without it.
    pub(super) fn command(&self, case: &Case, leaks: bool, seed: u64) -> Command {
        let source = source(case);
        let language = source.extension().unwrap_or_default().to_str();
        let packages = case.packages.as_ref();
        let packages =
            packages.and_then(|of| self.packages.get(&(of.python, of.requirement(leaks))));
        let mut command = match (language, packages) {
            (Some("py"), Some((python, _))) => Command::new(python),
            (Some("py"), None) => Command::new(&self.python),
            (Some("js"), _) => Command::new("node"),
            (Some("php"), _) => Command::new("php"),
            (Some("rb"), _) => Command::new("ruby"),
            (Some("java"), _) => Command::new("java"),
            _ => Command::new(building::binary(&source, &self.folder)),
        };
        match language {
            Some("java") => {
                command.args(JAVA).arg("-cp").arg(&self.folder);
                command.arg(source.file_stem().unwrap_or_default());
            }
            Some("py" | "js" | "php" | "rb") => {
                command.arg(&source);
            }
            _ => {}
        }
        command
            .args([mode(leaks), &seed.to_string()])
            .args(case.fault)
            // A user's variables may change allocations.
            .env_clear()
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PATH", env::var_os("PATH").unwrap_or_default());
        if let Some((_, folder)) = packages {
            command.env("PYTHONPATH", folder);
        }
        command
    }
}

/// What a source needs to be built and run.
fn tool(source: &str) -> Option<&'static str> {
    let (_, language) = source.rsplit_once('.')?;
    Some(match language {
        "c" => "cc",
        "cc" => "c++",
        "rs" => "rustc",
        "go" => "go",
        "java" => "javac",
        "js" => "node",
        "php" => "php",
        "rb" => "ruby",
        _ => return None,
    })
}

/// An interpreter of this version: of pyenv, or in PATH.
fn interpreter(version: &str) -> Result<PathBuf> {
    let home = env::var_os("PYENV_ROOT").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".pyenv")));
    let versions = home.and_then(|home| fs::read_dir(home.join("versions")).ok());
    let own = versions
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.strip_prefix(version)
                .is_some_and(|rest| rest.starts_with('.'))
        });
    own.map(|path| path.join("bin/python3"))
        .or_else(|| find(&format!("python{version}")))
        .with_context(|| format!("no python{version}"))
}

/// Installs a requirement into a folder of its own, once.
fn install(python: &Path, version: &str, requirement: &str, folder: &Path) -> Result<PathBuf> {
    let name = format!("{version} {requirement}").replace(' ', "_");
    let installed = folder.join(&name);
    if installed.exists() {
        return Ok(installed);
    }
    let partial = folder.join(name + ".partial");
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    let mut pip = Command::new(python);
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--only-binary",
        ":all:",
        "--target",
    ])
    .arg(&partial)
    .args(requirement.split(' '));
    output(&mut pip)?;
    fs::rename(&partial, &installed)?;
    Ok(installed)
}
