//! `memtrace holders`: what holds an object, a block, or whatever grows in a running process.

use std::{
    io::{self, Write},
    time::Duration,
};

use anyhow::{Context, ensure};
use clap::ValueEnum;

use super::parse_pid;
use crate::{
    collect::interruption::Interruption,
    holders::{self, Known, Reading, Sought, Subject},
    process::target::Target,
    recording::{Answer, AsOf, Found},
    render,
};

/// Tell what holds objects or blocks of a running process
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Without --type, --address, --lost or --retained it names the Python containers that grow most.

The process runs on while its memory is read. Each reference that is printed is then read again \
while the process is stopped, for less than a millisecond as a rule; the output says how long. \
Nothing is loaded into it. With --snapshot or --stop all that is read is of one moment.

Examples:
  memtrace holders -p 1234
  memtrace holders -p 1234 --type Session
  memtrace holders -p 1234 --address 0x7f3a5c0012d0
  memtrace holders -p 1234 --lost --snapshot
  memtrace holders -p 1234 --retained --snapshot")]
pub(crate) struct HoldersArgs {
    /// The process
    #[arg(short, long, value_name = "PID", value_parser = parse_pid)]
    pid: u32,
    /// Objects of this Python type, such as `Tensor` or `torch.Tensor`, of which 64 are looked at
    #[arg(long = "type", value_name = "NAME")]
    types: Vec<String>,
    /// The object or the block at this address
    #[arg(long = "address", value_name = "ADDRESS", value_parser = parse_address)]
    addresses: Vec<u64>,
    /// Blocks of malloc that nothing points to
    #[arg(long)]
    lost: bool,
    /// Search a copy of the process, as of one moment
    ///
    /// One of its threads is made to call clone, without the program noticing. That stops the process for the time that
    /// the kernel copies its page tables: some 20 to 40 ms per GB of pages of 4 KiB, which are counted and printed.
    /// While the copy exists, the first write to each page costs the program some microseconds more and needs a page
    /// of memory; the kernel may refuse to promise that much (vm.overcommit_memory=2).
    #[arg(long, conflicts_with = "stop", verbatim_doc_comment)]
    snapshot: bool,
    /// Search while the process stands still, as of one moment
    ///
    /// No thread of it runs for the whole search: for seconds, or longer if it has many GB. Ctrl-C lets it go on at
    /// once, and so does the end of memtrace, however it comes.
    #[arg(long, verbatim_doc_comment)]
    stop: bool,
    /// How many bytes objects and blocks keep alone; without --type or --address, what keeps most
    ///
    /// These bytes would be free if the object were gone: its own and those of all that only it leads to. Needs
    /// --snapshot or --stop.
    #[arg(long, verbatim_doc_comment)]
    retained: bool,
    /// How to write the answer
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Leave out names and keys; types stay
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

/// Searches, and prints what was found.
///
/// # Errors
/// The process is gone or cannot be looked at; nothing of the kind is in it; the output cannot be written.
pub(crate) fn run(args: &HoldersArgs) -> anyhow::Result<()> {
    Target::find(args.pid)?;
    let types = args.types.iter().cloned().map(Sought::Type);
    let addresses = args.addresses.iter().copied().map(Sought::Address);
    let lost = args.lost.then_some(Sought::Lost);
    let mut sought: Vec<Sought> = types.chain(addresses).chain(lost).collect();
    let is_still = args.snapshot || args.stop;
    ensure!(
        is_still || !args.retained,
        "--retained needs --snapshot or --stop: what keeps what alone is true of one moment only"
    );
    ensure!(
        !args.stop || args.retained || !sought.is_empty(),
        "nothing grows in a process that stands still: use --stop with --type, --address, --lost or --retained"
    );
    if sought.is_empty() && !args.retained {
        sought.push(Sought::Growing);
    }
    let found = search(args, &sought)
        .with_context(|| format!("cannot tell what holds memory of process {}", args.pid))?;
    let mut out = io::stdout().lock();
    match args.format {
        Format::Text => render::holders(&found, &mut out)?,
        Format::Json => {
            let value = render::holders_json(&found, args.pid);
            writeln!(out, "{value:#}")?;
        }
    }
    Ok(())
}

/// The search itself, and what is said of it meanwhile.
fn search(args: &HoldersArgs, sought: &[Sought]) -> Result<Found<Answer>, holders::Error> {
    let pid = args.pid;
    // While a process runs, memtrace may be ended at any time.
    let interruption = (args.snapshot || args.stop).then(|| Interruption::begin(DOING));
    let reading = match &interruption {
        Some(interruption) if args.stop => {
            say(&format!(
                "process {pid} stands still until the search is over; Ctrl-C lets it go on"
            ));
            Reading::Stopped(interruption.flag())
        }
        Some(_) => Reading::Copied,
        None => Reading::Running,
    };
    let subject = Subject::new(pid, reading)?;
    if let Some(stopped) = subject.copied_in() {
        let stopped = milliseconds(stopped);
        say(&format!(
            "process {pid} was stopped for {stopped} to copy it, and runs on"
        ));
    }
    let is_over = || interruption.as_ref().is_some_and(Interruption::has_come);
    let known = Known {
        blocks: &mut std::iter::empty(),
        of_devices: Vec::new(),
        site_of: &|_| None,
        redact: args.redact,
        is_over: &is_over,
    };
    let found = holders::of_sought(&subject, sought, args.retained, known);
    let price = subject.end();
    if args.stop {
        let lasted = milliseconds(price.longest_stop);
        say(&format!("process {pid} runs again, after {lasted}"));
    }
    if price.leaves_zombie {
        say(&format!(
            "what is left of the copy stays in the table of processes until process {pid} ends: no thread of it could be made to wait for it"
        ));
    }
    let mut found = found?;
    if found.as_of != AsOf::Running {
        found.longest_stop = price.longest_stop;
    }
    Ok(found)
}

/// What is said of a search that takes long.
const DOING: &str = "searching; Ctrl-C ends that";

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// A line to standard error, for the user to know what happens to the process.
fn say(text: &str) {
    // A closed standard error must not end the search.
    let _ = writeln!(io::stderr(), "memtrace: {text}");
}
