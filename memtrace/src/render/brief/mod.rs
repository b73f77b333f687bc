//! Short answers for programs that read text, such as language models: conclusions as text and as JSON, each of a few
//! KB, with the number of entries left out.

mod growth;
mod sites;

use serde_json::{Value, json};

use super::stack;
use crate::{
    escape::clean,
    frames::{Frame, names},
    units::plural,
};

pub(crate) use growth::{comparison, findings};
pub(crate) use sites::{groups, holders, sites, stack as of_stack};

/// Most bytes of the entries, in either form.
const BUDGET: usize = 4096;
/// Most characters of one string: names of C++ templates have thousands.
const STRING: usize = 240;

/// An answer before it is cut.
#[derive(Debug)]
pub(crate) struct Brief {
    /// One entry, in words.
    pub(crate) noun: &'static str,
    /// Stands before the entries.
    pub(crate) head: Vec<String>,
    /// The most important first.
    pub(crate) entries: Vec<Entry>,
    /// How to see the entries that are left out.
    pub(crate) more: &'static str,
}

/// One finding, site or line.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) text: String,
    pub(crate) data: Value,
}

impl Brief {
    /// The answer as text and as JSON, with the first `limit` entries, or as many as there is room for.
    pub(crate) fn fit(self, limit: usize) -> (String, Value) {
        let all = self.entries.len();
        let head: Vec<String> = self.head.iter().map(|line| cut(line)).collect();
        let mut text: String = head.iter().map(|line| format!("{line}\n")).collect();
        let (mut data, mut used) = (Vec::new(), 0);
        for mut entry in self.entries.into_iter().take(limit) {
            let lines: Vec<String> = entry.text.lines().map(cut).collect();
            shorten(&mut entry.data);
            let lines = lines.join("\n") + "\n";
            used += lines.len().max(entry.data.to_string().len());
            if used > BUDGET && !data.is_empty() {
                break;
            }
            text += &lines;
            data.push(entry.data);
        }
        let left_out = all - data.len();
        if left_out > 0 {
            let more = plural(left_out as u64, &format!("more {}", self.noun));
            text += &format!("{more} left out; {}\n", self.more);
        }
        let data = json!({ "notes": head, "entries": data, "left_out": left_out });
        (text, data)
    }
}

/// A line of at most [`STRING`] characters.
fn cut(line: &str) -> String {
    match line.char_indices().nth(STRING) {
        None => line.to_owned(),
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}

fn shorten(value: &mut Value) {
    match value {
        Value::String(text) => *text = cut(text),
        Value::Array(values) => values.iter_mut().for_each(shorten),
        Value::Object(values) => values.values_mut().for_each(shorten),
        _ => {}
    }
}

/// A line of code, by its parts.
fn frame(of: &Frame) -> Value {
    json!({
        "function": names::plain(of),
        "file": of.file.as_deref().map(clean),
        "line": of.line,
        "module": of.module_name().map(clean),
    })
}

/// The same in words.
fn line(of: Option<&Frame>) -> String {
    of.map_or("code without a stack".into(), |of| stack::line(of, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brief(entries: usize, width: usize) -> Brief {
        let entry = |_| Entry {
            text: "x".repeat(width),
            data: json!({ "text": "x".repeat(width) }),
        };
        Brief {
            noun: "site",
            head: vec!["all sites".to_owned()],
            entries: (0..entries).map(entry).collect(),
            more: "raise `limit`",
        }
    }

    #[test]
    fn entries_beyond_the_limit_are_counted() {
        let (text, data) = brief(5, 1).fit(3);
        assert_eq!(
            text,
            "all sites\nx\nx\nx\n2 more sites left out; raise `limit`\n"
        );
        assert_eq!(data["left_out"], 2);
        assert_eq!(data["entries"].as_array().unwrap().len(), 3);
        assert!(!brief(3, 1).fit(3).0.contains("left out"));
    }

    #[test]
    fn answers_stay_small() {
        let (text, data) = brief(1000, 100_000).fit(usize::MAX);
        assert!(text.len() < BUDGET + 1000, "{}", text.len());
        assert!(data.to_string().len() < BUDGET + 1000, "{data}");
        let shown = data["entries"].as_array().unwrap().len() as u64;
        assert!(shown > 1);
        assert_eq!(data["left_out"], 1000 - shown);
        let (text, _) = brief(1, STRING).fit(1);
        assert!(!text.contains('…'), "{text}");
    }
}
