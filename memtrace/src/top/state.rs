//! The state of the screen, and how keys and readings change it. Pure: drawing and the terminal are elsewhere.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::{
    keys::{self, Command},
    reading::Reading,
    rows::{self, Choice, Grouping, Mark, Row, RowId, Sort},
};
use crate::event::Layer;

/// Most characters of a filter.
const LONGEST_FILTER: usize = 200;

/// Where the readings come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A recorder that this program started, of these processes.
    Live(Vec<u32>),
    /// A file that exists.
    File(String),
}

/// How far the recorder of [`Origin::Live`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It sets probes.
    Starting,
    Recording,
    Ended,
}

/// What the loop has to do after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Nothing,
    Quit,
    /// Stop until the shell lets it go on.
    Suspend,
    /// Have the recorder search for holders.
    Search,
}

/// Everything that is drawn.
pub(crate) struct State {
    pub(crate) origin: Origin,
    /// The reading on the screen.
    reading: Option<Reading>,
    /// A newer one, while the screen is frozen.
    waiting: Option<Reading>,
    pub(crate) is_frozen: bool,
    pub(crate) choice: Choice,
    pub(crate) mark: Option<Mark>,
    rows: Vec<Row>,
    selected: usize,
    /// The user has moved the selection: it stays with its row.
    pinned: Option<RowId>,
    /// The filter before a new one is typed.
    typing: Option<String>,
    pub(crate) shows_help: bool,
    pub(crate) phase: Phase,
    /// The last message of the recorder, or about a key.
    pub(crate) message: String,
    /// Rows of a page, set by drawing.
    pub(crate) page: usize,
}

impl State {
    pub(crate) fn new(origin: Origin) -> State {
        State {
            origin,
            reading: None,
            waiting: None,
            is_frozen: false,
            choice: Choice {
                grouping: Grouping::ALL[0],
                sort: Sort::ALL[0],
                layer: None,
                text: String::new(),
            },
            mark: None,
            rows: Vec::new(),
            selected: 0,
            pinned: None,
            typing: None,
            shows_help: false,
            phase: Phase::Starting,
            message: String::new(),
            page: 1,
        }
    }

