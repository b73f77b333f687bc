//! `cargo xtask undisturbed`: runs test suites of other projects untraced and traced on the same machine, and compares the
//! result of each test. A traced program must behave as it does untraced.

mod compare;
mod sources;
mod suites;

use crate::{
    command::{self, build_memtrace, target_dir},
    setup,
};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use compare::{Comparison, Results};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};
use suites::Suite;

#[derive(Args)]
pub(crate) struct Options {
    /// Only suites whose name contains this (may be repeated)
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Runs of each suite, untraced (at least two, to find unstable tests) and again traced
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// The interpreter whose own tests are run; the default is Debian's, with its package of tests
    #[arg(long, value_name = "PATH", default_value = suites::PYTHON)]
    python: PathBuf,
    /// Options of `memtrace record`, such as `--no-stop`
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    record: Vec<String>,
    /// Use the debug build, which is slower
    #[arg(long)]
    debug: bool,
}

/// `cargo xtask undisturbed`.
///
/// # Errors
/// When not root, something is missing, or a test has a result traced that it never has untraced.
pub(crate) fn run(options: &Options) -> Result<()> {
    command::need_root("recording")?;
    ensure!(options.runs > 0, "`--runs` must be greater than 0");
    let mut suites = suites::all(&options.python);
    suites.retain(|suite| {
        let mut only = options.only.iter();
        options.only.is_empty() || only.any(|part| suite.name.contains(part.as_str()))
    });
    ensure!(
        !suites.is_empty(),
        "no suite has such a name: {:?}",
        options.only
    );
    let packages = suites.iter().flat_map(|suite| suite.packages);
    let packages: BTreeSet<&str> = packages.copied().collect();
    setup::install(&packages.into_iter().collect::<Vec<_>>())?;
    let memtrace = build_memtrace(!options.debug)?;
    let mut compared = Vec::new();
    for suite in &suites {
        let folder = target_dir().join("undisturbed").join(suite.name);
        fs::create_dir_all(&folder)?;
        (suite.prepare)(&folder).with_context(|| format!("cannot prepare {}", suite.name))?;
        let repeated = |tracer: Option<&[String]>| -> Result<Vec<Results>> {
            let mut all = Vec::new();
            let (how, runs) = match tracer {
                Some(_) => ("traced", options.runs),
                None => ("untraced", options.runs.max(2)),
            };
            for number in 1..=runs {
                let log = folder.join(format!("{how}-{number}.log"));
                let begun = Instant::now();
                all.push(once(suite, &folder, &log, tracer)?);
                let seconds = begun.elapsed().as_secs();
                println!("{}: {how}, run {number} of {runs}: {seconds} s", suite.name);
            }
            Ok(all)
        };
        let recording = folder.join("recording.mtr").display().to_string();
        let mut tracer = vec![
            memtrace.display().to_string(),
            "record".into(),
            "--force".into(),
        ];
        tracer.extend(options.record.iter().cloned());
        tracer.extend(["-o".into(), recording, "--".into()]);
        let comparison = Comparison::of(&repeated(None)?, &repeated(Some(&tracer))?);
        print!("{}", comparison.details());
        compared.push((suite.name, comparison));
    }
    println!("\n{:<28} {}", "suite", compare::COLUMNS);
    for (name, comparison) in &compared {
        println!("{name:<28} {comparison}");
    }
    let disturbed = compared
        .iter()
        .filter(|(_, comparison)| comparison.is_disturbed());
    match disturbed.count() {
        0 => Ok(()),
        count => bail!(
            "{count} suites differ traced; their logs are in {}",
            target_dir().join("undisturbed").display()
        ),
    }
}

/// Runs a suite, with its output in `log`.
fn once(suite: &Suite, folder: &Path, log: &Path, tracer: Option<&[String]>) -> Result<Results> {
    let mut words: Vec<String> = tracer.map(<[_]>::to_vec).unwrap_or_default();
    words.extend(["sh".into(), "-c".into(), suite.script.clone()]);
    let output = fs::File::create(log)?;
    let _ = fs::remove_file(folder.join(suites::RESULTS));
    let status = Command::new(&words[0])
        .args(&words[1..])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .status()
        .with_context(|| format!("cannot start `{}`", words[0]))?;
    let output = String::from_utf8_lossy(&fs::read(log)?).into_owned();
    let mut results = (suite.results)(folder, &output);
    ensure!(
        !results.is_empty(),
        "no results of {}: see {}",
        suite.name,
        log.display()
    );
    results.insert("the whole suite".into(), status.to_string());
    Ok(results)
}
