//! Rounds of a program that repeats its work: it reports the end of each over a socket, and waits until everything
//! before has been recorded. After the last one it also waits for a search for what keeps memory.

use std::{
    io,
    os::{fd::OwnedFd, unix::net},
};

use tokio::net::UnixStream;

use crate::clock;

/// Most rounds of a recording: the intervals that end them are never merged.
const MOST: u32 = 1000;

/// The byte that reports the end of the last round. Others report that there will be more.
const LAST: u8 = b'e';

/// memtrace's end of the socket, while there may be more rounds.
pub(super) struct Rounds {
    socket: Option<UnixStream>,
    left: u32,
    /// When the first one began, CLOCK_MONOTONIC ns.
    first_ns: Option<u64>,
    /// The program waits for an answer.
    pub(super) is_waiting: bool,
    is_last: bool,
}

impl Rounds {
    /// # Errors
    /// The descriptor is no socket.
    pub(super) fn new(socket: Option<OwnedFd>) -> io::Result<Self> {
        let watched = |socket: OwnedFd| {
            let socket = net::UnixStream::from(socket);
            // Fails unless it is a socket.
            socket.local_addr()?;
            socket.set_nonblocking(true)?;
            UnixStream::from_std(socket)
        };
        Ok(Self {
            socket: socket.map(watched).transpose()?,
            left: MOST,
            first_ns: None,
            is_waiting: false,
            is_last: false,
        })
    }

    /// Waits for the end of a round; for ever, if there will be none. After the last round: when the first one began,
    /// CLOCK_MONOTONIC ns.
    pub(super) async fn ended(&mut self) -> Option<u64> {
        while let Some(socket) = &mut self.socket {
            let mut report = [0];
            let readable = socket.readable().await;
            match readable.and_then(|()| socket.try_read(&mut report)) {
                Ok(1) if self.left > 0 => {
                    self.left -= 1;
                    self.is_waiting = true;
                    let first = *self.first_ns.get_or_insert_with(clock::monotonic_ns);
                    self.is_last = report[0] == LAST;
                    return self.is_last.then_some(first);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Closed, or more than can be kept: the program goes on without.
                _ => self.socket = None,
            }
        }
        std::future::pending().await
    }

    /// There will be no more: the program does not wait for an answer any longer.
    pub(super) fn close(&mut self) {
        self.socket = None;
    }

    /// Lets the program go on.
    pub(super) fn go_on(&mut self) {
        self.is_waiting = false;
        let answered = self.socket.as_ref().map(|socket| socket.try_write(&[0]));
        if self.is_last || !matches!(answered, Some(Ok(_))) {
            self.socket = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{Read, Write},
        time::Duration,
    };

    use super::*;

    #[tokio::test]
    async fn a_round_ends_with_a_byte_and_gets_one() {
        let (own, theirs) = net::UnixStream::pair().unwrap();
        let mut rounds = Rounds::new(Some(own.into())).unwrap();
        let program = std::thread::spawn(move || {
            let mut theirs = theirs;
            let mut answer = [1];
            for report in [b"r", b"e"] {
                theirs.write_all(report).unwrap();
                theirs.read_exact(&mut answer).unwrap();
            }
            answer
        });
        assert_eq!(rounds.ended().await, None);
        assert!(rounds.is_waiting);
        rounds.go_on();
        assert_eq!(rounds.ended().await, rounds.first_ns);
        rounds.go_on();
        assert_eq!(program.join().unwrap(), [0]);
        // The program has ended: no more rounds, and nothing to do meanwhile.
        let more = tokio::time::timeout(Duration::from_millis(1), rounds.ended());
        assert!(more.await.is_err());
        assert!(rounds.socket.is_none());
    }

    #[tokio::test]
    async fn only_a_socket_will_do() {
        let file = File::open("/dev/null").unwrap();
        assert!(Rounds::new(Some(file.into())).is_err());
    }
}
