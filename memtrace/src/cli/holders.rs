//! `memtrace holders`: the holders of an object, a block, or growing containers of a running process.

use std::{
    io::{self, Write},
    time::Duration,
};

use anyhow::{Context, ensure};
use clap::{ArgGroup, ValueEnum};

use super::{
    choose::{self, ChooseArgs},
    hints,
};
use crate::{
    collect::interruption::Interruption,
    holders::{self, Known, Reading, Sought, Subject},
    process::{target::Target, tasks, terminal},
    progress::{Manner, Progress, say},
    recording::{Answer, AsOf, Found},
    render, units,
};

/// Show what keeps objects or blocks of a running process alive
#[derive(Clone, Debug, clap::Args)]
#[command(group(ArgGroup::new("target").arg("pid").args(choose::OPTIONS).multiple(true).required(true)), after_help = "\
Without --type, --address, --lost or --retained, it lists the Python containers that grow fastest. For C, C++ \
and Rust, `memtrace record` names what keeps the blocks that grow; here, --lost and --address search them.

The process keeps running while its memory is read. Every printed reference is then read again while the \
process is stopped, for at most 5 ms; the output says how long. Nothing is loaded into the process. \
With --stop, all memory is read in the state of one moment.

Examples:
  memtrace holders -p 1234
  memtrace holders -p 1234 --type Session
  memtrace holders -p 1234 --address 0x7f3a5c0012d0
  memtrace holders -p 1234 --lost --stop
  memtrace holders -p 1234 --retained --stop")]
pub(crate) struct HoldersArgs {
    /// The process to search
    #[arg(short, long, value_name = "PID", value_parser = choose::parse_pid)]
    pid: Option<u32>,
    #[command(flatten)]
    choose: ChooseArgs,
    /// Find the holders of up to 64 objects of this Python type, such as `Tensor` or `torch.Tensor`
    #[arg(long = "type", value_name = "NAME")]
    types: Vec<String>,
    /// Find the holders of the object or block at this address
    #[arg(long = "address", value_name = "ADDRESS", value_parser = parse_address)]
    addresses: Vec<u64>,
    /// List malloc blocks that nothing points to
    #[arg(long)]
    lost: bool,
    /// Search while the process is stopped
    ///
    /// No thread of it runs during the whole search: seconds, or longer if it has many GB. Ctrl-C resumes it at once,
    /// as does the end of memtrace, for whatever reason.
    #[arg(long)]
    stop: bool,
    /// Compute retained sizes; without --type or --address, list the objects that keep the most memory
    ///
    /// The retained bytes would be free without the object: its own, and those reachable only through it. Needs --stop.
    #[arg(long)]
    retained: bool,
    /// Memory that the search may take, such as `200m`; by default 80 % of what this machine and memtrace's own
    /// container have left
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    search_memory: Option<u64>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Show types only, without names and keys
    #[arg(long)]
    redact: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
}

fn parse_address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16)
        .map_err(|_| "expected an address in hexadecimal, such as 0x7f3a5c0012d0".to_owned())
}

/// Searches, and prints the answer.
///
/// # Errors
/// The process is gone or cannot be read, has nothing of the kind, or the output cannot be written.
pub(crate) fn run(args: &HoldersArgs) -> anyhow::Result<()> {
    // clap has seen to it that there is one or the other.
    let pid = args.choose.one(args.pid)?.unwrap_or_default();
    Target::find(pid)?;
    let types = args.types.iter().cloned().map(Sought::Type);
    let addresses = args.addresses.iter().copied().map(Sought::Address);
    let lost = args.lost.then_some(Sought::Lost);
    let mut sought: Vec<Sought> = types.chain(addresses).chain(lost).collect();
    ensure!(
        args.stop || !args.retained,
        "--retained needs --stop: retained sizes need all references at one moment"
    );
    ensure!(
        !args.stop || args.retained || !sought.is_empty(),
        "nothing grows in a stopped process: use --stop with --type, --address, --lost or --retained"
    );
    if sought.is_empty() && !args.retained {
        ensure!(
            !tasks::is_stopped(pid),
            "process {pid} is stopped by a signal, so nothing grows in it: use --type, --address, --lost or --retained"
        );
        sought.push(Sought::Growing);
    }
    let found = search(pid, args, &sought)
        .with_context(|| format!("cannot search process {pid} for holders"))?;
    let mut out = io::stdout().lock();
    match args.format {
        Format::Text => {
            render::holders(&found, &mut out)?;
            hints::next(&format!("memtrace record -p {pid} -d 60s"));
        }
        Format::Json => {
            let value = render::holders_json(&found, pid);
            writeln!(out, "{value:#}")?;
        }
    }
    Ok(())
}

/// Searches, and reports progress.
fn search(
    pid: u32,
    args: &HoldersArgs,
    sought: &[Sought],
) -> Result<Found<Answer>, holders::Error> {
    // While a process runs, memtrace may be ended at any time.
    let interruption = args.stop.then(Interruption::begin);
    let manner = Manner::beside(terminal::is_shared_with(pid));
    let progress = Progress::shown(DOING, manner);
    let reading = match &interruption {
        // The user must know that the process is stopped.
        Some(interruption) => {
            say(&format!(
                "process {pid} is stopped until the search ends; Ctrl-C resumes it"
            ));
            Reading::Stopped(interruption.flag())
        }
        None => Reading::Running,
    };
    let subject = Subject::new(pid, reading)?;
    let is_over = || interruption.as_ref().is_some_and(Interruption::has_come);
    let known = Known {
        blocks: &|| Box::new(std::iter::empty()),
        of_devices: Vec::new(),
        site_of: &|_| None,
        redact: args.redact,
        most_memory: args.search_memory,
        is_over: &is_over,
    };
    let found = holders::of_sought(&subject, sought, args.retained, known);
    let stopped = subject.end();
    drop(progress);
    if args.stop {
        let lasted = milliseconds(stopped);
        say(&format!("process {pid} was stopped for {lasted}"));
    }
    let mut found = found?;
    if found.as_of == AsOf::Stopped {
        found.longest_stop = stopped;
    }
    Ok(found)
}

/// Shown while the search takes long.
const DOING: &str = "searching; Ctrl-C ends the search";

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}