    pub(crate) fn reading(&self) -> Option<&Reading> {
        self.reading.as_ref()
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The selected row's place.
    pub(crate) fn selected(&self) -> usize {
        self.selected
    }

    pub(crate) fn selected_row(&self) -> Option<&Row> {
        self.rows.get(self.selected)
    }

    /// Whether a filter is being typed.
    pub(crate) fn is_typing(&self) -> bool {
        self.typing.is_some()
    }

    /// Takes a newer reading. A frozen screen shows it later.
    pub(crate) fn take(&mut self, reading: Reading) {
        if self.is_frozen && self.reading.is_some() {
            self.waiting = Some(reading);
            return;
        }
        self.reading = Some(reading);
        self.refresh();
    }

    /// Acts on a key.
    pub(crate) fn press(&mut self, key: KeyEvent) -> Action {
        if keys::is_suspend(key) {
            return Action::Suspend;
        }
        if self.is_typing() {
            return self.type_key(key);
        }
        let Some(command) = keys::command(key) else {
            return Action::Nothing;
        };
        self.message.clear();
        if self.shows_help && !matches!(command, Command::Help | Command::Quit) {
            return Action::Nothing;
        }
        match command {
            Command::Quit if self.shows_help && key.code == KeyCode::Esc => self.shows_help = false,
            Command::Quit => return Action::Quit,
            Command::Help => self.shows_help = !self.shows_help,
            Command::Filter => self.typing = Some(self.choice.text.clone()),
            Command::Sort => {
                self.choice.sort = after(&Sort::ALL, self.choice.sort);
                self.pinned = None;
                self.refresh();
            }
            Command::Group => {
                self.choice.grouping = after(&Grouping::ALL, self.choice.grouping);
                self.pinned = None;
                self.refresh();
            }
            Command::Layer => self.next_layer(),
            Command::Freeze => self.freeze(),
            Command::Mark => self.mark(),
            Command::Unmark => {
                self.mark = None;
                self.refresh();
            }
            Command::Search => return self.search(),
            Command::Up => self.select(self.selected.saturating_sub(1)),
            Command::Down => self.select(self.selected + 1),
            Command::PageUp => self.select(self.selected.saturating_sub(self.page.max(1))),
            Command::PageDown => self.select(self.selected + self.page.max(1)),
            Command::First => self.select(0),
            Command::Last => self.select(usize::MAX),
        }
        Action::Nothing
    }

    fn type_key(&mut self, key: KeyEvent) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::Nothing;
        }
        if keys::is_interrupt(key) {
            return Action::Quit;
        }
        let text = &mut self.choice.text;
        match key.code {
            KeyCode::Enter => self.typing = None,
            KeyCode::Esc => {
                text.clear();
                self.typing = None;
            }
            KeyCode::Backspace => {
                text.pop();
            }
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => text.clear(),
            KeyCode::Char(c)
                if !key
                    .modifiers
                    .intersects(KeyModifiers::CONTROL | KeyModifiers::ALT)
                    && text.chars().count() < LONGEST_FILTER =>
            {
                text.push(c);
            }
            _ => return Action::Nothing,
        }
        self.refresh();
        Action::Nothing
    }

    fn next_layer(&mut self) {
        let Some(reading) = &self.reading else {
            return;
        };
        let mut layers: Vec<Layer> = reading
            .layers()
            .into_iter()
            .map(|(layer, _)| layer)
            .collect();
        layers.sort_unstable();
        let all: Vec<Option<Layer>> = [None]
            .into_iter()
            .chain(layers.into_iter().map(Some))
            .collect();
        self.choice.layer = after(&all, self.choice.layer);
        self.refresh();
    }

    fn freeze(&mut self) {
        self.is_frozen = !self.is_frozen;
        if let (false, Some(reading)) = (self.is_frozen, self.waiting.take()) {
            self.reading = Some(reading);
            self.refresh();
        }
    }

    fn mark(&mut self) {
        match &self.reading {
            Some(reading) if reading.has_ended() => {
                self.message = "no process runs any more: nothing changes".into();
            }
            Some(reading) => {
                self.mark = Some(Mark::at(reading));
                self.refresh();
            }
            None => self.message = "there is nothing to mark yet".into(),
        }
    }

    fn search(&mut self) -> Action {
        let (message, action) = match (&self.origin, self.phase) {
            (Origin::File(_), _) => (
                "holders can be searched for only while recording: `memtrace top -p PID`",
                Action::Nothing,
            ),
            (Origin::Live(_), Phase::Starting) => ("probes are still being set", Action::Nothing),
            (Origin::Live(_), Phase::Recording) => ("searching for holders …", Action::Search),
            (Origin::Live(_), Phase::Ended) => (
                "the process has ended: it cannot be searched any more",
                Action::Nothing,
            ),
        };
        self.message = message.into();
        action
    }

    fn select(&mut self, place: usize) {
        self.selected = place.min(self.rows.len().saturating_sub(1));
        self.pinned = self.selected_row().map(|row| row.id.clone());
    }

    /// Makes the rows again. The selection stays with its row.
    fn refresh(&mut self) {
        let reading = self.reading.as_ref();
        // Peaks are shown then, which are no change since a mark.
        if reading.is_some_and(Reading::has_ended) {
            self.mark = None;
        }
        self.rows = reading.map_or(Vec::new(), |reading| {
            rows::rows(reading, &self.choice, self.mark.as_ref())
        });
        let pinned = self.pinned.as_ref();
        let place = pinned.and_then(|id| self.rows.iter().position(|row| row.id == *id));
        // If it was not moved, the selection stays at the top.
        let last = self.rows.len().saturating_sub(1);
        self.selected = match pinned {
            Some(_) => place.unwrap_or(self.selected.min(last)),
            None => 0,
        };
    }
}

/// The choice after `now`; the first one follows the last, and any that is not among them.
fn after<T: Copy + PartialEq>(all: &[T], now: T) -> T {
    let place = all.iter().position(|one| *one == now);
    let next = place.map_or(0, |place| (place + 1) % all.len());
    all.get(next).copied().unwrap_or(now)
}

#[cfg(test)]
mod tests;
