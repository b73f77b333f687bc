//! The keys of `memtrace top`: one table for reading them, for the footer and for the help. Pure.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Quit,
    Help,
    Filter,
    Sort,
    Group,
    Layer,
    Freeze,
    Mark,
    Unmark,
    Search,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
}

/// A key that does something.
pub(crate) struct Binding {
    pub(crate) code: KeyCode,
    pub(crate) command: Command,
    /// The key's name.
    pub(crate) key: &'static str,
    /// A word for the footer; empty: only the help has it.
    pub(crate) short: &'static str,
    /// For the help; empty: another line says it.
    pub(crate) help: &'static str,
}

const fn binding(
    code: KeyCode,
    command: Command,
    [key, short, help]: [&'static str; 3],
) -> Binding {
    Binding {
        code,
        command,
        key,
        short,
        help,
    }
}

/// All keys, the most important first: a narrow footer ends early.
pub(crate) const BINDINGS: [Binding; 23] = [
    binding(
        KeyCode::Char('q'),
        Command::Quit,
        ["q", "quit", "quit; so do Esc and Ctrl-C"],
    ),
    binding(
        KeyCode::Char('?'),
        Command::Help,
        ["?", "help", "show or hide this help"],
    ),
    binding(
        KeyCode::Char('/'),
        Command::Filter,
        [
            "/",
            "filter",
            "show only rows with a text; Enter keeps it, Esc clears it",
        ],
    ),
    binding(
        KeyCode::Char('s'),
        Command::Sort,
        [
            "s",
            "sort",
            "sort: leaks first, by live bytes, growth, age or blocks",
        ],
    ),
    binding(
        KeyCode::Char('g'),
        Command::Group,
        [
            "g",
            "group",
            "group by program line, site, process, layer and so on",
        ],
    ),
    binding(
        KeyCode::Char(' '),
        Command::Freeze,
        ["space", "freeze", "freeze the screen, or go on"],
    ),
    binding(
        KeyCode::Char('m'),
        Command::Mark,
        [
            "m",
            "mark",
            "mark this moment, and show changes since then; M forgets it",
        ],
    ),
    binding(
        KeyCode::Char('h'),
        Command::Search,
        [
            "h",
            "holders",
            "search for what keeps the largest sites (with -p)",
        ],
    ),
    binding(
        KeyCode::Char('l'),
        Command::Layer,
        ["l", "layer", "show one layer only, or all"],
    ),
    binding(KeyCode::Char('M'), Command::Unmark, ["", "", ""]),
    binding(
        KeyCode::Up,
        Command::Up,
        [
            "Up, Down",
            "",
            "select a row; k and j, PgUp and PgDn, Home and End too",
        ],
    ),
    binding(KeyCode::Down, Command::Down, ["", "", ""]),
    binding(KeyCode::Char('k'), Command::Up, ["", "", ""]),
    binding(KeyCode::Char('j'), Command::Down, ["", "", ""]),
    binding(KeyCode::PageUp, Command::PageUp, ["", "", ""]),
    binding(KeyCode::PageDown, Command::PageDown, ["", "", ""]),
    binding(KeyCode::Home, Command::First, ["", "", ""]),
    binding(KeyCode::End, Command::Last, ["", "", ""]),
    binding(KeyCode::Esc, Command::Quit, ["", "", ""]),
    binding(KeyCode::F(1), Command::Help, ["", "", ""]),
    binding(KeyCode::Char('Q'), Command::Quit, ["", "", ""]),
    binding(KeyCode::Char('G'), Command::Last, ["", "", ""]),
    binding(KeyCode::F(10), Command::Quit, ["", "", ""]),
];

/// Whether a key is Ctrl-C.
pub(crate) fn is_interrupt(key: KeyEvent) -> bool {
    key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c')
}

/// Whether a key is Ctrl-Z.
pub(crate) fn is_suspend(key: KeyEvent) -> bool {
    key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('z')
}

/// What a key asks for, outside of a text being typed.
pub(crate) fn command(key: KeyEvent) -> Option<Command> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if is_interrupt(key) {
        return Some(Command::Quit);
    }
    if key
        .modifiers
        .intersects(KeyModifiers::CONTROL | KeyModifiers::ALT)
    {
        return None;
    }
    let known = BINDINGS.iter().find(|binding| binding.code == key.code);
    known.map(|binding| binding.command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_bound_once() {
        for (index, binding) in BINDINGS.iter().enumerate() {
            let same = |other: &Binding| other.code == binding.code;
            assert_eq!(BINDINGS.iter().position(same), Some(index));
            let key = KeyEvent::new(binding.code, KeyModifiers::NONE);
            assert_eq!(command(key), Some(binding.command));
        }
    }

    #[test]
    fn control_and_alt_change_the_meaning() {
        let with = |code, modifiers| command(KeyEvent::new(code, modifiers));
        let c = KeyCode::Char('c');
        assert_eq!(with(c, KeyModifiers::CONTROL), Some(Command::Quit));
        assert_eq!(with(c, KeyModifiers::NONE), None);
        assert_eq!(with(KeyCode::Char('m'), KeyModifiers::CONTROL), None);
        assert_eq!(with(KeyCode::Char('m'), KeyModifiers::ALT), None);
    }
}
