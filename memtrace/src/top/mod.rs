//! The screen of `memtrace top`: live memory of a process that is being recorded, or of a recording. It reads what
//! `memtrace record` writes, and knows nothing of tracing.

mod draw;
#[cfg(test)]
mod fixture;
mod keyboard;
mod keys;
mod reader;
mod reading;
mod recorder;
mod rows;
mod screen;
mod state;

use std::{
    ffi::OsString,
    io::{self, Write},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use ratatui::crossterm::event::Event;

pub(crate) use self::screen::give_back;
use self::{
    draw::Style,
    keyboard::Keyboard,
    reader::Reader,
    recorder::Recorder,
    screen::{Screen, ScreenError},
    state::{Action, Origin, Phase, State},
};
use crate::{
    collect::interruption::Interruption,
    progress::{Stderr, say},
    recording::{self, Recording},
};

/// How often the loop looks for anything but keys, which it takes at once.
const LOOK: Duration = Duration::from_millis(100);

/// What is shown.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    File(PathBuf),
    /// Processes that are recorded for it.
    Live {
        pids: Vec<u32>,
        /// Where the recording is kept; `None`: nowhere.
        output: Option<PathBuf>,
        /// Overwrite it.
        force: bool,
        /// Further options of `memtrace record`.
        options: Vec<OsString>,
    },
}

/// Why nothing can be shown any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TopError {
    #[error(transparent)]
    Screen(#[from] ScreenError),
    #[error(transparent)]
    Recording(#[from] recording::Error),
    #[error("cannot {what}: {source}")]
    System {
        what: &'static str,
        source: io::Error,
    },
}

fn system(what: &'static str) -> impl Fn(io::Error) -> TopError {
    move |source| TopError::System { what, source }
}

/// Shows a source until the user or a signal ends it. The terminal is then as it was before. `may_colour`: the user does
/// not object to colours.
///
/// # Errors
/// There is no terminal, or the recording cannot be made or read.
pub(crate) fn run(source: Source, may_colour: bool) -> Result<ExitCode, TopError> {
    screen::check()?;
    let style = Style::new(may_colour);
    match source {
        Source::File(path) => {
            // An error is plain text while there is no screen.
            Recording::open(&path)?;
            let state = State::new(Origin::File(path.display().to_string()));
            let interruption = Interruption::begin();
            show(state, style, &path, None, &interruption)?;
            Ok(ExitCode::SUCCESS)
        }
        Source::Live {
            pids,
            output,
            force,
            options,
        } => record(pids, output, force, options, style),
    }
}

/// Records processes and shows them meanwhile.
fn record(
    pids: Vec<u32>,
    output: Option<PathBuf>,
    force: bool,
    mut options: Vec<OsString>,
    style: Style,
) -> Result<ExitCode, TopError> {
    if force {
        options.push("--force".into());
    }
    let is_kept = output.is_some();
    // It is removed when this returns.
    let mut folder = None;
    let path = if let Some(path) = output {
        recording::may_record(&path, force)?;
        path
    } else {
        let made = tempfile::Builder::new().prefix("memtrace-top-").tempdir();
        let made = made.map_err(system("make a folder for the recording"))?;
        folder.insert(made).path().join("top.mtr")
    };
    // Before the recorder, which is not to outlive this process.
    let interruption = Interruption::begin();
    let recorder = Recorder::start(&pids, &path, &options);
    let mut recorder = recorder.map_err(system("start the recorder"))?;
    let shown = show(
        State::new(Origin::Live(pids)),
        style,
        &path,
        Some(&mut recorder),
        &interruption,
    );
    // What it said while there was a screen is of no interest, unless it has ended by itself.
    let before = match recorder.ended() {
        Some(_) => 0,
        None => recorder.printed.len(),
    };
    // A recorder that is ended while it sets probes fails, as it should.
    let may_fail = !recorder.is_recording() && recorder.ended().is_none();
    if is_kept && recorder.ended().is_none() && !interruption.has_come() {
        say("completing the recording");
    }
    let status = recorder.end(is_kept);
    shown?;
    let failed = !may_fail && status.is_some_and(|status| !status.success());
    let said = match (failed, is_kept) {
        (true, _) => &recorder.printed[..],
        (false, true) => recorder.printed.get(before..).unwrap_or_default(),
        (false, false) => &[],
    };
    for line in said {
        // If standard error is closed, the line is lost.
        let _ = Stderr.write_all(format!("{line}\n").as_bytes());
    }
    if failed && let Some(signal) = status.and_then(|status| status.signal()) {
        say(&format!("the recorder was killed by signal {signal}"));
    }
    Ok(match failed {
        true => ExitCode::from(2),
        false => ExitCode::SUCCESS,
    })
}

/// The screen, until the user quits, a signal comes, or the recorder fails.
fn show(
    mut state: State,
    style: Style,
    path: &Path,
    mut recorder: Option<&mut Recorder>,
    interruption: &Interruption,
) -> Result<(), TopError> {
    let mut screen = Screen::take()?;
    let keyboard = Keyboard::start().map_err(system("start a thread"))?;
    let mut reader = None;
    let mut is_changed = true;
    while !interruption.has_come() {
        if let Some(recorder) = recorder.as_deref_mut() {
            if state.phase != Phase::Ended
                && let Some(status) = recorder.ended()
            {
                if !status.success() {
                    return Ok(());
                }
                state.phase = Phase::Ended;
                is_changed = true;
            }
            if let Some(message) = recorder.message() {
                state.message = message;
                is_changed = true;
            }
            if state.phase == Phase::Starting && recorder.is_recording() {
                state.phase = Phase::Recording;
                is_changed = true;
            }
        }
        // Before the recorder has begun, there may be a file that it is about to overwrite.
        if reader.is_none() && recorder.as_deref().is_none_or(Recorder::is_recording) {
            let started = Reader::start(path.to_owned(), recorder.is_some());
            reader = Some(started.map_err(system("start a thread"))?);
        }
        let newest = reader.as_ref().map(Reader::newest).transpose()?;
        if let Some(reading) = newest.flatten() {
            state.take(reading);
            is_changed = true;
        }
        if std::mem::take(&mut is_changed) {
            let drawn = screen
                .terminal
                .draw(|frame| draw::draw(frame, &mut state, style));
            drawn.map_err(system("draw"))?;
        }
        let event = keyboard.next(LOOK).map_err(system("read the keyboard"))?;
        is_changed = event.is_some();
        if let Some(Event::Key(key)) = event {
            match state.press(key) {
                Action::Nothing => {}
                Action::Quit => return Ok(()),
                Action::Suspend => screen.suspend().map_err(system("use the terminal"))?,
                Action::Search => {
                    if let Some(recorder) = recorder.as_deref_mut() {
                        recorder.search();
                    }
                }
            }
        }
    }
    Ok(())
}
