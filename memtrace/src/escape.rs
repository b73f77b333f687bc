//! Text of traced programs, harmless to a terminal and to a reader's eyes.

use std::borrow::Cow;

/// Characters that are not shown, but change what is: control characters, and those of Unicode's category Cf and of no
/// width, among them those that reverse the direction of text.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{600}'..='\u{605}'
                | '\u{61c}'
                | '\u{6dd}'
                | '\u{70f}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Hidden characters are escaped.
pub fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            clean.extend(c.escape_default());
        } else {
            clean.push(c);
        }
    }
    clean
}

/// The same for text that may have several lines.
pub(crate) fn clean_lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(clean).collect();
    lines.join("\n")
}

/// JSON, or a part of it, in which those hidden characters are escapes that JSON allows in strings.
pub(crate) fn in_json(json: &str) -> Cow<'_, str> {
    let is_raw = |c: char| !c.is_ascii() && is_hidden(c);
    if !json.contains(is_raw) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match is_raw(c) {
            true => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    escaped += &format!("\\u{unit:04x}");
                }
            }
            false => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

/// A text of at most `most` bytes, with a mark where it was cut.
pub(crate) fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.len() <= most {
        true => Cow::Borrowed(text),
        false => {
            let end = text.floor_char_boundary(most.saturating_sub('…'.len_utf8()));
            Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default()))
        }
    }
}

/// `text` for a shell.
pub(crate) fn for_shell(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./+:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into()
    } else {
        format!("'{}'", clean(text).replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_escaped() {
        for (text, expected) in [
            ("a\x1b[2Jb", "a\\u{1b}[2Jb"),
            ("a\u{9b}2J", "a\\u{9b}2J"),
            ("x\u{202e}y\u{2069}", "x\\u{202e}y\\u{2069}"),
            ("\u{feff}\u{200b}\u{e0041}", "\\u{feff}\\u{200b}\\u{e0041}"),
            ("Größe 大きさ\u{301} 🙂", "Größe 大きさ\u{301} 🙂"),
        ] {
            assert_eq!(clean(text), expected);
        }
    }

    #[test]
    fn json_keeps_its_meaning() {
        let text = "a\u{9b}\u{202e}\u{e0041}\n\u{7f}ß";
        let json = serde_json::to_string_pretty(&[text]).unwrap();
        let escaped = in_json(&json);
        assert!(
            !escaped.chars().any(|c| !c.is_ascii() && is_hidden(c)),
            "{escaped}"
        );
        let read: Vec<String> = serde_json::from_str(&escaped).unwrap();
        assert_eq!(read, [text]);
        assert!(matches!(in_json("[\"ß\"]\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcdef", 5), "ab…");
        assert_eq!(cut("ßßßß", 6), "ß…");
    }
}
