//! Text of traced programs, harmless to a terminal.

/// Control characters are escaped.
pub fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
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

/// `text` for a shell.
pub(crate) fn for_shell(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./+:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into()
    } else {
        format!("'{}'", clean(text).replace('\'', "'\\''"))
    }
}
