//! The terminal: taken over, and given back on every way out.

use std::{
    env,
    io::{self, IsTerminal, Stdout},
    mem::ManuallyDrop,
    panic,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor::{Hide, MoveTo, Show},
        execute,
        terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen},
    },
};

/// Docker gives a new terminal its size a moment after the program starts.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(20);

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
        "the terminal type is `{0}`, which cannot position text; set TERM to the type of your terminal, such as `xterm`, or use `memtrace record` and `memtrace report`"
    )]
    Dumb(String),
    #[error("the terminal does not know its size; set it, for example with `stty rows 24 cols 80`")]
    NoSize,
    #[error("cannot use the terminal: {0}")]
    System(#[from] io::Error),
}

/// The terminal while it is taken over. Dropping it gives it back.
pub(crate) struct Screen {
    /// Its own drop would panic if the terminal and standard error are gone.
    pub(crate) terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
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
        "" | "dumb" | "unknown" => return Err(ScreenError::Dumb(kind)),
        _ => {}
    }
    let begun = Instant::now();
    while matches!(terminal::size()?, (0, _) | (_, 0)) {
        if begun.elapsed() >= PATIENCE {
            return Err(ScreenError::NoSize);
        }
        thread::sleep(LOOK);
    }
    Ok(())
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
        let terminal = take_over().and_then(|()| empty());
        if terminal.is_err() {
            give_back();
        }
        Ok(Screen {
            terminal: ManuallyDrop::new(terminal?),
        })
    }

    /// Stops this job as Ctrl-Z does elsewhere, with the terminal as it was. Returns when the job goes on, with an empty
    /// screen.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        // SAFETY: no memory is involved. The shell waits for the whole process group; without one, nothing happens.
        unsafe { libc::kill(0, libc::SIGTSTP) };
        take_over()?;
        self.terminal = ManuallyDrop::new(empty()?);
        Ok(())
    }
}

/// A terminal of which nothing is drawn.
fn empty() -> io::Result<Terminal<CrosstermBackend<Stdout>>> {
    Terminal::new(CrosstermBackend::new(io::stdout()))
}

fn take_over() -> io::Result<()> {
    terminal::enable_raw_mode()?;
    IS_TAKEN.store(true, Ordering::Relaxed);
    execute!(
        io::stdout(),
        EnterAlternateScreen,
        Clear(ClearType::All),
        Hide
    )
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Leaves the terminal as it was. A terminal that is gone needs nothing.
pub(crate) fn give_back() {
    if IS_TAKEN.swap(false, Ordering::Relaxed) {
        // Terminals without a second screen, such as Linux's console, would keep the picture.
        let _ = execute!(
            io::stdout(),
            Clear(ClearType::All),
            MoveTo(0, 0),
            LeaveAlternateScreen,
            Show
        );
        let _ = terminal::disable_raw_mode();
    }
}
