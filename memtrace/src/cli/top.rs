//! `memtrace top`: live memory on the screen, of a process or a recording.

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use anyhow::{Context, bail};
use clap::{ArgAction, ArgGroup, ArgMatches, Args, parser::ValueSource};

use super::{
    attach::AttachArgs,
    choose::{self, ChooseArgs},
    hints,
};
use crate::top::{self, Source};

/// Watch live memory on the screen
#[derive(Clone, Debug, clap::Args)]
#[command(group(ArgGroup::new("watched").args(["pid", "file"]).args(choose::OPTIONS).multiple(true).required(true)),
override_usage = "memtrace top [OPTIONS] --pid <PID>\n       memtrace top [OPTIONS] --name <NAME>\n       \
memtrace top <FILE>", after_help = "\
Shows the program lines with live memory: size, growth and age, and the stack and the holder of the selected line. \
Press ? for the keys.

For a running process, it runs `memtrace record`, with the same options and cost, and ends it with the screen; the process keeps \
running. FILE is a finished recording, or one that is being written. The screen shows what was last committed to the \
recording; a recorder commits once a second.

Examples:
  memtrace top -p 1234
  memtrace top --container web
  memtrace top -p 1234 -o server.mtr
  memtrace top server.mtr")]
pub(crate) struct TopArgs {
    /// Attach to a running process and its descendants; may be repeated
    #[arg(short, long, value_name = "PID", allow_negative_numbers = true, value_parser = choose::parse_pid)]
    pid: Vec<u32>,
    #[command(flatten)]
    choose: ChooseArgs,
    /// A recording
    #[arg(value_name = "FILE", conflicts_with = "pid", conflicts_with_all = choose::OPTIONS)]
    file: Option<PathBuf>,
    /// Keep the recording. By default, it is in the folder for temporary files (TMPDIR), and removed at the end
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    output: Option<PathBuf>,
    /// Overwrite an existing recording
    #[arg(short, long, requires = "output", conflicts_with = "file")]
    force: bool,
    #[command(flatten)]
    attach: AttachArgs,
}

/// Shows the screen until the user quits.
///
/// # Errors
/// There is no terminal, nothing can be recorded, or the recording cannot be read.
pub(crate) fn run(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let options = options(std::env::args_os().skip(1))?;
    let source = match &args.file {
        Some(file) => {
            if let Some(option) = options.first() {
                bail!(
                    "`{}` is for a running process (`-p PID`); a recording is shown as it is",
                    option.display()
                );
            }
            Source::File(file.clone())
        }
        None => Source::Live {
            pids: pids(args)?,
            output: args.output.clone(),
            force: args.force,
            options,
        },
    };
    Ok(top::run(source, hints::colour())?)
}

/// The processes to watch.
fn pids(args: &TopArgs) -> anyhow::Result<Vec<u32>> {
    Ok(match args.choose.choice() {
        Some(choice) => {
            let chosen = choice.find(!args.attach.no_follow)?;
            chosen.iter().map(|of| of.pid).collect()
        }
        None => args.pid.clone(),
    })
}

/// The options for the recorder in the arguments of `top`, which begin with its name.
fn options(arguments: impl Iterator<Item = OsString>) -> anyhow::Result<Vec<OsString>> {
    let top = TopArgs::augment_args(clap::Command::new("top"));
    let given = top
        .try_get_matches_from(arguments)
        .context("cannot read the options again")?;
    let known = AttachArgs::augment_args(clap::Command::new("record"));
    Ok(known
        .get_arguments()
        .flat_map(|option| words(option, &given))
        .collect())
}

/// An option as words, each time that it was given.
fn words(option: &clap::Arg, given: &ArgMatches) -> Vec<OsString> {
    let id = option.get_id().as_str();
    let is_given = given.value_source(id) == Some(ValueSource::CommandLine);
    let Some(long) = option.get_long().filter(|_| is_given) else {
        return Vec::new();
    };
    match option.get_action() {
        ArgAction::SetTrue => vec![format!("--{long}").into()],
        _ => {
            let values = given.get_raw(id).into_iter().flatten();
            let joined = values.map(|value| {
                let mut word = OsString::from(format!("--{long}="));
                word.push(value);
                word
            });
            joined.collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed_on(line: &str) -> Vec<String> {
        let words = line.split(' ').map(OsString::from);
        let options = options(words).unwrap().into_iter();
        options
            .map(|option| option.into_string().unwrap())
            .collect()
    }

    #[test]
    fn the_recorder_gets_the_options_that_were_given() {
        assert_eq!(passed_on("top -p 7"), Vec::<String>::new());
        assert_eq!(passed_on("top a.mtr"), Vec::<String>::new());
        let line =
            "top --no-heap -p 7 --allocator /a:x_ --ring-buffer 4m --allocator=/b -o out.mtr";
        assert_eq!(
            passed_on(line),
            [
                "--allocator=/a:x_",
                "--allocator=/b",
                "--ring-buffer=4m",
                "--no-heap"
            ]
        );
    }
}
