//! The recorder of `top -p`: `memtrace record` as a process of its own, so that nothing it prints reaches the screen,
//! and a screen that fails cannot harm it.

use crate::progress::{AS_LINES, GOES_ON};
use std::{
    ffi::OsString,
    io::{self, BufRead, BufReader},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// A recorder whose recording is not wanted is asked again after this time, and ends at once. Sooner, it would take both
/// signals for one.
const ASK_AGAIN: Duration = Duration::from_millis(300);

/// After this it is killed.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the line begins with which a recorder says that it records.
const RECORDING: &str = "recording to ";

/// How the line begins with which it names the next command.
const NEXT: &str = "next: ";

/// A running `memtrace record`. Dropping it ends it.
pub(crate) struct Recorder {
    child: Child,
    lines: Receiver<String>,
    reader: Option<JoinHandle<()>>,
    /// All else that it printed.
    pub(crate) printed: Vec<String>,
    is_recording: bool,
}

impl Recorder {
    /// Starts to record `pids` to `output`, with further options of `memtrace record`.
    ///
    /// # Errors
    /// The process or a thread cannot be started.
    pub(crate) fn start(pids: &[u32], output: &Path, options: &[OsString]) -> io::Result<Recorder> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("memtrace").arg("record").args(options);
        for pid in pids {
            command.arg("-p").arg(pid.to_string());
        }
        command
            .arg("-o")
            .arg(output)
            .env(AS_LINES, "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let parent = std::process::id();
        // SAFETY: the calls are async-signal-safe, and nothing allocates.
        unsafe {
            command.pre_exec(move || {
                // Keys are meant for the screen, and so is the end of the terminal.
                libc::setsid();
                // If the screen is killed, nobody would end the recording.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                if libc::getppid().cast_unsigned() != parent {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                Ok(())
            });
        }
        let mut child = command.spawn()?;
        let (sender, lines) = channel();
        let reader = match child.stderr.take() {
            Some(stderr) => Some(thread::Builder::new().name("messages".to_owned()).spawn(
                move || {
                    for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                        let line = String::from_utf8_lossy(&line).into_owned();
                        if sender.send(line).is_err() {
                            return;
                        }
                    }
                },
            )?),
            None => None,
        };
        Ok(Recorder {
            child,
            lines,
            reader,
            printed: Vec::new(),
            is_recording: false,
        })
    }

    /// The last of its new messages, without the program's name.
    pub(crate) fn message(&mut self) -> Option<String> {
        let mut last = None;
        for line in self.lines.try_iter() {
            let message = line.strip_prefix("memtrace: ").unwrap_or(&line).to_owned();
            if message.starts_with(RECORDING) {
                // The screen shows that by itself.
                self.is_recording = true;
                last = Some(String::new());
                continue;
            }
            if !line.ends_with(GOES_ON) {
                self.printed.push(line);
            }
            // The recording may be gone by then.
            if !message.is_empty() && !message.starts_with(NEXT) {
                last = Some(message);
            }
        }
        last
    }

    /// Whether it has begun to record: signals mean something to it from then on.
    pub(crate) fn is_recording(&self) -> bool {
        self.is_recording
    }

    /// Its status, if it has ended; by then, all its messages are known.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok().flatten()?;
        if let Some(reader) = self.reader.take() {
            // It has read all once no process has the pipe open.
            let _ = reader.join();
        }
        Some(status)
    }

    /// Has it search for holders.
    pub(crate) fn search(&self) {
        self.signal(libc::SIGUSR1);
    }

    /// Ends it. `is_kept`: it completes the recording, which takes a second or two; otherwise it only lets go of the
    /// traced processes. Returns its status unless it was made to end.
    pub(crate) fn end(&mut self, is_kept: bool) -> Option<ExitStatus> {
        let begun = Instant::now();
        let mut asked = 0;
        loop {
            if let Some(status) = self.ended() {
                self.message();
                return (asked < 2).then_some(status);
            }
            let is_due = match asked {
                0 => true,
                1 => !is_kept && begun.elapsed() >= ASK_AGAIN,
                _ => false,
            };
            if is_due {
                self.signal(libc::SIGTERM);
                asked += 1;
            }
            if begun.elapsed() >= PATIENCE {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return None;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: no memory is involved; the child has not been waited for, or the call fails.
        unsafe { libc::kill(self.child.id().cast_signed(), signal) };
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if self.reader.is_some() {
            self.end(false);
        }
    }
}
