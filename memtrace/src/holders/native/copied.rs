//! A copy of a process at one moment. A helper process makes and removes it ([`copy`]), whatever happens to memtrace
//! meanwhile.

use super::{copy, stop::Stopped};
use crate::helper;
use serde::{Deserialize, Serialize};
use std::{
    io::{self, BufRead, BufReader, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    process::Child,
    time::Duration,
};

/// The hidden subcommand that is the helper.
pub(crate) const SUBCOMMAND: &str = "hold-copy";

/// Why a process is not copied.
#[derive(Debug, thiserror::Error)]
pub(in crate::holders) enum CopyError {
    #[error("{0}")]
    Refused(String),
    #[error("the helper process `memtrace {SUBCOMMAND}` failed: {0}; search again")]
    Helper(#[from] io::Error),
}

/// See the module. It is ended when this is dropped.
pub(in crate::holders) struct Copied {
    made: Made,
    helper: Helper,
}

/// The helper's messages, one per line.
#[derive(Serialize, Deserialize)]
pub(super) enum Message {
    Made(Made),
    Failed(String),
    Gone(Gone),
}

#[derive(Serialize, Deserialize)]
pub(super) struct Made {
    /// The copy's number.
    pub(super) copy: u32,
    /// The program's threads as they were.
    pub(super) threads: Vec<Stopped>,
    pub(super) stopped: Duration,
}

/// How a copy ended.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in crate::holders) struct Gone {
    /// The longest stop of the program.
    pub(in crate::holders) longest_stop: Duration,
    /// It leaves nothing in the table of processes.
    pub(in crate::holders) is_reaped: bool,
}

impl Copied {
    /// Copies a process.
    ///
    /// # Errors
    /// It cannot be stopped, or may not or cannot make a process.
    pub(in crate::holders) fn new(pid: u32) -> Result<Self, CopyError> {
        Self::by(|line| {
            let mut command = helper::command(SUBCOMMAND, line);
            command.arg(pid.to_string()).spawn().map(Some)
        })
    }

    /// As [`Copied::new`], by a helper that is started with its end of the line.
    pub(super) fn by(
        start: impl FnOnce(UnixStream) -> io::Result<Option<Child>>,
    ) -> Result<Self, CopyError> {
        let (line, other) = UnixStream::pair()?;
        let mut helper = Helper {
            child: start(other)?,
            line: BufReader::new(line),
        };
        match helper.hear()? {
            Message::Made(made) => Ok(Self { made, helper }),
            Message::Failed(why) => Err(CopyError::Refused(why)),
            Message::Gone(_) => Err(io::Error::from(io::ErrorKind::InvalidData).into()),
        }
    }

    /// The process that has the memory.
    pub(in crate::holders) fn pid(&self) -> u32 {
        self.made.copy
    }

    /// The program's threads at the moment of the copy.
    pub(in crate::holders) fn threads(&self) -> &[Stopped] {
        &self.made.threads
    }

    /// For how long the program was stopped.
    pub(in crate::holders) fn stopped(&self) -> Duration {
        self.made.stopped
    }

    /// Ends the copy. If the helper was killed, there is nothing to report.
    pub(in crate::holders) fn end(mut self) -> Option<Gone> {
        self.helper.release()
    }
}

struct Helper {
    /// `None`: it is a thread of a test.
    child: Option<Child>,
    line: BufReader<UnixStream>,
}

impl Helper {
    fn hear(&mut self) -> io::Result<Message> {
        let mut text = String::new();
        match self.line.read_line(&mut text)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(serde_json::from_str(&text)?),
        }
    }

    /// Has it take the copy away, and waits for that.
    fn release(&mut self) -> Option<Gone> {
        let _ = self.line.get_ref().shutdown(Shutdown::Write);
        match self.hear() {
            Ok(Message::Gone(gone)) => Some(gone),
            _ => None,
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.release();
        if let Some(mut child) = self.child.take() {
            // Its messages have reported everything; the status adds nothing.
            let _ = child.wait();
        }
    }
}

impl Message {
    pub(super) fn send(&self, mut line: &UnixStream) -> io::Result<()> {
        let text = serde_json::to_string(self)?;
        writeln!(line, "{text}")
    }
}

/// The helper's life: see [`SUBCOMMAND`].
pub(crate) fn hold_copy(pid: u32) {
    // No `pkill memtrace` means it.
    copy::keep(pid, &helper::begin(c"hold-copy"));
}

/// The registers of a thread on their way.
pub(super) mod words {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::mem;

    type Words = [u64; size_of::<libc::user_regs_struct>() / size_of::<u64>()];

    pub(in super::super) fn serialize<S: Serializer>(
        registers: &Option<libc::user_regs_struct>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        // SAFETY: it consists of words.
        let words = registers.map(|it| unsafe { mem::transmute::<_, Words>(it) });
        words.serialize(to)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<libc::user_regs_struct>, D::Error> {
        let words = Option::<Words>::deserialize(from)?;
        // SAFETY: as above; any words are registers.
        Ok(words.map(|words| unsafe { mem::transmute::<Words, _>(words) }))
    }
}
