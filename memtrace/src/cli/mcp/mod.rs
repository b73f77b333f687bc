//! `memtrace mcp`: answers a language model's questions about recordings over the Model Context Protocol.

mod protocol;
mod recorder;
mod tools;

use std::io;

use self::{recorder::Recorder, tools::Tools};

/// Answer questions about recordings over the Model Context Protocol, on standard input and output
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A client such as an editor or an assistant starts this command; it ends when its input ends. Answers are \
conclusions of a few KB: verdicts, the lines that allocate, the lines that keep.

Examples:
  claude mcp add memtrace -- memtrace mcp
  memtrace mcp --allow-record")]
pub(crate) struct McpArgs {
    /// Also offer a tool that attaches to running processes for some seconds. It needs the privileges of
    /// `memtrace record`
    #[arg(long)]
    allow_record: bool,
}

/// Answers until the input ends.
///
/// # Errors
/// Standard input or output fails.
pub(crate) fn run(args: &McpArgs) -> anyhow::Result<()> {
    let tools = Tools::new(args.allow_record.then(Recorder::default));
    Ok(protocol::serve(io::stdin().lock(), io::stdout(), &tools)?)
}
