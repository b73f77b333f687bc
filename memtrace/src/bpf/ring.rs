//! The consumer's side of the ring buffer, see [`memtrace_common::ring`].

use std::{
    os::fd::{AsFd, AsRawFd, RawFd},
    sync::atomic::{AtomicU64, Ordering},
};

use aya::{
    Ebpf,
    maps::{MapData, RingBuf},
};
use memtrace_common::ring::{self, CHUNK, ENDS, TAIL, WORD};
use zerocopy::IntoBytes;

use super::{
    error::TracerError,
    maps::{descriptor, take},
    object::Object,
    raw::Shared,
};

/// Records in the order in which they were made. Its descriptor becomes readable when the kernel side wants it read.
pub(crate) struct Ring {
    bell: RingBuf<MapData>,
    source: Source,
}

/// The buffer itself.
enum Source {
    Own {
        ends: Shared<u64>,
        words: Shared<u64>,
        reader: Reader,
    },
    /// The kernel's, and its record that was read last.
    Kernel(RingBuf<MapData>, Vec<u8>),
}

/// How many chunks a buffer has. `bytes`: a power of two; the result is one too.
pub(super) fn chunks(bytes: u32) -> u32 {
    bytes.div_ceil(CHUNK as u32)
}

impl Ring {
    /// The buffer of a loaded object. `bytes`: its size, a power of two; it has as many [`chunks`].
    pub(super) fn of(ebpf: &mut Ebpf, object: Object, bytes: u32) -> Result<Self, TracerError> {
        let bell = RingBuf::try_from(take(ebpf, "BELL")?)?;
        if object.is_legacy {
            let records = RingBuf::try_from(take(ebpf, "RECORDS")?)?;
            let source = Source::Kernel(records, Vec::new());
            return Ok(Self { bell, source });
        }
        let words = chunks(bytes) as usize * CHUNK / size_of::<u64>();
        let map = |name, len| {
            let shared = Shared::map(descriptor(ebpf, name)?.as_fd(), len);
            shared.map_err(TracerError::State)
        };
        let source = Source::Own {
            ends: map("RING_ENDS", ENDS as usize)?,
            words: map("RING", words)?,
            reader: Reader::of(bytes),
        };
        Ok(Self { bell, source })
    }

    /// Empties the bell before the records are read, so that the kernel side can wake the collector again.
    pub(crate) fn begin(&mut self) {
        while self.bell.next().is_some() {}
    }

    /// The next record, if it is complete.
    pub(crate) fn next(&mut self) -> Option<&[u8]> {
        match &mut self.source {
            Source::Own {
                ends,
                words,
                reader,
            } => {
                let tail = ends.get_mut(TAIL as usize).map(atomic)?;
                let is_record = reader.advance(words, tail);
                is_record.then(|| reader.record(words))?
            }
            Source::Kernel(records, last) => {
                let record = records.next()?;
                last.clear();
                last.extend_from_slice(&record);
                Some(last)
            }
        }
    }
}

impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> RawFd {
        self.bell.as_raw_fd()
    }
}

fn atomic(word: &mut u64) -> &AtomicU64 {
    // SAFETY: aligned, and lent for as long as the result; the kernel side writes words at once.
    unsafe { AtomicU64::from_ptr(word) }
}

/// How often the tail moves in each round through the buffer. Producers read it for each record, which takes them longest
/// when it has just moved.
const MOVES: u64 = 64;

/// Where the consumer is.
struct Reader {
    /// Size of the buffer.
    bytes: u64,
    /// Position of the present record's word, or of the next one's.
    at: u64,
    /// Length of the present record in bytes; `None`: there is none.
    len: Option<u32>,
    /// The tail.
    tail: u64,
}

impl Reader {
    fn of(bytes: u32) -> Self {
        Self {
            bytes: bytes.into(),
            at: 0,
            len: None,
            tail: 0,
        }
    }

    /// Gives up the present record, and goes on to the next one. False if there is none yet.
    fn advance(&mut self, words: &mut [u64], tail: &AtomicU64) -> bool {
        loop {
            if let Some(len) = self.len.take() {
                self.give_back(words, ring::room(len.into()));
            }
            if self.at - self.tail > self.bytes / MOVES {
                self.move_tail(tail);
            }
            let index = self.index(words, self.at);
            let word = words.get_mut(index).map(atomic);
            let word = word.map_or(0, |word| word.load(Ordering::Acquire));
            let Some((len, is_record)) = ring::parse(word) else {
                self.move_tail(tail);
                return false;
            };
            self.len = Some(len);
            if is_record {
                return true;
            }
        }
    }

