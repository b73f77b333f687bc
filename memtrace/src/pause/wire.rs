//! Messages between the collector and the pauser: three words each.

use std::io::{self, Read};

/// Bytes of a message.
const LEN: usize = 12;

/// A request from the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Trace every thread of the process; answered by [`Notice::Seized`].
    Seize { tgid: u32 },
    /// The thread, which waits or is about to, may continue.
    Continue { tid: u32 },
    /// Trace the process no longer; answered by [`Notice::Left`].
    Leave { tgid: u32 },
    /// Every thread of the process stops, until [`Request::GoOn`].
    Halt { tgid: u32 },
    /// Resume the halted process.
    GoOn { tgid: u32 },
}

/// A report of the pauser's action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The process is traced now, or why not: an errno, 0 for success.
    Seized { tgid: u32, errno: i32 },
    /// The process is no longer traced: another tracer wants it.
    Left { tgid: u32 },
    /// The thread continued before the collector released it: the collector was stopped, or took
    /// too long.
    LetGo { tid: u32 },
    /// Return addresses of the thread could not be put back.
    NotRestored { tid: u32 },
}

impl Request {
    pub(super) fn encode(self) -> [u8; LEN] {
        match self {
            Request::Seize { tgid } => pack(1, tgid, 0),
            Request::Continue { tid } => pack(2, tid, 0),
            Request::Leave { tgid } => pack(3, tgid, 0),
            Request::Halt { tgid } => pack(4, tgid, 0),
            Request::GoOn { tgid } => pack(5, tgid, 0),
        }
    }

    fn decode(bytes: [u8; LEN]) -> Option<Self> {
        Some(match unpack(bytes) {
            [1, tgid, _] => Request::Seize { tgid },
            [2, tid, _] => Request::Continue { tid },
            [3, tgid, _] => Request::Leave { tgid },
            [4, tgid, _] => Request::Halt { tgid },
            [5, tgid, _] => Request::GoOn { tgid },
            _ => return None,
        })
    }
}

impl Notice {
    pub(super) fn encode(self) -> [u8; LEN] {
        match self {
            Notice::Seized { tgid, errno } => pack(1, tgid, errno.cast_unsigned()),
            Notice::Left { tgid } => pack(2, tgid, 0),
            Notice::LetGo { tid } => pack(3, tid, 0),
            Notice::NotRestored { tid } => pack(4, tid, 0),
        }
    }

    fn decode(bytes: [u8; LEN]) -> Option<Self> {
        Some(match unpack(bytes) {
            [1, tgid, errno] => Notice::Seized {
                tgid,
                errno: errno.cast_signed(),
            },
            [2, tgid, _] => Notice::Left { tgid },
            [3, tid, _] => Notice::LetGo { tid },
            [4, tid, _] => Notice::NotRestored { tid },
            _ => return None,
        })
    }
}

fn pack(kind: u32, id: u32, value: u32) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    for (part, word) in bytes.chunks_exact_mut(4).zip([kind, id, value]) {
        part.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

fn unpack(bytes: [u8; LEN]) -> [u32; 3] {
    let mut words = [0; 3];
    for (word, part) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = part.try_into().map_or(0, u32::from_ne_bytes);
    }
    words
}

/// One end's unread bytes.
#[derive(Debug, Default)]
pub(super) struct Inbox(Vec<u8>);

impl Inbox {
    /// Reads the available data. False at the end of the stream.
    pub(super) fn fill(&mut self, from: &mut impl Read) -> io::Result<bool> {
        let mut buffer = [0; 64 * LEN];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(read) => self.0.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&mut self) -> Vec<[u8; LEN]> {
        let whole = self.0.len() - self.0.len() % LEN;
        let bytes: Vec<u8> = self.0.drain(..whole).collect();
        let messages = bytes.chunks_exact(LEN);
        messages.filter_map(|bytes| bytes.try_into().ok()).collect()
    }

    pub(super) fn requests(&mut self) -> Vec<Request> {
        self.take()
            .into_iter()
            .filter_map(Request::decode)
            .collect()
    }

    pub(super) fn notices(&mut self) -> Vec<Notice> {
        self.take().into_iter().filter_map(Notice::decode).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_way_in_pieces() {
        let requests = [
            Request::Seize { tgid: 7 },
            Request::Continue { tid: u32::MAX },
            Request::Leave { tgid: 1 << 22 },
            Request::Halt { tgid: 3 },
            Request::GoOn { tgid: 3 },
        ];
        let bytes: Vec<u8> = requests.iter().flat_map(|notice| notice.encode()).collect();
        let mut inbox = Inbox::default();
        assert!(!inbox.fill(&mut &bytes[..20]).unwrap());
        assert_eq!(inbox.requests(), requests[..1]);
        inbox.fill(&mut &bytes[20..]).unwrap();
        assert_eq!(inbox.requests(), requests[1..]);

        let notices = [
            Notice::Seized {
                tgid: 5,
                errno: -libc::EPERM,
            },
            Notice::Left { tgid: 6 },
            Notice::LetGo { tid: 8 },
            Notice::NotRestored { tid: 9 },
        ];
        let bytes: Vec<u8> = notices.iter().flat_map(|notice| notice.encode()).collect();
        inbox.fill(&mut &bytes[..]).unwrap();
        assert_eq!(inbox.notices(), notices);
    }
}
