//! HTML from text of traced programs: every such text passes [`escaped`], or is JSON by [`json`].

use std::io::{self, Write};

use serde::Serialize;

use crate::escape::{clean, in_json};

/// Text that no browser takes for markup, in an element or in a quoted attribute.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in clean(text).chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            _ => escaped.push(c),
        }
    }
    escaped
}

/// The same, with text between backticks as code.
pub(super) fn marked(text: &str) -> String {
    let mut marked = String::new();
    let text = escaped(text);
    let mut rest = text.as_str();
    while let Some((before, (code, after))) = rest
        .split_once('`')
        .and_then(|(before, after)| Some((before, after.split_once('`')?)))
    {
        marked += &format!("{before}<code>{code}</code>");
        rest = after;
    }
    marked + rest
}

/// JSON for the inside of a script element, which nothing in it can end.
pub(super) fn json(value: &impl Serialize) -> io::Result<String> {
    // `<` occurs in strings only.
    Ok(in_json(&serde_json::to_string(value)?).replace('<', "\\u003c"))
}

/// Writes a `dl` of terms and descriptions; nothing if there are none.
pub(super) fn descriptions(
    out: &mut impl Write,
    class: &str,
    rows: &[(&str, String)],
) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "<dl class=\"{class}\">")?;
    for (term, text) in rows {
        let (term, text) = (escaped(term), marked(text));
        writeln!(out, "<div><dt>{term}</dt><dd>{text}</dd></div>")?;
    }
    writeln!(out, "</dl>")
}

/// Writes a `ul` of lines; nothing if there are none.
pub(super) fn list(out: &mut impl Write, lines: &[String]) -> io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "<ul>")?;
    for line in lines {
        writeln!(out, "<li>{}</li>", marked(line))?;
    }
    writeln!(out, "</ul>")
}

/// A table whose first column is the rows' header.
pub(super) struct Table<'a> {
    pub(super) caption: &'a str,
    pub(super) columns: &'a [&'a str],
    /// Columns of right-aligned numbers.
    pub(super) numbers: &'a [usize],
}

/// A row of a table.
pub(super) struct Row {
    pub(super) cells: Vec<String>,
    /// Marked as different.
    pub(super) differs: bool,
}

impl Table<'_> {
    pub(super) fn write(
        &self,
        out: &mut impl Write,
        rows: impl IntoIterator<Item = Row>,
    ) -> io::Result<()> {
        let caption = escaped(self.caption);
        writeln!(
            out,
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\"><table><caption>{caption}</caption><thead><tr>"
        )?;
        for (index, column) in self.columns.iter().enumerate() {
            let class = self.class(index);
            writeln!(out, "<th scope=\"col\"{class}>{}</th>", escaped(column))?;
        }
        writeln!(out, "</tr></thead><tbody>")?;
        for row in rows {
            let differs = if row.differs {
                " class=\"differs\""
            } else {
                ""
            };
            write!(out, "<tr{differs}>")?;
            for (index, cell) in row.cells.iter().enumerate() {
                let (class, cell) = (self.class(index), escaped(cell));
                match index {
                    0 => write!(out, "<th scope=\"row\">{cell}</th>")?,
                    _ => write!(out, "<td{class}>{cell}</td>")?,
                }
            }
            writeln!(out, "</tr>")?;
        }
        writeln!(out, "</tbody></table></div>")
    }

    fn class(&self, index: usize) -> &'static str {
        match self.numbers.contains(&index) {
            true => " class=\"number\"",
            false => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "</script><img src=x onerror='alert(1)'>&\"\u{1b}[2J";

    #[test]
    fn hostile_text_has_no_markup() {
        let text = escaped(HOSTILE);
        assert!(!text.contains(['<', '>', '"', '\'', '\u{1b}']), "{text}");
        assert!(text.contains("&lt;/script&gt;&lt;img"), "{text}");
    }

    #[test]
    fn hostile_text_does_not_end_a_script_and_is_read_back() {
        for text in [HOSTILE, "<!--<script>", "]]>"] {
            let json = json(&[text]).unwrap();
            assert!(!json.contains('<'), "{json}");
            let read: Vec<String> = serde_json::from_str(&json).unwrap();
            assert_eq!(read, [text]);
        }
    }

    #[test]
    fn backticks_mark_code() {
        for (text, html) in [
            ("a", "a"),
            ("`a`", "<code>a</code>"),
            (
                "run `a <b>` or `c`.",
                "run <code>a &lt;b&gt;</code> or <code>c</code>.",
            ),
            ("a ` b", "a ` b"),
            ("`a` ` b", "<code>a</code> ` b"),
        ] {
            assert_eq!(marked(text), html);
        }
    }

    #[test]
    fn numbers_and_differences_are_marked() {
        let mut out = Vec::new();
        let table = Table {
            caption: "a < b",
            columns: &["name", "bytes"],
            numbers: &[1],
        };
        let cells = vec!["<x>".into(), "7".into()];
        let row = Row {
            cells,
            differs: true,
        };
        table.write(&mut out, [row]).unwrap();
        let html = String::from_utf8(out).unwrap();
        for part in [
            "<caption>a &lt; b</caption>",
            "<th scope=\"col\" class=\"number\">bytes</th>",
            "<tr class=\"differs\"><th scope=\"row\">&lt;x&gt;</th><td class=\"number\">7</td></tr>",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
    }
}
