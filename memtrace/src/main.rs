//! The `memtrace` command.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use memtrace::Cli;
use tracing_subscriber::EnvFilter;

/// Something went wrong, or the command line was not understood.
const FAILED: u8 = 2;

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_env("MEMTRACE_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .without_time()
        .with_target(false)
        .init();
    match Cli::parse().run() {
        Ok(code) => code,
        // A closed pipe (`| head`) is not an error.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is closed, the message is lost.
            let _ = writeln!(io::stderr(), "memtrace: {}", whole(&error));
            ExitCode::from(FAILED)
        }
    }
}

/// An error with its causes, except those already contained in its own text.
fn whole(error: &anyhow::Error) -> String {
    error
        .chain()
        .skip(1)
        .map(ToString::to_string)
        .fold(error.to_string(), |text, cause| {
            if text.contains(&cause) {
                text
            } else {
                format!("{text}: {cause}")
            }
        })
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
