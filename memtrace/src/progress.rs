//! A line on the terminal while something takes long. It appears after a second and is cleared at the end. If standard
//! error is neither a terminal nor read by another memtrace, there is none.

use std::{
    env,
    io::{self, IsTerminal, Write},
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::escape::{clean, clean_lines};

/// Work that ends sooner is not worth a line.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two pictures of the line.
const TICK: Duration = Duration::from_millis(100);

const LINE: &str = "memtrace: {wide_msg} {elapsed:>3} {spinner}";

/// The line on the screen, which messages must not tear.
static DRAWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// A variable with which another memtrace reads the steps, as lines, from standard error.
pub(crate) const AS_LINES: &str = "MEMTRACE_STEPS_AS_LINES";

/// The end of such a line.
pub(crate) const GOES_ON: &str = " …";

/// How a step that takes long is shown on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// One line, drawn again and again, and cleared at the end.
    Drawn,
    /// A line of text for each step. A program that writes to the same terminal keeps its output.
    Printed,
}

impl Manner {
    /// `is_shared`: other programs may write to memtrace's terminal.
    pub(crate) fn beside(is_shared: bool) -> Self {
        match is_shared {
            true => Manner::Printed,
            false => Manner::Drawn,
        }
    }
}

/// See the module. Dropping it ends the line.
#[derive(Debug)]
pub(crate) struct Progress(Option<(Sender<String>, JoinHandle<()>)>);

impl Progress {
    /// Draws the line of work during which no other program writes to the terminal.
    pub(crate) fn begin(doing: impl Into<String>) -> Self {
        Self::shown(doing, Manner::Drawn)
    }

    pub(crate) fn shown(doing: impl Into<String>, manner: Manner) -> Self {
        let is_read = env::var_os(AS_LINES).is_some();
        if !is_read && !io::stderr().is_terminal() {
            return Self(None);
        }
        let (steps, coming) = channel();
        let target = ProgressDrawTarget::stderr();
        let thread = std::thread::Builder::new()
            .name("progress".to_owned())
            .spawn(move || match manner {
                // Such as a terminal that cannot move its cursor.
                Manner::Drawn if !is_read && !target.is_hidden() => draw(target, &coming, PATIENCE),
                _ => print(&mut io::stderr(), &coming, PATIENCE),
            });
        // If the thread cannot be started, the line is missing.
        let progress = Self(thread.ok().map(|thread| (steps, thread)));
        progress.doing(doing);
        progress
    }

    /// Sets the current step.
    pub(crate) fn doing(&self, what: impl Into<String>) {
        if let Some((steps, _)) = &self.0 {
            // The thread ends after this does.
            let _ = steps.send(clean(&what.into()));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((steps, thread)) = self.0.take() {
            drop(steps);
            let _ = thread.join();
        }
    }
}

/// Draws the current step once the work has lasted for `patience`.
fn draw(target: ProgressDrawTarget, steps: &Receiver<String>, patience: Duration) {
    let mut doing = String::new();
    let begun = std::time::Instant::now();
    let bar = loop {
        match steps.recv_timeout(patience.saturating_sub(begun.elapsed())) {
            Ok(step) => doing = step,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => break ProgressBar::with_draw_target(None, target),
        }
    };
    if let Ok(style) = ProgressStyle::with_template(LINE) {
        bar.set_style(style);
    }
    let bar = bar.with_elapsed(begun.elapsed()).with_message(doing);
    *drawn() = Some(bar.clone());
    bar.tick();
    loop {
        match steps.recv_timeout(TICK) {
            Ok(step) => bar.set_message(step),
            Err(RecvTimeoutError::Timeout) => bar.tick(),
            Err(RecvTimeoutError::Disconnected) => return clear(),
        }
    }
}

/// Prints each step that lasts for longer than `patience`.
fn print(out: &mut impl Write, steps: &Receiver<String>, patience: Duration) {
    let mut doing = None;
    loop {
        match steps.recv_timeout(patience) {
            Ok(step) => doing = Some(step),
            Err(RecvTimeoutError::Disconnected) => return,
            // A closed standard error must not end the work.
            Err(RecvTimeoutError::Timeout) => {
                if let Some(step) = doing.take() {
                    let _ = writeln!(out, "memtrace: {step}{GOES_ON}");
                }
            }
        }
    }
}

fn drawn() -> MutexGuard<'static, Option<ProgressBar>> {
    DRAWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the line from the screen for good.
pub(crate) fn clear() {
    if let Some(bar) = drawn().take() {
        bar.finish_and_clear();
    }
}

/// Prints a line to standard error, above the line that is drawn. If standard error is closed, the line is lost.
pub fn say(text: &str) {
    let _ = Stderr.write_all(format!("memtrace: {}\n", clean(text)).as_bytes());
}

/// Standard error for whole lines that may come while a line is drawn. Names of files and programs in them cannot
/// control the terminal.
#[derive(Clone, Copy, Debug)]
pub struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = clean_lines(&String::from_utf8_lossy(bytes));
        let write = || io::stderr().write_all(text.as_bytes());
        match &*drawn() {
            Some(bar) => bar.suspend(write)?,
            None => write()?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use indicatif::TermLike;

    use super::*;

    const SOON: Duration = Duration::from_millis(1);

    /// Keeps what is written. The first text ends the work.
    #[derive(Clone, Debug, Default)]
    struct Screen(Arc<Mutex<(String, Option<Sender<String>>)>>);

    impl Screen {
        /// A screen of work that does these steps, one right after the other.
        fn of(doing: &[&str]) -> (Self, Receiver<String>) {
            let (steps, coming) = channel();
            for step in doing {
                steps.send((*step).to_owned()).unwrap();
            }
            let screen = Self::default();
            screen.0.lock().unwrap().1 = Some(steps);
            (screen, coming)
        }

        fn text(&self) -> String {
            self.0.lock().unwrap().0.clone()
        }

        fn add(&self, text: &str) {
            let mut screen = self.0.lock().unwrap();
            screen.0 += text;
            screen.1 = None;
        }
    }

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.add(std::str::from_utf8(bytes).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            40
        }

        fn move_cursor_up(&self, _lines: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _lines: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _columns: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _columns: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, line: &str) -> io::Result<()> {
            self.add(&format!("{line}\n"));
            Ok(())
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.add(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            self.add("<clear>");
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_steps_that_last_are_printed() {
        let (mut screen, coming) = Screen::of(&["loading", "attaching"]);
        print(&mut screen, &coming, SOON);
        assert_eq!(screen.text(), "memtrace: attaching …\n");
    }

    #[test]
    fn the_line_is_cut_at_the_width_and_cleared_at_the_end() {
        let long = "attaching to everything that runs on this machine";
        let (screen, coming) = Screen::of(&["loading", long]);
        let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
        draw(target, &coming, SOON);
        let text = screen.text();
        assert!(text.contains("memtrace: attaching to every"), "{text:?}");
        assert!(!text.contains("loading"), "{text:?}");
        assert!(!text.contains("machine"), "{text:?}");
        assert!(text.trim_end().ends_with("<clear>"), "{text:?}");
        assert!(drawn().is_none());
    }

    #[test]
    fn work_that_ends_soon_draws_nothing() {
        let (screen, coming) = Screen::of(&["reading"]);
        let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
        screen.0.lock().unwrap().1 = None;
        draw(target, &coming, Duration::MAX);
        assert_eq!(screen.text(), "");
    }
}
