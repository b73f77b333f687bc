//! The collector's end of the line to the pauser.

use std::{
    collections::VecDeque,
    io::{self, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::Child,
    time::{Duration, Instant},
};

use super::wire::{Inbox, Notice, Request};
use crate::{
    helper,
    process::{tasks, weight},
};

/// The hidden subcommand that is the pauser.
pub(crate) const SUBCOMMAND: &str = "pause";

/// Time limit for the pauser to start, and to read a message.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time limit for later answers: until the pauser answers, it continues no thread.
const TO_ANSWER: Duration = Duration::from_secs(2);

/// Time limit for an execve(2) that was running when memtrace came. After it, the process is not traced.
const TO_EXECUTE: Duration = Duration::from_secs(1);

/// Why a process cannot be held.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PauseError {
    #[error("process {tgid} is already traced by `{name}` ({tracer})")]
    TracedAlready {
        tgid: u32,
        tracer: u32,
        name: String,
    },
    #[error("process {tgid} cannot be traced by ptrace: {source}")]
    Refused { tgid: u32, source: io::Error },
    #[error("the helper process `memtrace pause` does not respond: {0}")]
    Gone(#[source] io::Error),
}

/// Requests from the collector to a pauser of threads.
pub(crate) trait Pause {
    /// Begins to trace every thread of a process, and those that it makes. No thread stops for it.
    ///
    /// # Errors
    /// Another process traces it already, or tracing is not permitted.
    fn seize(&mut self, tgid: u32) -> Result<(), PauseError>;

    /// Continues a thread that waits, or is about to.
    ///
    /// # Errors
    /// The pauser is gone: the kernel has let every thread go.
    fn let_continue(&mut self, tid: u32) -> Result<(), PauseError>;

    /// Whether it traces a process at this moment.
    fn traces(&self, tgid: u32) -> bool;

    /// Releases a process to another tracer. Its threads run on.
    ///
    /// # Errors
    /// As [`Pause::let_continue`].
    fn release(&mut self, tgid: u32) -> Result<(), PauseError>;

    /// Stops every thread of a process, which takes a moment, until [`Pause::go_on`]; for 10 seconds at most.
    ///
    /// # Errors
    /// As [`Pause::let_continue`].
    fn halt(&mut self, tgid: u32) -> Result<(), PauseError>;

    /// Resumes a halted process.
    ///
    /// # Errors
    /// As [`Pause::let_continue`].
    fn go_on(&mut self, tgid: u32) -> Result<(), PauseError>;

    /// The pauser's own actions since the last call.
    ///
    /// # Errors
    /// As [`Pause::let_continue`].
    fn notices(&mut self) -> Result<Vec<Notice>, PauseError>;

    /// Continues the pauser, in case it was stopped: threads would wait for it without limit.
    fn wake(&self);
}

/// Two connected sockets. To be made before the programs are loaded: when the collector dies, its
/// descriptors are closed in their order, and each of a probe takes its time.
pub(crate) struct Line {
    own: UnixStream,
    other: UnixStream,
}

impl Line {
    pub(crate) fn new() -> io::Result<Self> {
        let (own, other) = UnixStream::pair()?;
        Ok(Self { own, other })
    }
}

/// A running pauser. Dropping it lets every thread go.
pub(crate) struct Pauser {
    child: Child,
    socket: UnixStream,
    inbox: Inbox,
    /// Read while another answer was awaited.
    notices: VecDeque<Notice>,
    has_answered: bool,
}

impl Pauser {
    /// Starts one that finds its [`super::Stops`] by the descriptors `maps`.
    pub(crate) fn spawn(line: Line, maps: &[OwnedFd], with_children: bool) -> io::Result<Self> {
        let maps: Vec<i32> = maps.iter().map(AsRawFd::as_raw_fd).collect();
        let mut command = helper::command(SUBCOMMAND, line.other);
        command
            .args(with_children.then_some("--with-children"))
            .args(maps.iter().map(i32::to_string));
        // SAFETY: the calls are async-signal-safe, and nothing allocates.
        unsafe {
            command.pre_exec(move || {
                // Threads of traced processes wait for it.
                let _ = weight::raise();
                for &map in &maps {
                    // Not closed by exec.
                    if libc::fcntl(map, libc::F_SETFD, 0) < 0 {
                        return Err(io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        let child = command.spawn()?;
        line.own.set_read_timeout(Some(PATIENCE))?;
        line.own.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            child,
            socket: line.own,
            inbox: Inbox::default(),
            notices: VecDeque::new(),
            has_answered: false,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn send(&mut self, request: Request) -> io::Result<()> {
        self.socket.write_all(&request.encode())
    }

    /// Reads new data, or waits for some. False if there was nothing.
    fn read(&mut self, wait: bool) -> io::Result<bool> {
        let mut buffer = [0; 1024];
        let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
        // SAFETY: the buffer lives and has that many bytes.
        let read = unsafe {
            libc::recv(
                self.socket.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                flags,
            )
        };
        match usize::try_from(read) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                self.inbox.fill(&mut &buffer[..read])?;
                self.notices.extend(self.inbox.notices());
                if !self.has_answered {
                    self.socket.set_read_timeout(Some(TO_ANSWER))?;
                    self.has_answered = true;
                }
                Ok(true)
            }
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock && !wait => Ok(false),
                error if error.kind() == io::ErrorKind::Interrupted => Ok(true),
                error => Err(error),
            },
        }
    }
}

/// Waits for the end of an execve(2); false: it did not end in time.
fn has_executed(tgid: u32) -> bool {
    let begun = Instant::now();
    while tasks::is_executing(tgid) {
        if begun.elapsed() >= TO_EXECUTE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

impl Pause for Pauser {
    fn seize(&mut self, tgid: u32) -> Result<(), PauseError> {
        // The pauser would wait for the execve, and every thread that it keeps would wait for the pauser.
        if !has_executed(tgid) {
            let source = io::Error::new(io::ErrorKind::TimedOut, "its execve does not end");
            return Err(PauseError::Refused { tgid, source });
        }
        self.send(Request::Seize { tgid })
            .map_err(PauseError::Gone)?;
        loop {
            let answer =
                |notice: &Notice| matches!(notice, Notice::Seized { tgid: of, .. } if *of == tgid);
            if let Some(at) = self.notices.iter().position(answer)
                && let Some(Notice::Seized { errno, .. }) = self.notices.remove(at)
            {
                return match (errno, tasks::tracer_of(tgid)) {
                    (0, _) => Ok(()),
                    (_, Some(tracer)) if tracer != 0 => Err(PauseError::TracedAlready {
                        tgid,
                        tracer,
                        name: tasks::name_of(tracer),
                    }),
                    (errno, _) => Err(PauseError::Refused {
                        tgid,
                        source: io::Error::from_raw_os_error(errno),
                    }),
                };
            }
            if let Err(error) = self.read(true) {
                // The kernel detaches a dead tracer from all threads.
                let _ = self.child.kill();
                return Err(PauseError::Gone(error));
            }
        }
    }

    fn let_continue(&mut self, tid: u32) -> Result<(), PauseError> {
        self.send(Request::Continue { tid })
            .map_err(PauseError::Gone)
    }

    fn traces(&self, tgid: u32) -> bool {
        tasks::tracer_of(tgid) == Some(self.pid())
    }

    fn release(&mut self, tgid: u32) -> Result<(), PauseError> {
        self.send(Request::Leave { tgid }).map_err(PauseError::Gone)
    }

    fn halt(&mut self, tgid: u32) -> Result<(), PauseError> {
        self.send(Request::Halt { tgid }).map_err(PauseError::Gone)
    }

    fn go_on(&mut self, tgid: u32) -> Result<(), PauseError> {
        self.send(Request::GoOn { tgid }).map_err(PauseError::Gone)
    }

    fn notices(&mut self) -> Result<Vec<Notice>, PauseError> {
        while self.read(false).map_err(PauseError::Gone)? {}
        Ok(self.notices.drain(..).collect())
    }

    fn wake(&self) {
        // SAFETY: no memory is involved; the child is not reaped yet. One that runs ignores it.
        unsafe { libc::kill(self.pid().cast_signed(), libc::SIGCONT) };
    }
}

impl Drop for Pauser {
    fn drop(&mut self) {
        // The end of the stream is its word to go.
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        // The only thing left is to exit; the status is irrelevant.
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            self.wake();
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
