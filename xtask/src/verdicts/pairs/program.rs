//! Builds and starts the programs of the pairs.

use super::{super::Options, table::Pair};
use crate::{
    command::root,
    targets::{
        building::{self, python},
        mode,
        running::Running,
    },
};
use anyhow::{Result, bail};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

/// The programs that can be started.
pub(super) struct Programs {
    /// The compiled ones.
    folder: PathBuf,
    python: PathBuf,
    /// With numpy and PyTorch.
    venv_python: Option<PathBuf>,
}

impl Programs {
    pub(super) fn build(pairs: &[&Pair], options: &Options, folder: &Path) -> Result<Programs> {
        std::fs::create_dir_all(folder)?;
        let python = PathBuf::from(python()?);
        let sources: BTreeSet<&str> = pairs
            .iter()
            .flat_map(|pair| pair.sources)
            .copied()
            .collect();
        for name in sources {
            building::build(&source(name), folder, &python)?;
        }
        Ok(Programs {
            folder: folder.to_owned(),
            python,
            venv_python: options.venv.as_ref().map(|venv| venv.join("bin/python")),
        })
    }
}

/// Where the sources are.
pub(super) fn source(name: &str) -> PathBuf {
    root().join("tests/targets/pairs").join(name)
}

/// Starts a program and waits for the line that it prints once it is warm.
pub(super) fn start(pair: &Pair, programs: &Programs, leaks: bool, seed: u64) -> Result<Running> {
    let Some((stem, language)) = pair.sources[0].rsplit_once('.') else {
        bail!("`{}` has no extension", pair.sources[0]);
    };
    let mut command = match (language, &programs.venv_python) {
        ("py", Some(python)) if pair.needs_venv => Command::new(python),
        ("py", _) => Command::new(&programs.python),
        _ => Command::new(programs.folder.join(stem)),
    };
    if language == "py" {
        command.arg(source(pair.sources[0]));
    }
    command
        .args([mode(leaks), &seed.to_string()])
        .args(pair.fault)
        // A user's variables may change allocations.
        .env_clear()
        .env("PYTHONPATH", &programs.folder)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // PyTorch's warning about the stand-in for a GPU.
        .env("PYTHONWARNINGS", "ignore");
    Running::start(&mut command, pair.name)
}
