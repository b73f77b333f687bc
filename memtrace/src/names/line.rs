//! The line between memtrace and the process that reads symbols: each message is a line of JSON, and a file travels
//! with the request that needs it.

use std::{
    fs::File,
    io::{self, ErrorKind, Write},
    os::{fd::AsFd, unix::net::UnixStream},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    frames::Frame,
    helper,
    symbolize::{
        Detail,
        debug_files::{Proof, Wanted},
    },
};

/// Longest message, bytes.
const LONGEST: usize = 16 << 20;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// With its file; answered by [`Answer::Module`].
    Module {
        module: u32,
        /// As its process sees it.
        path: String,
        build_id: Option<String>,
        detail: Detail,
    },
    /// With the file; answered by [`Answer::Taken`].
    DebugFile { module: u32, proof: Proof },
    /// Answered by one [`Answer::Frames`] for each place.
    Frames { module: u32, places: Vec<Place> },
    /// A perf map as it is now, with its file; answered by [`Answer::Taken`].
    Map {
        tgid: u32,
        path: String,
        was_rewritten: bool,
    },
    /// Answered by one [`Answer::Frames`] for each address.
    Generated { tgid: u32, addresses: Vec<u64> },
    /// Answered by one [`Answer::Readable`] for each.
    Demangle { names: Vec<String> },
    /// The process has ended. Not answered.
    Forget { tgid: u32 },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Module(Wanted),
    /// The file belongs to the module; there is something new in the map.
    Taken(bool),
    Frames(Named),
    Readable(String),
}

/// A place in a module, bytes; of a return address, the address minus one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Place {
    FileOffset(u64),
    /// As the file means it.
    VirtOffset(u64),
}

/// The names of a place: never empty, as `Symbolizer::frames`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Named {
    pub(crate) frames: Vec<Frame>,
    /// There may be more in symbols that are too large to be read.
    pub(crate) is_cut: bool,
}

/// One end.
pub(super) struct Line {
    socket: UnixStream,
    /// Received, and not yet taken.
    bytes: Vec<u8>,
    /// Came with the last request.
    file: Option<File>,
}

impl Line {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self {
            socket,
            bytes: Vec::new(),
            file: None,
        }
    }

    /// # Errors
    /// The other end is gone, or did not read in time.
    pub(super) fn send(&self, message: &impl Serialize, file: Option<&File>) -> io::Result<()> {
        let mut text = serde_json::to_vec(message)?;
        text.push(b'\n');
        let sent = helper::send(&self.socket, &text, file.map(AsFd::as_fd))?;
        (&self.socket).write_all(text.get(sent..).unwrap_or_default())
    }

    /// The next message; `None` at the end of the line.
    ///
    /// # Errors
    /// `WouldBlock`: nothing came in time. Others: it is broken, or no message.
    pub(super) fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut searched = 0;
        loop {
            let rest = self.bytes.get(searched..).unwrap_or_default();
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=searched + end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            searched = self.bytes.len();
            if searched > LONGEST {
                return Err(ErrorKind::InvalidData.into());
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// The file that came with the last request.
    pub(super) fn take_file(&mut self) -> Option<File> {
        self.file.take()
    }

    /// False at the end of the line.
    fn fill(&mut self) -> io::Result<bool> {
        let mut part = [0; 16 << 10];
        let (received, file) = helper::receive(&self.socket, &mut part)?;
        self.file = file.map(File::from).or(self.file.take());
        self.bytes
            .extend_from_slice(part.get(..received).unwrap_or_default());
        Ok(received > 0)
    }
}
