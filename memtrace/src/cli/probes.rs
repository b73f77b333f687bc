//! `memtrace probes`: which probes would be set in a process or a file, where and why.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::ArgGroup;

use super::choose::{self, ChooseArgs};
use crate::{
    file::FileBytes,
    host::malloc,
    probes::{
        ProbeLine,
        allocator::ExtraAllocator,
        plan::{self, Lacking},
    },
    process::{elf::Elf, files::ModuleFile, maps, target::Target},
};

/// List the probes that would be set in a process or a file
#[derive(Clone, Debug, clap::Args)]
#[command(group(ArgGroup::new("target").args(["pid", "file"]).args(choose::OPTIONS).multiple(true).required(true)), after_help = "\
Examples:
  memtrace probes -p 1234
  memtrace probes -p 1234 --allocator /usr/bin/server:je_
  memtrace probes --file /usr/lib/x86_64-linux-gnu/libjemalloc.so.2")]
pub(crate) struct ProbesArgs {
    /// The process
    #[arg(short, long, value_name = "PID", value_parser = choose::parse_pid)]
    pid: Option<u32>,
    #[command(flatten)]
    choose: ChooseArgs,
    /// A program or library that need not be running; may be repeated
    #[arg(long, value_name = "PATH", conflicts_with = "pid", conflicts_with_all = choose::OPTIONS)]
    file: Vec<PathBuf>,
    /// Include an allocator that is not detected automatically: its file, and the prefix of its function
    /// names
    #[arg(long, value_name = "PATH[:PREFIX]")]
    allocator: Vec<ExtraAllocator>,
}

/// Prints the table.
///
/// # Errors
/// The process is gone or cannot be inspected; a file is not one for the machine; the output cannot
/// be written.
pub(crate) fn run(args: &ProbesArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    if let Some(pid) = args.choose.one(args.pid)? {
        Target::find(pid)?;
        show(pid, &args.allocator, out)?;
    }
    for path in &args.file {
        let file = File::open(path).with_context(|| format!("cannot open `{}`", path.display()))?;
        let bytes = FileBytes::new(&file);
        let elf = Elf::parse(&bytes)
            .with_context(|| format!("`{}` is not a program or library", path.display()))?;
        if !list(&elf, path, &args.allocator, out)? {
            writeln!(out, "`{}` has no allocator", path.display())?;
        }
        lacks(&elf, path, out)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The table of one process.
pub(super) fn show(pid: u32, extra: &[ExtraAllocator], out: &mut impl Write) -> anyhow::Result<()> {
    let mappings = maps::read(pid)?;
    let mut found = false;
    let mut notes = Vec::new();
    for mapping in maps::executable_files(&mappings) {
        let shown = mapping.path.as_deref().unwrap_or(Path::new("?"));
        let file = ModuleFile::open(pid, mapping)
            .with_context(|| format!("cannot open `{}` of process {pid}", shown.display()))?;
        let bytes = FileBytes::new(&file.file);
        let Ok(elf) = Elf::parse(&bytes) else {
            continue;
        };
        found |= list(&elf, &file.path, extra, out)?;
        lacks(&elf, &file.path, &mut notes)?;
    }
    out.write_all(&notes)?;
    if let Some(winner) = malloc::provider(pid, &mappings) {
        writeln!(out, "malloc resolves to `{}`", winner.display())?;
    }
    if !found {
        writeln!(
            out,
            "no allocator found in process {pid}: only its address space (vm) would be recorded; \
             name one with `--allocator PATH[:PREFIX]`"
        )?;
    }
    Ok(())
}

/// The probes of a file, if it has any.
fn list(
    elf: &Elf<'_>,
    path: &Path,
    extra: &[ExtraAllocator],
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    let probes = plan::plan(elf, &ExtraAllocator::prefixes(extra, path));
    if probes.is_empty() {
        return Ok(false);
    }
    writeln!(out, "{}", path.display())?;
    row(
        out,
        ["function", "offset", "probe", "cost", "instruction", "why"],
    )?;
    for probe in &probes {
        let ProbeLine {
            symbol,
            file_offset,
            instruction,
            cost,
            why,
            ..
        } = probe.line(path);
        let ends = if probe.needs_return {
            "entry+return"
        } else {
            "entry"
        };
        let offset = format!("{file_offset:#x}");
        row(out, [&symbol, &offset, ends, cost, &instruction, &why])?;
    }
    Ok(true)
}

fn row(out: &mut impl Write, columns: [&str; 6]) -> io::Result<()> {
    let [function, offset, probe, cost, instruction, why] = columns;
    writeln!(
        out,
        "  {function:<32} {offset:>10}  {probe:<12}  {cost:<14}  {instruction:<32}  {why}"
    )
}

/// The functions that a device library's version does not have.
fn lacks(elf: &Elf<'_>, path: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    let Some(Lacking { library, symbols }) = plan::lacking(elf, path) else {
        return Ok(());
    };
    if !symbols.is_empty() {
        let (path, symbols) = (path.display(), symbols.join(", "));
        writeln!(out, "{library} `{path}` has no {symbols}")?;
    }
    Ok(())
}
