//! What a wrong command line was probably meant to be, which command is useful next, and whether to use colours.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    io::{self, IsTerminal},
    path::Path,
};

use anstream::{AutoStream, ColorChoice};
use clap::{
    Command,
    builder::StyledStr,
    error::{ContextKind, ContextValue},
};

use crate::{escape::for_shell, progress::say};

/// Words of other tools for memtrace's commands.
const MEANT: [(&str, &str); 7] = [
    ("analyse", "diagnose FILE"),
    ("analyze", "diagnose FILE"),
    ("attach", "record -p PID"),
    ("compare", "diff BASELINE NEW"),
    ("show", "report FILE"),
    ("sites", "report FILE"),
    ("trace", "record -p PID"),
];

/// Whether text on standard output may be coloured: on a terminal, unless NO_COLOR is set.
pub(super) fn colour() -> bool {
    AutoStream::choice(&io::stdout()) != ColorChoice::Never
}

/// Prints the next command, if a person reads the output on a terminal.
pub(super) fn next(command: &str) {
    if io::stdout().is_terminal() && io::stderr().is_terminal() {
        say(&format!("next: {command}"));
    }
}

/// A file as a command line has it.
pub(super) fn file(path: &Path) -> String {
    for_shell(&path.display().to_string())
}

/// The error with a hint, if there is one, and without a suggestion of a hidden option of `cli`.
pub(super) fn add(mut error: clap::Error, cli: &Command, line: &[OsString]) -> clap::Error {
    if let Some(ContextValue::String(option)) = error.get(ContextKind::SuggestedArg)
        && is_hidden(option, cli)
    {
        error.remove(ContextKind::SuggestedArg);
    }
    if let Some(command) = command_meant(&error, line) {
        let tip = StyledStr::from(format!("did you mean: memtrace {command}"));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    error
}

/// The command that a wrong word or option leads to.
fn command_meant(error: &clap::Error, line: &[OsString]) -> Option<String> {
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) {
        return meant(word);
    }
    match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(option) if ["-p", "--pid"].contains(&option.as_str()) => {
            let pid = line
                .iter()
                .find_map(|word| word.to_str()?.parse::<u32>().ok());
            let pid = pid.map_or("PID".to_owned(), |pid| pid.to_string());
            Some(format!("record -p {pid}"))
        }
        _ => None,
    }
}

fn is_hidden(option: &str, cli: &Command) -> bool {
    let mut options = cli.get_subcommands().flat_map(Command::get_arguments);
    options.any(|known| known.is_hide_set() && known.get_long() == option.strip_prefix("--"))
}

/// The command that was meant by a word that is none.
fn meant(word: &str) -> Option<String> {
    let path = Path::new(word);
    if path.is_file() {
        let command = match is_database(path) {
            true => "diagnose",
            false => "record --",
        };
        return Some(format!("{command} {word}"));
    }
    let known = MEANT.iter().find(|(name, _)| *name == word);
    known.map(|(_, command)| (*command).to_owned())
}

/// Whether a file begins as those of SQLite, and so as recordings, do (https://www.sqlite.org/fileformat.html).
fn is_database(path: &Path) -> bool {
    let mut begin = [0; 16];
    let file = std::fs::File::open(path);
    let read = file.and_then(|mut file| std::io::Read::read_exact(&mut file, &mut begin));
    // What cannot be read is more likely a recording of root's than a program.
    read.is_err() || begin == *b"SQLite format 3\0"
}

