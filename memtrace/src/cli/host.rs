//! `memtrace host`: the fingerprint that a recording would have now.

use std::io::Write;

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use super::choose::ChooseArgs;
use crate::{
    escape::{clean, in_json},
    host::{
        self, Fact, Redactor, Source, libraries, malloc,
        python::{Launch, Scanner},
    },
    ledger::ProcessId,
    process::maps,
};

/// Print the fingerprint of this host, and of a process
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrace host
  memtrace host -p 1234 --format json")]
pub(crate) struct HostArgs {
    /// Also print that of a process: environment (values by allow-list), limits, libraries, Python packages
    #[arg(short, long, value_name = "PID")]
    pid: Option<u32>,
    #[command(flatten)]
    choose: ChooseArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Replace host names, user names and folders with hashes; values that look like secrets are always
    /// hidden
    #[arg(long)]
    redact: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Prints the facts.
///
/// # Errors
/// The process is gone or hidden; the output cannot be written.
pub(crate) fn run(args: &HostArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let redactor = match args.redact {
        true => Redactor::everything(),
        false => Redactor::default(),
    };
    let source = Source::host();
    let machine = host::machine(&source, &redactor);
    let pid = args.choose.one(args.pid)?;
    let process = pid
        .map(|pid| process(&source, pid, &redactor))
        .transpose()?;
    match args.format {
        Format::Text => {
            write_text(out, "machine", &machine)?;
            if let (Some(facts), Some(pid)) = (&process, pid) {
                writeln!(out)?;
                write_text(out, &format!("process {pid}"), facts)?;
            }
        }
        Format::Json => {
            let value = serde_json::json!({
                "machine": object(&machine),
                "process": process.as_deref().map(object),
            });
            writeln!(out, "{}", in_json(&format!("{value:#}")))?;
        }
    }
    Ok(())
}

fn process(source: &Source, pid: u32, redactor: &Redactor) -> anyhow::Result<Vec<Fact>> {
    // No recording, so that its number there does not matter.
    let process = ProcessId(0);
    let launch = Launch::read(pid).with_context(|| {
        format!("cannot inspect process {pid}: it has exited, or memtrace must run as root")
    })?;
    let mut facts = host::process(source, process, pid, launch.environ(), redactor);
    let mappings = maps::read(pid)?;
    let provider = malloc::provider(pid, &mappings);
    facts.extend(malloc::facts(process, provider.as_deref(), redactor));
    let libraries = libraries::of_process(pid);
    let program = Some(launch.program());
    facts.extend(libraries::facts(process, &libraries, program, redactor));
    let files = libraries.iter().map(|library| library.path.as_str());
    facts.extend(Scanner::default().facts(process, &launch, files, redactor));
    Ok(facts)
}

fn write_text(out: &mut impl Write, title: &str, facts: &[Fact]) -> std::io::Result<()> {
    writeln!(out, "{title}")?;
    let width = facts.iter().map(|fact| fact.field.len()).max().unwrap_or(0);
    for Fact { field, value, .. } in facts {
        writeln!(out, "  {:width$}  {}", clean(field), clean(value))?;
    }
    Ok(())
}

fn object(facts: &[Fact]) -> Value {
    let pairs = facts
        .iter()
        .map(|fact| (fact.field.clone(), Value::from(fact.value.as_str())));
    Value::Object(Map::from_iter(pairs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(format: Format, pid: Option<u32>) -> String {
        let args = HostArgs {
            pid,
            choose: ChooseArgs::default(),
            format,
            redact: false,
        };
        let mut out = Vec::new();
        run(&args, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_and_json_have_the_same_facts() {
        let text = printed(Format::Text, Some(std::process::id()));
        let json = printed(Format::Json, Some(std::process::id()));
        let json: Value = serde_json::from_str(&json).unwrap();
        for (part, field) in [
            ("machine", "kernel.release"),
            ("process", "lib.libc.so.6.build_id"),
            ("process", "malloc.provider"),
            ("process", "limits.nofile"),
        ] {
            let value = json[part][field].as_str().unwrap();
            let line = text
                .lines()
                .find(|line| line.trim_start().starts_with(field));
            assert!(line.unwrap().ends_with(value), "{field}: {line:?}");
        }
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        let args = HostArgs {
            pid: Some(u32::MAX),
            choose: ChooseArgs::default(),
            format: Format::Text,
            redact: false,
        };
        let error = run(&args, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("4294967295"), "{error}");
    }
}
