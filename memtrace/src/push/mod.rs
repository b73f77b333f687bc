//! Sends profiles of a recording to a server while it is being written. The recording is read as `memtrace report` reads
//! it, by a thread of its own, so no event waits for a server.

mod message;
mod sent;
mod server;

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use self::sent::Sent;
pub(crate) use self::server::{Header, Server};
use crate::{
    recording::{self, At, Recording},
    render,
    units::{plural, size},
};

/// After a push the thread rests for this many times as long as the push took.
const REST: u32 = 9;
/// Bytes of the largest recording that is read: all its sites are in memory meanwhile.
const LARGEST: u64 = 512 << 20;
/// The thread's priority: reading a recording must not take time from the traced program.
const NICE: i32 = 10;

/// How often the end waits for the thread and for signals.
const LOOK: Duration = Duration::from_millis(10);

/// Where to send profiles, and how often.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) server: Server,
    pub(crate) every: Duration,
}

/// The thread. If it is dropped, nothing more is sent.
#[derive(Debug)]
pub(crate) struct Pusher {
    finish: Sender<()>,
    thread: JoinHandle<Counts>,
}

/// Profiles sent.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    server: String,
    sent: u64,
    failed: u64,
    /// Why the last push failed, if it did: the server lacks something.
    lacking: Option<String>,
}

/// Why a profile was not sent.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(
        "the recording has {}, and at most {} are read for a profile: record fewer processes, or for a shorter time",
        size(*.0), size(LARGEST)
    )]
    TooLarge(u64),
    #[error("cannot read the recording: {0}")]
    Read(#[from] io::Error),
    #[error(transparent)]
    Recording(#[from] recording::Error),
    #[error(transparent)]
    Render(#[from] render::Error),
    #[error(transparent)]
    Server(#[from] server::Error),
}

impl Pusher {
    /// Begins to send profiles of the recording at `path`.
    pub(crate) fn start(options: Options, path: &Path) -> io::Result<Self> {
        let (finish, finished) = channel();
        let path = path.to_owned();
        let thread = std::thread::Builder::new()
            .name("memtrace-push".to_owned())
            .spawn(move || {
                // SAFETY: no memory is involved. 0 is this thread alone; without it the thread only runs earlier.
                unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
                run(&options, path, &finished)
            })?;
        Ok(Self { finish, thread })
    }

    /// Sends the end of the recording, which is complete. A server may take its time: `None` if nobody wants to wait any
    /// longer.
    pub(crate) fn finish(self, is_interrupted: impl Fn() -> bool) -> Option<Counts> {
        // A thread that has ended has panicked, which `join` returns.
        let _ = self.finish.send(());
        while !self.thread.is_finished() {
            if is_interrupted() {
                return None;
            }
            std::thread::sleep(LOOK);
        }
        match self.thread.join() {
            Ok(counts) => Some(counts),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn run(options: &Options, path: PathBuf, finished: &Receiver<()>) -> Counts {
    let mut push = Push {
        server: &options.server,
        path,
        sent: Sent::default(),
        counts: Counts {
            server: options.server.to_string(),
            ..Counts::default()
        },
    };
    let mut wait = options.every;
    loop {
        match finished.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) => {
                let begin = Instant::now();
                push.now();
                wait = options.every.max(begin.elapsed() * REST);
            }
            Ok(()) => {
                push.now();
                return push.counts;
            }
            Err(RecvTimeoutError::Disconnected) => return push.counts,
        }
    }
}

struct Push<'a> {
    server: &'a Server,
    path: PathBuf,
    sent: Sent,
    counts: Counts,
}

impl Push<'_> {
    fn now(&mut self) {
        match self.send() {
            Ok(false) => {}
            Ok(true) => {
                self.counts.sent += 1;
                self.counts.lacking = None;
            }
            Err(error) => {
                self.counts.failed += 1;
                if self.counts.failed == 1 {
                    tracing::warn!(
                        "no profile sent to `{}`: {error}; recording continues, and the next profile has \
                         everything that this one lacks",
                        self.server
                    );
                }
                self.counts.lacking = Some(error.to_string());
            }
        }
    }

    /// Sends what is new; false if nothing is.
    fn send(&mut self) -> Result<bool, Error> {
        let bytes = std::fs::metadata(&self.path)?.len();
        if bytes > LARGEST {
            return Err(Error::TooLarge(bytes));
        }
        let mut snapshot = Recording::open(&self.path)?.snapshot(At::End)?;
        let sent = self.sent.leave_out(&mut snapshot);
        let is_new = self.server.send(&snapshot)?;
        self.sent = sent;
        Ok(is_new)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts {
            server,
            sent,
            failed,
            lacking,
        } = self;
        write!(f, "{} sent to `{server}`", plural(*sent, "profile"))?;
        if *failed > 0 {
            write!(f, "; {} failed", plural(*failed, "attempt"))?;
            match lacking {
                None => write!(f, ", and nothing is lost: later profiles have everything")?,
                Some(error) => write!(f, ", also the last one: {error}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_say_what_the_server_has() {
        let counts = |sent, failed, lacking: Option<&str>| {
            let counts = Counts {
                server: "http://h".into(),
                sent,
                failed,
                lacking: lacking.map(Into::into),
            };
            counts.to_string()
        };
        assert_eq!(counts(1, 0, None), "1 profile sent to `http://h`");
        let late = counts(2, 1, None);
        assert!(
            late.contains("1 attempt failed, and nothing is lost"),
            "{late}"
        );
        let none = counts(0, 3, Some("no route"));
        assert!(none.ends_with("also the last one: no route"), "{none}");
    }
}