/// The warning about options of memtrace that a launched command gets, because they come after it. Behind `--`
/// that is what the user wants.
pub(super) fn given_to_command(
    line: &[OsString],
    launched: &[OsString],
    options: &Command,
) -> Option<String> {
    let before = line.len().checked_sub(launched.len() + 1)?;
    if line[before] == "--" {
        return None;
    }
    let arguments = launched.iter().skip(1).map(|word| word.to_string_lossy());
    let arguments = arguments.take_while(|word| word != "--");
    let mut seen = BTreeSet::new();
    let taken: Vec<String> = arguments
        .filter(|word| is_option(word, options))
        .map(|word| format!("`{}`", word.split('=').next().unwrap_or(&word)))
        .filter(|option| seen.insert(option.clone()))
        .collect();
    let (last, others) = taken.split_last()?;
    let (named, belong) = match others {
        [] => (last.clone(), "belongs"),
        _ => (format!("{} and {last}", others.join(", ")), "belong"),
    };
    Some(format!(
        "{named} after the command {belong} to the command; put memtrace's options before it"
    ))
}

/// Whether `word` is one of `options`, hidden ones aside.
fn is_option(word: &str, options: &Command) -> bool {
    let long = word
        .strip_prefix("--")
        .and_then(|name| name.split('=').next());
    let short = match word.as_bytes() {
        [b'-', letter] => Some(char::from(*letter)),
        _ => None,
    };
    let mut visible = options
        .get_arguments()
        .filter(|option| !option.is_hide_set());
    visible.any(|option| match long {
        Some(_) => option.get_long() == long,
        None => short.is_some() && option.get_short() == short,
    })
}

#[cfg(test)]
mod tests {
    use clap::{Args, CommandFactory, Parser};

    use super::{
        super::{Cli, record::RecordArgs},
        *,
    };

    fn error(line: &str) -> String {
        let words = line.split(' ');
        let error = Cli::try_parse_from(words).unwrap_err();
        let line: Vec<OsString> = line.split(' ').map(Into::into).collect();
        add(error, &Cli::command(), &line).to_string()
    }

    #[test]
    fn hidden_options_are_not_suggested() {
        let hidden = error("memtrace record --time 3 -p 1");
        assert!(!hidden.contains("--time-walks"), "{hidden}");
        let visible = error("memtrace record --durations 3 -p 1");
        assert!(visible.contains("'--duration'"), "{visible}");
    }

    #[test]
    fn other_words_lead_to_the_command() {
        for (word, command) in MEANT {
            let error = error(&format!("memtrace {word} a.mtr"));
            assert!(
                error.contains(&format!("tip: did you mean: memtrace {command}\n")),
                "{error}"
            );
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let file = file.path().display().to_string();
        let of_file = error(&format!("memtrace {file}"));
        assert!(
            of_file.contains(&format!("memtrace diagnose {file}\n")),
            "{of_file}"
        );
        for (line, pid) in [
            ("memtrace -p 12", "12"),
            ("memtrace --pid 12", "12"),
            ("memtrace -p nginx", "PID"),
        ] {
            let error = error(line);
            let expected = format!("did you mean: memtrace record -p {pid}\n");
            assert!(error.contains(&expected), "{error}");
        }
        let unknown = error("memtrace frobnicate");
        assert!(!unknown.contains("did you mean"), "{unknown}");
    }

    #[test]
    fn options_after_the_command_are_noticed() {
        let options = RecordArgs::augment_args(Command::new("record"));
        let warning = |line: &str, launched: usize| {
            let line: Vec<OsString> = line.split(' ').map(Into::into).collect();
            given_to_command(&line, &line[line.len() - launched..], &options)
        };
        assert_eq!(
            warning(
                "memtrace record ./leak 20 -o a.mtr -d 3 --interval=1s -d 4",
                8
            )
            .unwrap(),
            "`-o`, `-d` and `--interval` after the command belong to the command; \
             put memtrace's options before it"
        );
        let one = warning("memtrace record ./leak --no-heap", 2).unwrap();
        assert!(
            one.starts_with("`--no-heap` after the command belongs"),
            "{one}"
        );
        assert_eq!(warning("memtrace record -d 3 -- ./leak -d 3", 3), None);
        assert_eq!(
            warning("memtrace record ./leak -x --one-by-one --port 80", 5),
            None
        );
        assert_eq!(warning("memtrace record sh -- -d 3", 4), None);
    }
}
