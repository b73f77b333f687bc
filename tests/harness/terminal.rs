//! A program in its own terminal, driven and read as by a user.

use crate::{running::Output, until};
use std::{
    fs::{File, OpenOptions},
    io::Write,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::{fs::OpenOptionsExt, process::CommandExt},
    },
    process::{Child, Command, ExitStatus, Stdio},
    ptr::{null, null_mut},
};

/// Ctrl-C and Ctrl-Z as a terminal delivers them.
pub const CTRL_C: &str = "\x03";
pub const CTRL_Z: &str = "\x1a";

/// The prompt of a shell here.
const PROMPT: &str = "prompt> ";

/// A shell without the user's settings.
pub fn shell() -> Command {
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "--noediting", "-i"]);
    bash
}

/// The terminal's other end. The program is killed when this is dropped.
pub struct Terminal {
    child: Child,
    keyboard: File,
    screen: Output,
    /// Bytes of the screen before which nothing is awaited any more.
    seen: usize,
}

impl Terminal {
    /// Starts `command` as the leader of a session with a new terminal.
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let [ours, its] = pair();
        command.env("PS1", PROMPT).env("TERM", "dumb");
        for set in [Command::stdin, Command::stdout, Command::stderr] {
            set(command, Stdio::from(its.try_clone().unwrap()));
        }
        // SAFETY: both calls are async-signal-safe; descriptor 0 is the terminal by then.
        unsafe {
            command.pre_exec(|| {
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        // The command holds copies of its end: without them gone the screen would never end.
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let keyboard = File::from(ours);
        Self {
            child,
            screen: Output::of(keyboard.try_clone().unwrap()),
            keyboard,
            seen: 0,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Types.
    #[track_caller]
    pub fn send(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Waits for a text after the one awaited last.
    #[track_caller]
    pub fn await_text(&mut self, text: &str) {
        let seen = self.seen;
        let found = self
            .screen
            .wait(|delivered| Some(seen + delivered.text[seen..].find(text)? + text.len()));
        self.seen = found.unwrap_or_else(|| {
            panic!(
                "no `{text}` in the terminal after byte {seen}:\n{}",
                self.screen.text()
            )
        });
    }

    /// Waits for a shell to be ready for a command.
    #[track_caller]
    pub fn await_prompt(&mut self) {
        self.await_text(PROMPT);
    }

    /// Waits until another process group than the shell's has the terminal: `fg` names the job before it has it.
    #[track_caller]
    pub fn await_foreground_job(&self) {
        until("a job in the foreground", || {
            // SAFETY: takes an integer.
            let group = unsafe { libc::tcgetpgrp(self.keyboard.as_raw_fd()) };
            (group > 0 && group != self.child.id().cast_signed()).then_some(())
        });
    }

    /// Has a shell run a command, and waits until it is ready for another.
    #[track_caller]
    pub fn run(&mut self, line: &str) {
        self.send(&format!("{line}\n"));
        self.await_prompt();
    }

    /// The output on the screen from one point on: 0 or an earlier [`Terminal::seen`].
    pub fn since(&self, start: usize) -> String {
        self.screen.text()[start..self.seen].replace('\r', "")
    }

    /// Waits for output of which `ready` makes something; `None`: there was none in time.
    pub fn await_output<T>(&self, ready: impl Fn(&str) -> Option<T>) -> Option<T> {
        self.screen.wait(|delivered| ready(&delivered.text))
    }

    /// Up to where the screen was read.
    pub fn seen(&self) -> usize {
        self.seen
    }

    /// Closes the terminal for all programs in it. Needs root.
    #[track_caller]
    pub fn hang_up(self) {
        let its = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOCTTY)
            .open(format!("/proc/{}/fd/0", self.pid()))
            .unwrap();
        // SAFETY: takes no argument.
        let result = unsafe { libc::ioctl(its.as_raw_fd(), libc::TIOCVHANGUP) };
        assert_eq!(
            result,
            0,
            "TIOCVHANGUP: {}",
            std::io::Error::last_os_error()
        );
    }

    /// Waits until the program has ended and no process has the terminal open.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        self.screen.wait(|_| None::<()>);
        // The last one that has the terminal open may be about to end.
        until("the end of the program in the terminal", || {
            self.child.try_wait().unwrap()
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Both fail after the end, as they should.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both ends of a new terminal.
fn pair() -> [OwnedFd; 2] {
    let (mut ours, mut its) = (-1, -1);
    // SAFETY: both descriptors are written to live variables; the rest may be null.
    let result = unsafe { libc::openpty(&mut ours, &mut its, null_mut(), null(), null()) };
    assert_eq!(result, 0, "openpty: {}", std::io::Error::last_os_error());
    [ours, its].map(|descriptor| {
        // SAFETY: just opened, without another owner.
        let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
        // SAFETY: takes integers.
        let set = unsafe { libc::fcntl(owned.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
        assert_eq!(set, 0);
        owned
    })
}
