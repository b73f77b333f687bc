//! `memtrace man`: manual pages, for packages.

use std::{io::Write, path::PathBuf};

use anyhow::{Context, bail};
use clap::Command;

/// Write manual pages.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memtrace man | man -l -
  memtrace man /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Folder for memtrace.1 and a page for each command; without one memtrace.1 is printed.
    folder: Option<PathBuf>,
}

/// Writes the pages of `cli`.
pub(crate) fn run(args: &ManArgs, cli: Command, out: &mut impl Write) -> anyhow::Result<()> {
    let Some(folder) = &args.folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(cli).render(&mut page)?;
        out.write_all(&page)?;
        return Ok(());
    };
    if folder.exists() && !folder.is_dir() {
        bail!("`{}` is a file, expected a folder", folder.display());
    }
    let cannot = || format!("cannot write manual pages to `{}`", folder.display());
    std::fs::create_dir_all(folder).with_context(cannot)?;
    clap_mangen::generate_to(cli, folder).with_context(cannot)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{super::Cli, *};

    #[test]
    fn a_file_is_not_taken_for_a_folder() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let args = ManArgs {
            folder: Some(file.path().to_owned()),
        };
        let error = run(&args, Cli::command(), &mut std::io::sink())
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("is a file, expected a folder"), "{error}");
    }

    #[test]
    fn each_command_has_a_page_with_its_options() {
        let folder = tempfile::tempdir().unwrap();
        let args = ManArgs {
            folder: Some(folder.path().to_owned()),
        };
        run(&args, Cli::command(), &mut std::io::sink()).unwrap();
        let commands = Cli::command();
        for command in commands.get_subcommands().filter(|of| !of.is_hide_set()) {
            let name = format!("memtrace-{}.1", command.get_name());
            let page = std::fs::read_to_string(folder.path().join(&name));
            let page = page.unwrap_or_else(|error| panic!("{name}: {error}"));
            for option in command.get_arguments().filter(|of| !of.is_hide_set()) {
                let long = option.get_long().unwrap_or_default().replace('-', "\\-");
                assert!(page.contains(&long), "{name} lacks `{long}`");
            }
        }
    }
}
