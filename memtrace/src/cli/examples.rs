//! Every memtrace command in the documentation and in the help texts can be typed like that.

use std::{fs, path::PathBuf};

use clap::{CommandFactory, Parser, error::ErrorKind};

use super::Cli;

/// Words that stand for a value.
const PLACEHOLDERS: [(&str, &str); 4] = [
    ("PID", "1234"),
    ("ADDRESS", "0x7f3a5c0012d0"),
    ("SIZE", "4k"),
    ("DURATION", "60s"),
];

/// The memtrace commands of a shell line, as words.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    let words = line.split_whitespace().take_while(|word| *word != "#");
    let words: Vec<&str> = words.collect();
    for command in words.split(|word| ["&&", "|", ";"].contains(word)) {
        let command = command.split(|word| word.starts_with('>')).next();
        let mut words = command.unwrap_or_default().iter();
        // `$` is a prompt; `sudo` may have options.
        let program = words
            .by_ref()
            .find(|word| !(["$", "sudo"].contains(word) || word.starts_with("--preserve-env")));
        if program == Some(&"memtrace") {
            let words = words.filter(|word| **word != "…").map(|word| {
                let value = PLACEHOLDERS.iter().find(|(name, _)| name == word);
                value
                    .map_or(*word, |(_, value)| value)
                    .replace(['"', '\''], "")
            });
            commands.push(["memtrace".to_owned()].into_iter().chain(words).collect());
        }
    }
    commands
}

/// Why memtrace would refuse a line. A `mention` may lack arguments.
fn refusals(line: &str, mention: bool) -> Vec<String> {
    let refusal = |words: Vec<String>| {
        let error = Cli::try_parse_from(&words).err()?;
        let fine = match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
            ErrorKind::MissingRequiredArgument
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => mention,
            _ => false,
        };
        (!fine).then(|| format!("`{}`: {error}", words.join(" ")))
    };
    commands(line).into_iter().filter_map(refusal).collect()
}

/// Pages of the documentation, with their text.
fn pages() -> Vec<(PathBuf, String)> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let folders = ["docs", "docs/reference", "docs/design"];
    let docs = folders.map(|name| fs::read_dir(root.join(name)).unwrap());
    let docs = docs.into_iter().flatten();
    let docs = docs.map(|entry| entry.unwrap().path());
    let others = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root.join(name));
    let pages = docs.chain(others);
    pages
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            (path, text)
        })
        .collect()
}

#[test]
fn documented_commands_are_understood() {
    let (mut lines, mut wrong) = (0, Vec::new());
    for (path, text) in pages() {
        let mut refused = |line: &str, mention| {
            lines += commands(line).len();
            let refusals = refusals(line, mention).into_iter();
            wrong.extend(refusals.map(|refusal| format!("{}: {refusal}", path.display())));
        };
        for (index, part) in text.split("\n```").enumerate() {
            match index % 2 {
                1 => part.lines().skip(1).for_each(|line| refused(line, false)),
                // A span may continue on the next line.
                _ => {
                    let part = part.replace('\n', " ");
                    let spans = part.split('`').skip(1).step_by(2);
                    spans.for_each(|span| refused(span, true));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(lines > 50, "only {lines} commands were found");
}

#[test]
fn examples_in_help_are_understood() {
    let mut cli = Cli::command();
    cli.build();
    let mut without = Vec::new();
    for command in std::iter::once(&cli).chain(cli.get_subcommands()) {
        let help = command.get_after_help().map(ToString::to_string);
        let help = help.unwrap_or_default();
        let wrong: Vec<_> = help
            .lines()
            .flat_map(|line| refusals(line, false))
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        if !command.is_hide_set() && help.lines().flat_map(commands).next().is_none() {
            without.push(command.get_name());
        }
    }
    // These two take no arguments to show.
    assert_eq!(without, ["check", "help"]);
}

#[test]
fn a_wrong_example_is_noticed() {
    assert!(refusals("$ sudo memtrace record -p PID -d 60s  # attach", false).is_empty());
    assert!(refusals("memtrace record", true).is_empty());
    assert_eq!(refusals("memtrace record", false).len(), 1);
    assert_eq!(refusals("memtrace record --holder", true).len(), 1);
    assert_eq!(
        refusals("memtrace check && memtrace leaks | head", true).len(),
        1
    );
    assert!(refusals("memtrace: recording to `server.mtr`", false).is_empty());
}
