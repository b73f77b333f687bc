//! `memtrace holders`: what holds an object, a block, or whatever grows in a running process.

use std::io::{self, Write};

use anyhow::Context;
use clap::ValueEnum;

use super::parse_pid;
use crate::{
    holders::{self, Known, Sought},
    process::target::Target,
    render,
};

/// Tell what holds objects or blocks of a running process
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Without --type, --address or --lost it names the Python containers that grow most.

The process runs on while its memory is read. Each reference that is printed is then read again \
while the process is stopped, for less than a millisecond as a rule; the output says how long. \
Nothing is loaded into it.

Examples:
  memtrace holders -p 1234
  memtrace holders -p 1234 --type Session
  memtrace holders -p 1234 --address 0x7f3a5c0012d0")]
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
    if sought.is_empty() {
        sought.push(Sought::Growing);
    }
    let known = Known {
        blocks: &mut std::iter::empty(),
        of_devices: Vec::new(),
        site_of: &|_| None,
        redact: args.redact,
        is_over: &|| false,
    };
    let found = holders::of_sought(args.pid, &sought, known)
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
