//! The `memtrace` command.

use std::{env, fmt, io, process::ExitCode};

use memtrace::Cli;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

/// Something went wrong, or the command line was not understood.
const FAILED: u8 = 2;

fn main() -> ExitCode {
    memtrace::within_ulimits(run)
}

fn run() -> ExitCode {
    let filter = env::var("MEMTRACE_LOG")
        .ok()
        .and_then(|levels| levels.trim_matches(',').parse().ok())
        .unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    tracing_subscriber::registry()
        .with(
            tracing_subscriber::fmt::layer()
                .with_writer(|| memtrace::Stderr)
                .event_format(Line),
        )
        .with(filter)
        .init();
    match Cli::from_arguments().run() {
        Ok(code) => code,
        // A closed pipe (`| head`) is not an error.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            memtrace::say(&whole(&error));
            ExitCode::from(FAILED)
        }
    }
}

/// A line like memtrace's other messages; details for developers have their level.
struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(out, "memtrace: ")?;
        let mut line = String::new();
        context.format_fields(Writer::new(&mut line), event)?;
        let level = *event.metadata().level();
        if level > Level::WARN {
            writeln!(out, "{level} {line}")
        } else {
            writeln!(out, "{}", memtrace::clean(&line))
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
