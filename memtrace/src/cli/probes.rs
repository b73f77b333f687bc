//! `memtrace probes`: which probes would be set in a process, where and why.

use std::{io::Write, path::Path, process::ExitCode};

use anyhow::Context;

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

/// List the probes that would be set in a process
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memtrace probes -p 1234
  memtrace probes -p 1234 --allocator /usr/bin/server:je_")]
pub(crate) struct ProbesArgs {
    /// The process
    #[arg(short, long, value_name = "PID")]
    pid: u32,
    /// Include an allocator that is not detected automatically: its file, and the prefix of its function
    /// names
    #[arg(long, value_name = "PATH[:PREFIX]")]
    allocator: Vec<ExtraAllocator>,
}

/// Prints the table.
///
/// # Errors
/// The process is gone or cannot be inspected; the output cannot be written.
pub(crate) fn run(args: &ProbesArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    Target::find(args.pid)?;
    show(args.pid, &args.allocator, out)?;
    Ok(ExitCode::SUCCESS)
}

/// The table of one process.
pub(super) fn show(pid: u32, extra: &[ExtraAllocator], out: &mut impl Write) -> anyhow::Result<()> {
    let mappings = maps::read(pid)?;
    let mut found = false;
    let mut lacks = Vec::new();
    for mapping in maps::executable_files(&mappings) {
        let shown = mapping.path.as_deref().unwrap_or(Path::new("?"));
        let file = ModuleFile::open(pid, mapping)
            .with_context(|| format!("cannot open `{}` of process {pid}", shown.display()))?;
        let bytes = FileBytes::new(&file.file);
        let Ok(elf) = Elf::parse(&bytes) else {
            continue;
        };
        let prefixes = ExtraAllocator::prefixes(extra, &file.path);
        let probes = plan::plan(&elf, &prefixes);
        lacks.extend(plan::lacking(&elf, &file.path).map(|lacking| (file.path.clone(), lacking)));
        if probes.is_empty() {
            continue;
        }
        found = true;
        writeln!(out, "{}", file.path.display())?;
        for probe in &probes {
            let ProbeLine {
                symbol,
                file_offset,
                instruction,
                cost,
                why,
                ..
            } = probe.line(&file.path);
            let ends = if probe.needs_return {
                "entry+return"
            } else {
                "entry"
            };
            writeln!(
                out,
                "  {symbol:<32} {file_offset:>#10x}  {ends:<12}  {cost:<14}  {instruction:<32}  {why}"
            )?;
        }
    }
    for (path, Lacking { library, symbols }) in &lacks {
        if !symbols.is_empty() {
            let (path, symbols) = (path.display(), symbols.join(", "));
            writeln!(out, "{library} `{path}` has no {symbols}")?;
        }
    }
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
