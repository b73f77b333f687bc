//! Reads the first screen of `memtrace diagnose`: the lines that a user reads first.

use anyhow::Result;
use serde::Deserialize;

/// Columns that a continued line is indented by, at least.
const INDENT: usize = 14;

pub(super) struct Screen {
    pub(super) class: String,
    /// As printed.
    pub(super) text: String,
    /// Without folders and command lines, which may have the names that are looked for.
    answer: String,
}

impl Screen {
    /// Takes the lines above the account of the process's memory.
    pub(super) fn read(diagnosis: &str) -> Screen {
        let end = diagnosis
            .find("\nWhere the memory of")
            .or_else(|| diagnosis.find("\n\n"));
        let text = diagnosis[..end.unwrap_or(diagnosis.len())]
            .trim_end()
            .to_owned();
        let mut lines: Vec<String> = Vec::new();
        for line in text.lines() {
            match lines.last_mut() {
                Some(last) if line.len() - line.trim_start().len() >= INDENT => {
                    last.push(' ');
                    last.push_str(line.trim_start());
                }
                _ => lines.push(line.to_owned()),
            }
        }
        let first = text.lines().next().unwrap_or_default();
        let class = first.split_once(" (").map_or(first, |(class, _)| class);
        let rest = lines.iter().filter(|line| !line.starts_with("  process "));
        let answer = rest
            .map(|line| without_folders(line))
            .collect::<Vec<_>>()
            .join("\n");
        Screen {
            class: class.to_owned(),
            text,
            answer,
        }
    }

    pub(super) fn says(&self, words: &str) -> bool {
        self.answer.contains(words)
    }

    /// Whether it names this line of this file.
    pub(super) fn names(&self, file: &str, line: u32) -> bool {
        let place = format!("{file}:{line}");
        self.answer.match_indices(&place).any(|(at, _)| {
            let before = self.answer[..at].chars().next_back();
            let after = self.answer[at + place.len()..].chars().next();
            !before.is_some_and(is_of_name) && !after.is_some_and(|of| of.is_ascii_digit())
        })
    }
}

fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_' || character == '-'
}

fn without_folders(line: &str) -> String {
    let words = line.split(' ').map(|word| match word.rsplit_once('/') {
        Some((_, file)) if file.contains(':') => file,
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

#[derive(Deserialize)]
struct Diagnosis {
    verdicts: Vec<Verdict>,
}

#[derive(Deserialize)]
struct Verdict {
    scope: String,
    /// Bytes.
    bytes_per_s: Option<f64>,
}

/// Bytes per second that all processes of `memtrace diagnose --format json` grow by.
///
/// # Errors
/// The text is something else.
pub(super) fn rate(json: &str) -> Result<f64> {
    let diagnosis: Diagnosis = serde_json::from_str(json)?;
    let processes = diagnosis
        .verdicts
        .iter()
        .filter(|verdict| verdict.scope == "process");
    // A process that does not grow has no rate.
    Ok(processes.filter_map(|verdict| verdict.bytes_per_s).sum())
}

#[cfg(test)]
mod tests {
    use super::Screen;

    const DIAGNOSIS: &str = "\
leak (grade C): parameters allocates 195.4 KiB/s that a leaked reference keeps alive
  process       31620 of `python3 todo.py`, 195.4 KiB/s in total
  allocated by  parameters  …/todo/items.py:10
  next          look for the missing Py_DECREF in the native
                code on the stack

Where the memory of process 31620 went
  todo";

    #[test]
    fn folders_and_command_lines_are_no_answer() {
        let screen = Screen::read(DIAGNOSIS);
        assert_eq!(screen.class, "leak");
        assert!(!screen.says("todo"));
        assert!(screen.says("in the native code on"));
    }

    #[test]
    fn lines_are_named_whole() {
        let screen = Screen::read(DIAGNOSIS);
        assert!(screen.names("items.py", 10));
        assert!(!screen.names("items.py", 1));
        assert!(!screen.names("ems.py", 10));
    }
}
