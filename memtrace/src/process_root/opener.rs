//! Helper processes that open files, and for how long memtrace waits for them: a user's file system or server can leave
//! whoever asks it waiting for ever, even after SIGKILL.

use std::{
    collections::BTreeMap,
    io,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::Child,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::wire::{Answer, Found, Request, receive, send};

/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a helper may take to start, which depends on no user.
const START: Duration = Duration::from_secs(10);

/// Requests of one user and kind that may stay without an answer, before no more are made.
const UNANSWERED: u32 = 3;

/// Helpers without a request.
static IDLE: Mutex<Vec<Opener>> = Mutex::new(Vec::new());

/// Requests that were not answered in time, by user and whether they read memory: a process whose memory does not answer
/// is inspected all the same.
static SLOW: Mutex<BTreeMap<(Option<u32>, bool), u32>> = Mutex::new(BTreeMap::new());

/// Killed ones, to be reaped.
static KILLED: Mutex<Vec<Child>> = Mutex::new(Vec::new());

struct Opener {
    line: UnixStream,
    /// `None`: it is a thread of a test.
    child: Option<Child>,
}

/// Found, with the bytes and the descriptor that belong to it.
pub(super) type Served = (Found, Vec<u8>, Option<OwnedFd>);

/// `user`: whose file systems it may wait for; `None`: the administrator's.
///
/// # Errors
/// As the request's; `TimedOut` if it takes too long, or others of this user did.
pub(super) fn ask(
    user: Option<u32>,
    request: &Request,
    folder: Option<BorrowedFd>,
    path: &[u8],
) -> io::Result<Served> {
    let kind = (user, request.operation.reads_memory());
    if locked(&SLOW)
        .get(&kind)
        .is_some_and(|slow| *slow >= UNANSWERED)
    {
        return Err(too_slow());
    }
    let idle = locked(&IDLE).pop();
    let opener = idle.map_or_else(Opener::start, Ok)?;
    match opener.ask(request, folder, path) {
        Ok((answer, bytes, fd)) => {
            locked(&IDLE).push(opener);
            Ok((answer?, bytes, fd))
        }
        Err(error) => {
            opener.abandon();
            match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    *locked(&SLOW).entry(kind).or_default() += 1;
                    Err(too_slow())
                }
                _ => Err(error),
            }
        }
    }
}

fn too_slow() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "the user's file system does not answer in time",
    )
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Opener {
    fn start() -> io::Result<Self> {
        let (line, other) = UnixStream::pair()?;
        let opener = Self {
            line,
            child: start(other)?,
        };
        opener.line.set_read_timeout(Some(START))?;
        receive::<()>(&opener.line)?;
        opener.line.set_read_timeout(Some(PATIENCE))?;
        opener.line.set_write_timeout(Some(PATIENCE))?;
        Ok(opener)
    }

    fn ask(
        &self,
        request: &Request,
        folder: Option<BorrowedFd>,
        path: &[u8],
    ) -> io::Result<(Answer, Vec<u8>, Option<OwnedFd>)> {
        send(&self.line, request, path, folder)?;
        receive(&self.line)
    }

    /// It may wait for ever; nobody waits for it.
    fn abandon(self) {
        let mut killed = locked(&KILLED);
        killed.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
        if let Some(mut child) = self.child {
            let _ = child.kill();
            killed.push(child);
        }
    }
}

#[cfg(not(test))]
fn start(line: UnixStream) -> io::Result<Option<Child>> {
    crate::helper::start(super::serve::SUBCOMMAND, &line).map(Some)
}

/// This program has no subcommands.
#[cfg(test)]
fn start(line: UnixStream) -> io::Result<Option<Child>> {
    std::thread::spawn(move || super::serve::serve(&line));
    Ok(None)
}