    /// The present record.
    fn record<'a>(&self, words: &'a [u64]) -> Option<&'a [u8]> {
        let begin = self.index(words, self.at) + 1;
        words.get(begin..)?.as_bytes().get(..self.len? as usize)
    }

    /// Clears so many bytes from the present position on, and goes on behind them.
    fn give_back(&mut self, words: &mut [u64], bytes: u64) {
        let begin = self.index(words, self.at);
        if let Some(read) = words.get_mut(begin..begin + (bytes / WORD) as usize) {
            read.fill(0);
        }
        self.at += bytes;
    }

    /// Lets producers have the room of what was read.
    fn move_tail(&mut self, tail: &AtomicU64) {
        if self.tail != self.at {
            self.tail = self.at;
            tail.store(self.tail, Ordering::Release);
        }
    }

    /// The index of a position among the words, as many as a power of two.
    fn index(&self, words: &[u64], position: u64) -> usize {
        (position / WORD) as usize & (words.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A buffer with the producers' side of the protocol.
    struct Buffer {
        words: Vec<u64>,
        bytes: u64,
        head: u64,
        tail: AtomicU64,
        reader: Reader,
    }

    impl Buffer {
        fn new(chunks: u32) -> Self {
            let bytes = chunks * CHUNK as u32;
            Self::of(bytes, bytes)
        }

        /// Of `bytes`, in chunks that have `space`.
        fn of(bytes: u32, space: u32) -> Self {
            Self {
                words: vec![0; space as usize / 8],
                bytes: bytes.into(),
                head: 0,
                tail: AtomicU64::new(0),
                reader: Reader::of(bytes),
            }
        }

        /// The position of room for a record that has `most` bytes at most, as the kernel side takes it.
        fn take_most(&mut self, len: u64, most: u64) -> Option<u64> {
            let offset = self.head % CHUNK as u64;
            let left = CHUNK as u64 - offset;
            let position = match ring::room(most) <= left {
                true => self.head,
                false => self.head + left,
            };
            let head = position + ring::room(len);
            if head - self.tail.load(Ordering::Relaxed) > self.bytes {
                return None;
            }
            if position != self.head {
                self.write(self.head, ring::empty(left - WORD));
            }
            self.head = head;
            Some(position)
        }

        fn take(&mut self, len: u64) -> Option<u64> {
            self.take_most(len, len)
        }

        fn write(&mut self, position: u64, word: u64) {
            let index = (position / WORD) as usize % self.words.len();
            self.words[index] = word;
        }

        /// Writes a record of that many equal bytes, but not its word.
        fn fill(&mut self, position: u64, len: u64, byte: u8) {
            let begin = (position / WORD) as usize % self.words.len() + 1;
            let bytes = self.words[begin..].as_mut_bytes();
            bytes[..len as usize].fill(byte);
        }

        fn put(&mut self, len: u64, byte: u8) -> bool {
            let Some(position) = self.take(len) else {
                return false;
            };
            self.fill(position, len, byte);
            self.write(position, ring::ready(len));
            true
        }

        fn read(&mut self) -> Option<Vec<u8>> {
            let is_record = self.reader.advance(&mut self.words, &self.tail);
            is_record.then(|| self.reader.record(&self.words).unwrap().to_vec())
        }
    }

    #[test]
    fn a_record_that_is_not_complete_holds_up_those_behind_it() {
        let mut buffer = Buffer::new(1);
        assert_eq!(buffer.read(), None);
        let first = buffer.take(5).unwrap();
        assert!(buffer.put(9, 2));
        assert_eq!(buffer.read(), None);
        buffer.fill(first, 5, 1);
        buffer.write(first, ring::ready(5));
        assert_eq!(buffer.read(), Some(vec![1; 5]));
        assert_eq!(buffer.read(), Some(vec![2; 9]));
        assert_eq!(buffer.read(), None);
    }

    #[test]
    fn room_without_a_record_is_passed_over() {
        let mut buffer = Buffer::new(1);
        let given_up = buffer.take(24).unwrap();
        assert!(buffer.put(0, 0));
        buffer.write(given_up, ring::empty(24));
        assert_eq!(buffer.read(), Some(vec![]));
        assert_eq!(buffer.read(), None);
    }

    #[test]
    fn a_buffer_smaller_than_a_chunk_passes_records_for_ever() {
        let mut buffer = Buffer::of(4096, CHUNK as u32);
        for _ in 0..100_000 {
            let position = buffer.take_most(40, 1000).unwrap();
            buffer.fill(position, 40, 7);
            buffer.write(position, ring::ready(40));
            assert_eq!(buffer.read(), Some(vec![7; 40]));
            assert_eq!(buffer.read(), None);
        }
        assert!(buffer.head > 10 * CHUNK as u64);
    }

    /// Whatever fits is read once, in order and as it was, and everything is 0 in the end.
    #[test]
    fn records_come_out_as_they_went_in() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut buffer = Buffer::new(2);
        let mut expected = VecDeque::new();
        let (mut refused, mut passed) = (0, 0);
        for _ in 0..20_000 {
            let len = match random.u8(..4) {
                0 => random.u64(1..50_000),
                _ => random.u64(1..100),
            };
            let byte = random.u8(..);
            if buffer.put(len, byte) {
                expected.push_back(vec![byte; len as usize]);
                passed += 1;
            } else {
                refused += 1;
            }
            // Slower than the producer for some time, then faster.
            let reads = if (buffer.head >> 22).is_multiple_of(2) {
                1
            } else {
                2
            };
            for _ in 0..random.u8(..=reads) {
                assert_eq!(buffer.read(), expected.pop_front());
            }
        }
        assert!(refused > 1_000 && passed > 1_000, "{refused} of {passed}");
        while let Some(record) = expected.pop_front() {
            assert_eq!(buffer.read(), Some(record));
        }
        assert_eq!(buffer.read(), None);
        assert_eq!(buffer.tail.load(Ordering::Relaxed), buffer.head);
        assert!(buffer.words.iter().all(|word| *word == 0));
    }
}
