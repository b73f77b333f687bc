//! The keyboard, read by a thread: once the terminal is gone, crossterm's reader does not return any more.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use ratatui::crossterm::event::{self, Event};

/// How often the thread looks whether it is still needed.
const LOOK: Duration = Duration::from_millis(100);

/// Keys and changes of the terminal's size. Dropping it ends the thread, unless the terminal is gone.
pub(crate) struct Keyboard {
    events: Receiver<io::Result<Event>>,
    is_over: Arc<AtomicBool>,
}

impl Keyboard {
    pub(crate) fn start() -> io::Result<Keyboard> {
        let (sender, events) = channel();
        let is_over = Arc::<AtomicBool>::default();
        let over = Arc::clone(&is_over);
        thread::Builder::new()
            .name("keyboard".to_owned())
            .spawn(move || {
                if let Err(error) = read(&sender, &over) {
                    // Nobody is interested any more.
                    let _ = sender.send(Err(error));
                }
            })?;
        Ok(Keyboard { events, is_over })
    }

    /// The next event, if one comes in time.
    ///
    /// # Errors
    /// The terminal is gone or cannot be read.
    pub(crate) fn next(&self, patience: Duration) -> io::Result<Option<Event>> {
        match self.events.recv_timeout(patience) {
            Ok(event) => event.map(Some),
            Err(RecvTimeoutError::Timeout) if !has_hung_up() => Ok(None),
            Err(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn read(sender: &Sender<io::Result<Event>>, is_over: &AtomicBool) -> io::Result<()> {
    while !is_over.load(Ordering::Relaxed) {
        if event::poll(LOOK)? && sender.send(Ok(event::read()?)).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Whether the terminal is gone.
fn has_hung_up() -> bool {
    // Hangups and errors are reported without being asked for.
    let mut stdin = libc::pollfd {
        fd: libc::STDIN_FILENO,
        events: 0,
        revents: 0,
    };
    // SAFETY: one valid entry is passed.
    unsafe { libc::poll(&raw mut stdin, 1, 0) > 0 }
}
