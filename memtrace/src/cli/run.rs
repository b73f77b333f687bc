//! `memtrace run`: launch a command, record it, and fail if a condition holds.

use std::{
    ffi::OsString,
    path::{Path, PathBuf, absolute},
    process::ExitCode,
};

use anyhow::{Context, ensure};
use clap::{Args, FromArgMatches};
use tempfile::TempDir;

use super::{diagnose, output::write_file, reading::JUDGING, record};
use crate::{
    analysis::{rounds, suppressions::Suppressions, system::SystemSeries, verdict},
    escape::for_shell,
    progress::{Progress, say},
    recording::{self, At, Recording},
    render,
    view::fail_on::{Condition, Judged, Outcome, State, check},
};

/// Run a command and fail if its memory leaks or grows
#[derive(Clone, Debug, clap::Args)]
#[command(
    override_usage = "memtrace run --fail-on <CONDITION> [OPTIONS] [--] <COMMAND>...",
    after_help = "\
The exit status is that of the command if it failed; otherwise --exit-code if a condition holds, and 0 if none does. \
It is 2 if nothing could be recorded. A condition that cannot be decided does not fail the run, but is reported: \
`leak` and `growth` need a command that runs for 10 seconds or longer, unless it has rounds.

Without --output, the recording is removed unless a condition holds or is undetermined.

Examples:
  memtrace run --fail-on leak -- ./server --self-test
  memtrace run --fail-on growth=1m/s --fail-on live=200m -- python -m pytest
  memtrace run --fail-on leak --json result.json -o run.mtr -- python train.py"
)]
pub(crate) struct RunArgs {
    /// Fail if this holds; may be repeated: `leak`, the verdict of `memtrace diagnose`, on a process or a line;
    /// `undetermined`, if it cannot be decided whether there is a leak; `growth=SIZE/s`, if the growth that reports state for the processes adds up to more; `live=SIZE`, if more was
    /// allocated by malloc and its relatives, or as arenas of Python, and never freed, not even at the exit
    #[arg(long, value_name = "CONDITION", required = true)]
    fail_on: Vec<Condition>,
    /// Exit status if a condition holds
    #[arg(long, value_name = "STATUS", default_value_t = 99, value_parser = clap::value_parser!(u8).range(1..))]
    exit_code: u8,
    /// Also write the result as JSON to this file; `-` for standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write the result and the findings as Markdown to this file, for the summary of a job; `-` for standard output
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// The recording to write and to keep
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite an existing recording, and an existing result
    #[arg(short, long)]
    force: bool,
    /// Ignore the sites listed in this file, see `memtrace diagnose --help`
    #[arg(long, value_name = "FILE")]
    suppressions: Option<PathBuf>,
    /// The command does its work again and again, and reports each round over this descriptor, a socket: fail on `leak`
    /// if a line keeps memory round after round. It writes a byte before the first round and after each, and reads one
    /// before it goes on
    #[arg(long, value_name = "FD")]
    rounds: Option<u32>,
    /// Launch Python with PYTHONMALLOC=malloc, so that each object is an allocation: slower
    #[arg(long)]
    python_objects: bool,
    /// The command to launch, with its arguments. After `--`, memtrace reads no more options of its own
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command and judges its recording.
///
/// # Errors
/// Nothing could be recorded, or the recording cannot be judged.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let suppressions = diagnose::suppressions(args.suppressions.as_deref())?;
    let named = [
        ("--output", &args.output),
        ("--json", &args.json),
        ("--markdown", &args.markdown),
    ];
    let named = named.map(|(option, path)| {
        (
            option,
            path.as_deref().filter(|path| *path != Path::new("-")),
        )
    });
    for (index, (option, path)) in named.iter().enumerate() {
        let Some(path) = path else { continue };
        for (other, same) in &named[..index] {
            ensure!(
                same.is_none_or(|same| absolute(same).ok() != absolute(path).ok()),
                "{option} and {other} name the same file, `{}`",
                path.display()
            );
        }
        if index > 0 {
            recording::may_write(path, args.force)?;
        }
    }
    let (folder, file) = match &args.output {
        Some(file) => (None, file.clone()),
        None => {
            let folder = tempfile::Builder::new().prefix("memtrace-").tempdir();
            let folder = folder.context("cannot create a folder for the recording")?;
            let file = folder.path().join("run.mtr");
            (Some(folder), file)
        }
    };
    let status = match record::record(record_args(args, &file)?, false) {
        Ok(status) => status,
        Err(error) => return Err(with_recording(error, folder, &file)),
    };
    // The command failed, whatever else goes wrong.
    let failure = status.filter(|status| *status != 0).map(record::exit_code);
    let or_failure = |error: anyhow::Error| match failure {
        Some(failure) => {
            tracing::error!("{error:#}");
            Ok(failure)
        }
        None => Err(error),
    };
    let judged = match read(&file, &suppressions, args.rounds.is_some()) {
        Ok(judged) => judged,
        Err(error) => return or_failure(with_recording(error, folder, &file)),
    };
    let outcomes: Vec<_> = args
        .fail_on
        .iter()
        .map(|condition| check(*condition, &judged))
        .collect();
    let fails = outcomes.iter().any(|of| of.state == State::Holds);
    let is_open = |of: &Outcome| match of.state {
        State::Undetermined(why) => why.is_some() || of.rounds.is_some(),
        _ => false,
    };
    let tells = fails || outcomes.iter().any(is_open);
    let kept = (tells || folder.is_none()).then(|| file.display().to_string());
    if let Some(folder) = folder.filter(|_| tells) {
        // Its name is printed below.
        let _ = folder.keep();
    }
    for line in outcomes.iter().filter_map(render::outcome) {
        say(&line);
    }
    if let Some(kept) = kept.as_ref().filter(|_| tells) {
        say(&format!("next: memtrace diagnose {}", for_shell(kept)));
    }
    if let Some(path) = &args.json {
        let text = render::outcomes_json(&outcomes, kept.as_deref()).to_string() + "\n";
        if let Err(error) = write_file(path, args.force, text.as_bytes()) {
            return or_failure(error);
        }
    }
    if let Some(path) = &args.markdown {
        let mut text = Vec::new();
        render::outcomes_markdown(&mut text, &outcomes, &judged)?;
        if let Err(error) = write_file(path, args.force, &text) {
            return or_failure(error);
        }
    }
    Ok(match failure {
        Some(failure) => failure,
        None if fails => ExitCode::from(args.exit_code),
        None => ExitCode::SUCCESS,
    })
}

