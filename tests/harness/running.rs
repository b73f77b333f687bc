//! A process that a test started: its output as it comes, its end with a
//! deadline. Knows nothing of memtrace.

use crate::deadline;
use std::{
    io::{Read, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::{Duration, Instant},
};

/// The output read from a pipe so far.
#[derive(Default)]
pub(crate) struct Delivered {
    pub(crate) text: String,
    ended: bool,
}

/// A pipe or terminal read by a thread of its own, so that no writer blocks on a full one.
#[derive(Clone, Default)]
pub(crate) struct Output(Arc<(Mutex<Delivered>, Condvar)>);

impl Output {
    pub(crate) fn of(mut pipe: impl Read + Send + 'static) -> Self {
        let output = Self::default();
        let writer = output.clone();
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            // A character may come in two parts: the first one waits for the rest.
            let mut waiting = Vec::new();
            loop {
                let n = pipe.read(&mut buffer).unwrap_or(0);
                waiting.extend_from_slice(&buffer[..n]);
                let whole = match std::str::from_utf8(&waiting) {
                    Err(error) if n > 0 && error.error_len().is_none() => error.valid_up_to(),
                    _ => waiting.len(),
                };
                let mut delivered = writer.0.0.lock().unwrap();
                delivered
                    .text
                    .push_str(&String::from_utf8_lossy(&waiting[..whole]));
                waiting.drain(..whole);
                delivered.ended = n == 0;
                writer.0.1.notify_all();
                if n == 0 {
                    return;
                }
            }
        });
        output
    }

    /// Waits until `ready` finds a match, the pipe ends or the deadline passes.
    pub(crate) fn wait<T>(&self, ready: impl Fn(&Delivered) -> Option<T>) -> Option<T> {
        let end = Instant::now() + deadline();
        let mut delivered = self.0.0.lock().unwrap();
        loop {
            let found = ready(&delivered);
            let left = end.saturating_duration_since(Instant::now());
            if found.is_some() || delivered.ended || left.is_zero() {
                return found;
            }
            delivered = self.0.1.wait_timeout(delivered, left).unwrap().0;
        }
    }

    pub(crate) fn text(&self) -> String {
        self.0.0.lock().unwrap().text.clone()
    }
}

/// How a process ended and all it wrote.
#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    /// # Panics
    /// With all the process wrote, unless it ended with this status.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{self:#?}");
        self
    }
}

/// A running process; killed, with its process group, when dropped.
pub struct Running {
    child: Child,
    stdout: Output,
    stderr: Output,
    finished: bool,
}

impl Running {
    /// Starts `command` in a process group of its own, with pipes for all three
    /// standard streams.
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdout = Output::of(child.stdout.take().unwrap());
        let stderr = Output::of(child.stderr.take().unwrap());
        Self {
            child,
            stdout,
            stderr,
            finished: false,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line on stdout that starts like this, and returns it.
    #[track_caller]
    pub fn await_stdout(&self, start: &str) -> String {
        self.await_line(&self.stdout, start)
    }

    /// Waits for a line on stderr that starts like this, and returns it.
    #[track_caller]
    pub fn await_stderr(&self, start: &str) -> String {
        self.await_line(&self.stderr, start)
    }

    #[track_caller]
    fn await_line(&self, output: &Output, start: &str) -> String {
        output
            .wait(|delivered| {
                let whole = &delivered.text[..delivered.text.rfind('\n')? + 1];
                let mut lines = whole.lines();
                lines.find(|line| line.starts_with(start)).map(String::from)
            })
            .unwrap_or_else(|| {
                panic!(
                    "no line `{start}…`\nstdout: {}\nstderr: {}",
                    self.stdout.text(),
                    self.stderr.text()
                )
            })
    }

    /// Writes to its stdin.
    #[track_caller]
    pub fn send(&mut self, text: &str) {
        let stdin = self.child.stdin.as_mut().expect("stdin is still open");
        stdin.write_all(text.as_bytes()).unwrap();
    }

    /// Ends its stdin.
    pub fn close_stdin(&mut self) {
        self.child.stdin = None;
    }

    /// Sends a signal to the process alone.
    #[track_caller]
    pub fn signal(&self, signal: i32) {
        kill(self.pid() as i32, signal);
    }

    /// Sends a signal to its process group, as a terminal does.
    #[track_caller]
    pub fn signal_group(&self, signal: i32) {
        kill(-(self.pid() as i32), signal);
    }

    /// Fails unless it runs.
    #[track_caller]
    pub fn expect_alive(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(
            ended.is_none(),
            "ended: {ended:?}\nstderr: {}",
            self.stderr.text()
        );
    }

    /// Waits for its end. Other members of its process group live on until the value is dropped.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        self.end_within(deadline())
    }

    /// As [`Running::end`], with another deadline.
    #[track_caller]
    pub fn end_within(&mut self, limit: Duration) -> ExitStatus {
        let pidfd = pidfd(self.pid());
        let mut poll = libc::pollfd {
            fd: pidfd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid pollfd, whose descriptor `pidfd` keeps open.
        let ready = unsafe { libc::poll(&mut poll, 1, limit.as_millis() as i32) };
        assert_eq!(
            ready,
            1,
            "did not end within {limit:?}\nstdout: {}\nstderr: {}",
            self.stdout.text(),
            self.stderr.text()
        );
        self.finished = true;
        self.child.wait().unwrap()
    }

    /// Waits for its end and that of its output.
    #[track_caller]
    pub fn wait(self) -> Finished {
        self.wait_within(deadline())
    }

    /// As [`Running::wait`], with another deadline.
    #[track_caller]
    pub fn wait_within(mut self, deadline: Duration) -> Finished {
        let status = self.end_within(deadline);
        self.stdout.wait(|_| None::<()>);
        self.stderr.wait(|_| None::<()>);
        Finished {
            status,
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its children are in its group, and must not outlive the test either. SAFETY: no memory is
        // involved. The group exists at least until the child is waited for; after that, its number
        // is not reused before every member is gone.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        if !self.finished {
            self.child.wait().unwrap();
        }
    }
}

#[track_caller]
fn kill(pid: i32, signal: i32) {
    // SAFETY: no memory is involved; the process has not been waited for, so the pid is its own.
    let result = unsafe { libc::kill(pid, signal) };
    assert_eq!(result, 0, "kill: {}", std::io::Error::last_os_error());
}

fn pidfd(pid: u32) -> OwnedFd {
    // SAFETY: takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    assert!(fd >= 0, "pidfd_open: {}", std::io::Error::last_os_error());
    // SAFETY: a descriptor just opened, without another owner.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}

/// 128 + signal if a signal ended it, as in shells.
pub fn shell_code(status: ExitStatus) -> i32 {
    status
        .code()
        .or(status.signal().map(|signal| 128 + signal))
        .unwrap()
}
