//! The terminal: taken over, and given back on every way out.

use std::{
    env,
    io::{self, IsTerminal, Stdout},
    panic,
    sync::atomic::{AtomicBool, Ordering},
};

use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor::{Hide, Show},
        execute,
        terminal::{self, EnterAlternateScreen, LeaveAlternateScreen},
    },
};

/// Whether the terminal is taken over.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Why there is no terminal to draw on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScreenError {
    #[error(
        "`memtrace top` needs a terminal for its input and output; without one, use `memtrace record` and `memtrace report`"
    )]
    NoTerminal,
    #[error(
        "the terminal type is `{0}`, on which nothing can be placed; set TERM to the type of your terminal, such as `xterm`, or use `memtrace record` and `memtrace report`"
    )]
    Dumb(String),
    #[error("cannot use the terminal: {0}")]
    System(#[from] io::Error),
}

/// The terminal while it is taken over. Dropping it gives it back.
pub(crate) struct Screen {
    pub(crate) terminal: Terminal<CrosstermBackend<Stdout>>,
}

/// Checks that there is a terminal that can be drawn on.
///
/// # Errors
/// There is none.
pub(crate) fn check() -> Result<(), ScreenError> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(ScreenError::NoTerminal);
    }
    let kind = env::var("TERM").unwrap_or_default();
    match kind.as_str() {
        "" | "dumb" | "unknown" => Err(ScreenError::Dumb(kind)),
        _ => Ok(()),
    }
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// There is none that can be drawn on.
    pub(crate) fn take() -> Result<Screen, ScreenError> {
        check()?;
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // The message would be lost with the screen.
            give_back();
            before(info);
        }));
        terminal::enable_raw_mode()?;
        IS_TAKEN.store(true, Ordering::Relaxed);
        let entered = execute!(io::stdout(), EnterAlternateScreen, Hide);
        let terminal = entered.and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        if terminal.is_err() {
            give_back();
        }
        Ok(Screen {
            terminal: terminal?,
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Leaves the terminal as it was. A terminal that is gone needs nothing.
fn give_back() {
    if IS_TAKEN.swap(false, Ordering::Relaxed) {
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = terminal::disable_raw_mode();
    }
}
