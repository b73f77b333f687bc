//! The command line: one file per subcommand. Errors become text here and in
//! `main`, nowhere else.

pub(crate) mod check;
pub(crate) mod diagnose;
pub(crate) mod diff;
pub(crate) mod export;
pub(crate) mod flamegraph;
pub(crate) mod holders;
pub(crate) mod host;
pub(crate) mod probes;
pub(crate) mod record;
pub(crate) mod report;

use std::{io, process::ExitCode};

use clap::{Parser, Subcommand};

/// Trace a process's memory and say what grows, where and why.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Record a running process or a command
    Record(record::RecordArgs),
    /// Tell what a recording holds
    Report(report::ReportArgs),
    /// Say what kind of growth a recording shows, and what to do about it
    Diagnose(diagnose::DiagnoseArgs),
    /// Draw a recording as a flame graph
    Flamegraph(flamegraph::FlamegraphArgs),
    /// Compare recordings: what grows more, and what else differs
    Diff(diff::DiffArgs),
    /// Write a recording in another format
    Export(export::ExportArgs),
    /// Tell what holds objects or blocks of a running process
    Holders(holders::HoldersArgs),
    /// List the probes that would be set in a process
    Probes(probes::ProbesArgs),
    /// Tell whether this host can trace, and what would help
    Check(check::CheckArgs),
    /// Tell what of this host, or of a process, may explain what programs do here
    Host(host::HostArgs),
    /// Holds threads until the collector has set their probes
    #[command(hide = true, name = crate::hold::SUBCOMMAND)]
    Hold {
        #[arg(long)]
        with_children: bool,
        /// Descriptors of maps
        stopped: i32,
        unwinding: i32,
        recording: i32,
    },
}

/// The number of a process, as options take it.
fn parse_pid(text: &str) -> Result<u32, String> {
    let pid = text.parse().ok().filter(|&pid| pid > 0);
    pid.ok_or_else(|| "expected the number of a process, such as 1234".to_owned())
}

impl Cli {
    /// Runs the chosen subcommand.
    ///
    /// # Errors
    /// What to tell the user; the exit code is 2 then.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Record(args) => record::run(args),
            Command::Report(args) => report::run(&args).map(|()| ExitCode::SUCCESS),
            Command::Diagnose(args) => diagnose::run(&args).map(|()| ExitCode::SUCCESS),
            Command::Flamegraph(args) => flamegraph::run(&args).map(|()| ExitCode::SUCCESS),
            Command::Diff(args) => diff::run(&args),
            Command::Export(args) => export::run(&args).map(|()| ExitCode::SUCCESS),
            Command::Holders(args) => holders::run(&args).map(|()| ExitCode::SUCCESS),
            Command::Probes(args) => probes::run(&args, &mut io::stdout().lock()),
            Command::Check(args) => check::run(&args, &mut io::stdout().lock()),
            Command::Host(args) => {
                host::run(&args, &mut io::stdout().lock()).map(|()| ExitCode::SUCCESS)
            }
            Command::Hold {
                with_children,
                stopped,
                unwinding,
                recording,
            } => {
                let stops = crate::bpf::OpenStopMaps::open([stopped, unwinding, recording])?;
                crate::hold::run(stops, with_children)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}
