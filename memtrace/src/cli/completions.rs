//! `memtrace completions`: scripts that complete options in shells.

use std::io::{self, Write};

use clap::Command;
use clap_complete::Shell;

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memtrace completions bash > /etc/bash_completion.d/memtrace
  memtrace completions zsh > /usr/local/share/zsh/site-functions/_memtrace
  memtrace completions fish > ~/.config/fish/completions/memtrace.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Prints the script for `cli`.
pub(crate) fn run(
    args: &CompletionsArgs,
    mut cli: Command,
    out: &mut impl Write,
) -> io::Result<()> {
    // clap_complete panics when it cannot write, as with `| head`.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli, "memtrace", &mut script);
    out.write_all(&script)
}
