//! The command line: one file per subcommand. Errors become text here and in
//! `main`, nowhere else.

mod attach;
pub(crate) mod check;
mod choose;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod diagnose;
pub(crate) mod diff;
#[cfg(test)]
mod examples;
pub(crate) mod export;
pub(crate) mod flamegraph;
pub(crate) mod fleet;
mod hints;
pub(crate) mod holders;
pub(crate) mod host;
pub(crate) mod html;
pub(crate) mod man;
pub(crate) mod mcp;
mod output;
pub(crate) mod probes;
mod reading;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod top;

use std::{io, process::ExitCode};

use clap::{CommandFactory, Parser, Subcommand};

use crate::recording::budget;

/// Find out which memory of a process grows, which line allocates it, and which line keeps it.
#[derive(Debug, Parser)]
#[command(
    name = "memtrace",
    version,
    about,
    max_term_width = 100,
    after_help = "\
Examples:
  A process grows:
    memtrace record -p 1234 -d 60s -o server.mtr
    memtrace diagnose server.mtr
  It runs in a container:
    memtrace record --container web -d 60s
  A test must not leak:
    memtrace run --fail-on leak -- python -m pytest
  It grows on one machine only:
    memtrace diff good.mtr bad.mtr
  A GPU runs out of memory:
    memtrace record --no-heap -o train.mtr -- python train.py
    memtrace diagnose train.mtr
  Something does not work:
    memtrace check"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Record a running process or a command
    Record(Box<record::RecordArgs>),
    /// Run a command and fail if its memory leaks or grows
    Run(run::RunArgs),
    /// Watch live memory on the screen
    Top(top::TopArgs),
    /// Print a report of a recording
    Report(report::ReportArgs),
    /// Classify the memory growth in a recording and suggest what to do about it
    Diagnose(diagnose::DiagnoseArgs),
    /// Draw a recording as a flame graph
    Flamegraph(flamegraph::FlamegraphArgs),
    /// Write a recording as an HTML page
    Html(html::HtmlArgs),
    /// Compare recordings and machines
    Diff(diff::DiffArgs),
    /// Find what separates the hosts of many recordings
    Fleet(fleet::FleetArgs),
    /// Write a recording in another format
    Export(export::ExportArgs),
    /// Show what keeps objects or blocks of a running process alive
    Holders(holders::HoldersArgs),
    /// List the probes that would be set in a process or a file
    Probes(probes::ProbesArgs),
    /// Record an example that leaks, and name the line that leaks
    Demo(demo::DemoArgs),
    /// Check that this host can trace, and print what to fix
    Check(check::CheckArgs),
    /// Print the fingerprint of this host, and of a process
    Host(host::HostArgs),
    /// Answer a language model's questions about recordings
    Mcp(mcp::McpArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
    /// Write manual pages
    Man(man::ManArgs),
    /// Holds threads until the collector has set their probes
    #[command(hide = true, name = crate::pause::SUBCOMMAND)]
    Pause {
        #[arg(long)]
        with_children: bool,
        /// Descriptors of the kernel side
        descriptors: Vec<i32>,
    },
    /// Opens files of other users
    #[command(hide = true, name = crate::process_root::SUBCOMMAND)]
    OpenFiles,
    /// Reads the symbols of other users' files
    #[command(hide = true, name = crate::names::SUBCOMMAND)]
    Name,
}

impl Command {
    /// Whether it reads recordings that may come from anybody.
    fn reads_recordings(&self) -> bool {
        matches!(
            self,
            Command::Top(_)
                | Command::Report(_)
                | Command::Diagnose(_)
                | Command::Flamegraph(_)
                | Command::Html(_)
                | Command::Diff(_)
                | Command::Fleet(_)
                | Command::Export(_)
                | Command::Mcp(_)
        )
    }
}

impl Cli {
    /// Parses memtrace's arguments; wrong ones end it, with a hint.
    #[must_use]
    pub fn from_arguments() -> Self {
        let line: Vec<_> = std::env::args_os().collect();
        Cli::try_parse_from(&line)
            .unwrap_or_else(|error| hints::add(error, &Cli::command(), &line).exit())
    }

    /// Runs the chosen subcommand.
    ///
    /// # Errors
    /// The message for the user; the exit code is then 2.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if self.command.reads_recordings() {
            budget::watch(crate::top::give_back);
        }
        match self.command {
            Command::Record(args) => record::run(*args),
            Command::Run(args) => run::run(&args),
            Command::Top(args) => top::run(&args),
            Command::Report(args) => report::run(&args).map(|()| ExitCode::SUCCESS),
            Command::Diagnose(args) => diagnose::run(&args).map(|()| ExitCode::SUCCESS),
            Command::Flamegraph(args) => flamegraph::run(&args).map(|()| ExitCode::SUCCESS),
            Command::Html(args) => html::run(&args).map(|()| ExitCode::SUCCESS),
            Command::Diff(args) => diff::run(&args),
            Command::Fleet(args) => fleet::run(&args).map(|()| ExitCode::SUCCESS),
            Command::Export(args) => export::run(&args).map(|()| ExitCode::SUCCESS),
            Command::Holders(args) => holders::run(&args).map(|()| ExitCode::SUCCESS),
            Command::Probes(args) => probes::run(&args, &mut io::stdout().lock()),
            Command::Demo(args) => demo::run(&args).map(|()| ExitCode::SUCCESS),
            Command::Check(args) => check::run(&args, &mut io::stdout().lock()),
            Command::Host(args) => {
                host::run(&args, &mut io::stdout().lock()).map(|()| ExitCode::SUCCESS)
            }
            Command::Mcp(args) => mcp::run(&args).map(|()| ExitCode::SUCCESS),
            Command::Completions(args) => {
                completions::run(&args, Cli::command(), &mut io::stdout().lock())?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Man(args) => man::run(&args, Cli::command(), &mut io::stdout().lock())
                .map(|()| ExitCode::SUCCESS),
            Command::Pause {
                with_children,
                descriptors,
            } => {
                let stops = crate::bpf::OpenStopMaps::open(&descriptors)?;
                crate::pause::run(stops, with_children)?;
                Ok(ExitCode::SUCCESS)
            }
            Command::OpenFiles => {
                crate::process_root::open_files();
                Ok(ExitCode::SUCCESS)
            }
            Command::Name => {
                crate::names::run()?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}
