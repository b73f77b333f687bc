//! Messages between memtrace and a process that opens files for it: a text of JSON, bytes, and at most one descriptor.

use std::{
    io::{self, Read, Write},
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{helper, rights::Rights};

/// What to open or read, below the folder that comes with it. The bytes are the path.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// `None`: memtrace's own.
    pub(super) rights: Option<Rights>,
    /// The process whose mounts or memory these are; `None`: memtrace's own.
    pub(super) pid: Option<u32>,
    /// The process's mount namespace belongs to memtrace's user namespace, so no user can mount in it.
    pub(super) owns_mounts: bool,
    pub(super) operation: Operation,
}

/// How to treat a path whose last part is a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LastLink {
    Follow,
    Refuse,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Operation {
    /// A regular file's descriptor.
    Open(LastLink),
    /// The first bytes of a regular file, at most this many.
    Read(u64),
    /// Something is there.
    Find,
    /// A folder's version.
    Folder,
    /// A folder's names, at most this many, each with a zero byte behind.
    Names(usize),
    /// The descriptor of the file behind a path of `/proc/PID/map_files`.
    Mapped,
    /// The first bytes of a file of `/proc/PID`, at most this many.
    Memory(u64),
    /// The process's memory at an absolute address, whole.
    MemoryAt { address: u64, bytes: usize },
}

impl Operation {
    pub(super) fn reads_memory(self) -> bool {
        matches!(self, Self::Memory(_) | Self::MemoryAt { .. })
    }
}

/// Most bytes of memory shown by `/proc` that are read.
pub(super) const MEMORY_AT_MOST: u64 = 1 << 20;

/// See [`super::Folder::version`].
pub(super) type Version = (u64, u64, i64, i64);

pub(super) type Answer = Result<Found, Failure>;

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Found {
    /// A descriptor or bytes come with it, or nothing is needed.
    It,
    Folder(Version),
    Names {
        more: bool,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Failure {
    Errno(i32),
    NotPermitted(String),
    NotRegular,
    NotReal,
    NotFolder,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(errno) => Self::Errno(errno),
            None => Self::NotPermitted(error.to_string()),
        }
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Errno(errno) => Self::from_raw_os_error(errno),
            Failure::NotPermitted(why) => Self::new(io::ErrorKind::PermissionDenied, why),
            Failure::NotRegular => {
                Self::new(io::ErrorKind::InvalidInput, "expected a regular file")
            }
            Failure::NotReal => Self::new(
                io::ErrorKind::InvalidInput,
                "expected a file on a disk or in memory, got one of a kernel interface or of a user's file system",
            ),
            Failure::NotFolder => io::ErrorKind::NotADirectory.into(),
        }
    }
}

/// Lengths of text and bytes.
const HEAD: usize = 8;

/// Most bytes of a message's parts: longer ones are not ours.
const MOST: usize = 64 << 20;

pub(super) fn send(
    mut line: &UnixStream,
    message: &impl Serialize,
    bytes: &[u8],
    fd: Option<BorrowedFd>,
) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let mut head = [0; HEAD];
    let (of_text, of_bytes) = head.split_at_mut(HEAD / 2);
    of_text.copy_from_slice(&(text.len() as u32).to_ne_bytes());
    of_bytes.copy_from_slice(&(bytes.len() as u32).to_ne_bytes());
    let sent = helper::send(line, &head, fd)?;
    line.write_all(head.get(sent..).unwrap_or_default())?;
    line.write_all(&text)?;
    line.write_all(bytes)
}

pub(super) fn receive<T: DeserializeOwned>(
    mut line: &UnixStream,
) -> io::Result<(T, Vec<u8>, Option<OwnedFd>)> {
    let mut head = [0; HEAD];
    let (read, fd) = helper::receive(line, &mut head)?;
    if read == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    line.read_exact(head.get_mut(read..).unwrap_or_default())?;
    let length = |at: usize| {
        let bytes = head.get(at..at + 4).and_then(|part| part.try_into().ok());
        let length = u32::from_ne_bytes(bytes.unwrap_or_default()) as usize;
        (length <= MOST)
            .then_some(length)
            .ok_or(io::ErrorKind::InvalidData)
    };
    let (mut text, mut bytes) = (vec![0; length(0)?], vec![0; length(HEAD / 2)?]);
    line.read_exact(&mut text)?;
    line.read_exact(&mut bytes)?;
    Ok((serde_json::from_slice(&text)?, bytes, fd))
}