fn read(file: &Path, suppressions: &Suppressions, has_rounds: bool) -> anyhow::Result<Judged> {
    let _progress = Progress::begin(JUDGING);
    let recording = Recording::open(file)?;
    let found = verdict::diagnose(&recording, &SystemSeries::read(&recording)?, suppressions)?;
    let end = recording.snapshot(At::End)?;
    let series = has_rounds.then(|| recording.rounds()).transpose()?;
    Ok(Judged {
        rounds: series
            .map(|series| rounds::judge(&series, &end.stacks, &found.holders, suppressions)),
        found,
        end,
    })
}

/// Keeps what was recorded before an error.
fn with_recording(error: anyhow::Error, folder: Option<TempDir>, file: &Path) -> anyhow::Error {
    match folder.filter(|_| file.exists()) {
        Some(folder) => {
            let _ = folder.keep();
            error.context(format!(
                "the recording `{}` cannot be judged",
                file.display()
            ))
        }
        None => error,
    }
}

/// As for `memtrace record`.
fn record_args(args: &RunArgs, file: &Path) -> anyhow::Result<record::RecordArgs> {
    let mut line: Vec<OsString> = vec!["record".into(), "--output".into(), file.into()];
    line.extend(args.force.then(|| "--force".into()));
    line.extend(args.python_objects.then(|| "--python-objects".into()));
    if let Some(rounds) = args.rounds {
        line.push(format!("--rounds={rounds}").into());
    }
    line.push("--".into());
    line.extend(args.command.iter().cloned());
    let command = record::RecordArgs::augment_args(clap::Command::new("record"));
    let matches = command.try_get_matches_from(line)?;
    Ok(record::RecordArgs::from_arg_matches(&matches)?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use std::fs;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        run: RunArgs,
    }

    #[test]
    fn an_error_does_not_remove_the_recording() {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("run.mtr");
        fs::write(&file, "no recording").unwrap();
        let error = read(&file, &Suppressions::default(), false).unwrap_err();
        let error = with_recording(error, Some(folder), &file);
        assert!(
            error.to_string().contains(&*file.to_string_lossy()),
            "{error}"
        );
        assert!(file.exists());
        fs::remove_dir_all(file.parent().unwrap()).unwrap();

        let folder = TempDir::new().unwrap();
        let path = folder.path().to_owned();
        let none = path.join("run.mtr");
        let error = with_recording(anyhow::anyhow!("no process"), Some(folder), &none);
        assert_eq!(error.to_string(), "no process");
        assert!(!path.exists());
    }

    #[test]
    fn the_command_keeps_its_own_options() {
        let line = "run --fail-on leak --fail-on live=1m prog --fail-on x -o y";
        let args = Cli::try_parse_from(line.split(' ')).unwrap().run;
        assert_eq!(args.fail_on, [Condition::Leak, Condition::Live(1 << 20)]);
        assert_eq!(args.command.len(), 5);
        assert!(record_args(&args, Path::new("a.mtr")).is_ok());
        for wrong in [
            "run prog",
            "run --fail-on leak",
            "run --fail-on leak --exit-code 0 prog",
        ] {
            assert!(Cli::try_parse_from(wrong.split(' ')).is_err(), "{wrong}");
        }
    }
}
