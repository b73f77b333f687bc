//! How the parts look, with and without colours.

use std::env;

use ratatui::style::{Color, Modifier, Style as Look};

/// The look of each part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(super) plain: Look,
    pub(super) title: Look,
    pub(super) heading: Look,
    pub(super) selected: Look,
    pub(super) growing: Look,
    /// Memory that other rows have, too.
    pub(super) indirect: Look,
    pub(super) course: Look,
    pub(super) warning: Look,
}

impl Style {
    /// Only bold, underlined and reversed text.
    pub(crate) fn without_colours() -> Style {
        let plain = Look::default();
        let bold = plain.add_modifier(Modifier::BOLD);
        Style {
            plain,
            title: bold,
            heading: plain.add_modifier(Modifier::UNDERLINED),
            selected: plain.add_modifier(Modifier::REVERSED),
            growing: bold,
            indirect: plain,
            course: plain,
            warning: bold,
        }
    }

    fn with_colours() -> Style {
        let style = Style::without_colours();
        Style {
            growing: style.plain.fg(Color::Red),
            indirect: style.plain.fg(Color::DarkGray),
            course: style.plain.fg(Color::Cyan),
            warning: style.warning.fg(Color::Yellow),
            ..style
        }
    }

    /// With colours if the user may have them and the terminal does.
    pub(crate) fn new(may_colour: bool) -> Style {
        let terminal = env::var("TERM").unwrap_or_default();
        match may_colour && !is_monochrome(&terminal) {
            true => Style::with_colours(),
            false => Style::without_colours(),
        }
    }
}

/// Terminals without colours: DEC's, and those of which terminfo has such a variant.
fn is_monochrome(terminal: &str) -> bool {
    let number = terminal.strip_prefix("vt");
    number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
        || terminal.ends_with("-m")
        || terminal.ends_with("-mono")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_terminals_have_no_colours() {
        for terminal in ["vt100", "vt220", "xterm-mono", "linux-m"] {
            assert!(is_monochrome(terminal), "{terminal}");
        }
        for terminal in ["xterm", "xterm-256color", "vte", "linux", "tmux"] {
            assert!(!is_monochrome(terminal), "{terminal}");
        }
    }
}
