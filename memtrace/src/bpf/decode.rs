//! Bytes of the ring buffer → records. Nothing here touches the kernel.

use memtrace_common::{
    device,
    event::{
        Alloc, COPIED_PAGES, COPIED_RETURNS, Free, Header, Kind, Lifecycle, Map, PendingReturn,
        Stack, Timing, Unmap, Verify,
    },
    limits::MAX_FRAMES,
    python::Code,
    unwind::{End, Registers, Word},
};
use zerocopy::{FromBytes, Immutable, KnownLayout, error::CastError};

/// A record as the kernel side wrote it, borrowed from the ring buffer: every event would pay for a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    Alloc(&'a Alloc),
    Free(&'a Free),
    Map(&'a Map),
    Unmap(&'a Unmap),
    Lifecycle(&'a Lifecycle),
    /// A new stack and its frames.
    Stack(&'a Stack, &'a [u64]),
    /// A new code object and the bytes copied of it.
    PythonCode(&'a Code, &'a [u8]),
    Verify(Box<Sample>),
    Timing(&'a Timing),
    DeviceAlloc(&'a device::Alloc),
    DeviceReport(&'a device::Report),
    DeviceRange(&'a device::Range),
}

/// A [`Verify`] without its unused parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub header: Header,
    pub at: Registers,
    pub sequence: u64,
    pub trampoline: u64,
    pub end: End,
    pub returns: Vec<PendingReturn>,
    /// Words of native frames: those of Python frames are beside the copied stack.
    pub frames: Vec<u64>,
    /// The stack, from the beginning of the page that holds `at.sp` on.
    pub copy: Vec<u8>,
}

/// A record that is not one: the two sides disagree.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("record of unknown kind {0}")]
    Kind(u8),
    #[error("record of {got} bytes, expected {expected}")]
    Length { got: usize, expected: usize },
    #[error("record at an address that is not a multiple of 8")]
    Misaligned,
    #[error("walk with the unknown end {0}")]
    End(u32),
}

/// Decodes one record. `bytes`: at an address that is a multiple of 8.
pub(crate) fn decode(bytes: &[u8]) -> Result<(Kind, Record<'_>), DecodeError> {
    let header: &Header = prefix(bytes)?;
    let kind = Kind::try_from(header.kind).map_err(DecodeError::Kind)?;
    let record = match kind {
        Kind::Alloc | Kind::ReallocEnd => Record::Alloc(prefix(bytes)?),
        Kind::Free | Kind::ReallocBegin => Record::Free(prefix(bytes)?),
        Kind::Mmap | Kind::RemapEnd | Kind::Brk | Kind::Shmat => Record::Map(prefix(bytes)?),
        Kind::UnmapBegin | Kind::UnmapEnd | Kind::RemapBegin => Record::Unmap(prefix(bytes)?),
        Kind::Fork | Kind::Exec | Kind::Exit | Kind::Stopped => Record::Lifecycle(prefix(bytes)?),
        Kind::Stack => {
            let (stack, words) = split::<Stack>(bytes)?;
            let wanted = stack.n as usize;
            let got = words.len() / size_of::<u64>();
            let (words, _) = <[u64]>::ref_from_prefix_with_elems(words, wanted)
                .map_err(|error| error_of(error, got, wanted))?;
            Record::Stack(stack, words)
        }
        Kind::PythonCode => {
            let (code, copied) = split(bytes)?;
            Record::PythonCode(code, copied)
        }
        Kind::Verify => Record::Verify(Box::new(sample(prefix(bytes)?)?)),
        Kind::Timing => Record::Timing(prefix(bytes)?),
        Kind::DeviceAlloc => Record::DeviceAlloc(prefix(bytes)?),
        Kind::DeviceReport => Record::DeviceReport(prefix(bytes)?),
        Kind::DeviceMap
        | Kind::DeviceUnmap
        | Kind::DeviceRetain
        | Kind::DevicePool
        | Kind::EntryPoint
        | Kind::DeviceRequest => Record::DeviceRange(prefix(bytes)?),
    };
    Ok((kind, record))
}

/// The head of a record.
fn prefix<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Result<&T, DecodeError> {
    split(bytes).map(|(value, _)| value)
}

/// The head of a record, and the rest.
fn split<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Result<(&T, &[u8]), DecodeError> {
    T::ref_from_prefix(bytes).map_err(|error| error_of(error, bytes.len(), size_of::<T>()))
}

fn error_of<A, B: ?Sized>(error: CastError<A, B>, got: usize, expected: usize) -> DecodeError {
    match error {
        CastError::Alignment(_) => DecodeError::Misaligned,
        CastError::Size(_) => DecodeError::Length { got, expected },
    }
}

fn sample(walk: &Verify) -> Result<Sample, DecodeError> {
    let first = |n: u32, most: usize| (n as usize).min(most);
    let mut frames = walk.frames[..first(walk.n, MAX_FRAMES)].to_vec();
    frames.retain(|&word| !is_python(word));
    Ok(Sample {
        header: walk.header,
        at: walk.at,
        sequence: walk.sequence,
        trampoline: walk.trampoline,
        end: End::try_from(walk.end).map_err(DecodeError::End)?,
        returns: walk.returns[..first(walk.pending, COPIED_RETURNS)].to_vec(),
        frames,
        copy: walk.copy[..first(walk.pages, COPIED_PAGES)].concat(),
    })
}

fn is_python(word: u64) -> bool {
    matches!(
        Word::decode(word),
        Some(Word::Python(_) | Word::PythonAt { .. })
    )
}

#[cfg(test)]
mod tests {
    use memtrace_common::event::COPIED_PAGE;
    use zerocopy::IntoBytes;

    use super::*;

    /// The words that the kernel side would write.
    fn words_of<T: IntoBytes + Immutable>(value: &T) -> Vec<u64> {
        let words = value.as_bytes().chunks(8);
        let words = words.map(|word| u64::read_from_bytes(word).unwrap());
        words.collect()
    }

    fn header(kind: Kind) -> Header {
        Header {
            kind: kind as u8,
            layer: 1,
            flags: 2,
            tgid: 3,
            tid: 4,
            pad: 0,
            time_ns: 6,
        }
    }

    #[test]
    fn records_come_back_as_they_were_laid_out() {
        let alloc = Alloc {
            header: header(Kind::Alloc),
            addr: 7,
            size: 8,
            stack: 9,
        };
        assert_eq!(
            decode(words_of(&alloc).as_bytes()),
            Ok((Kind::Alloc, Record::Alloc(&alloc)))
        );
        let map = Map {
            header: header(Kind::Mmap),
            addr: 1,
            len: 2,
            stack: 3,
            prot: 4,
            map_flags: 5,
            ino: 6,
            file_offset: 7,
            dev: 8,
            pad: 0,
        };
        assert_eq!(
            decode(words_of(&map).as_bytes()),
            Ok((Kind::Mmap, Record::Map(&map)))
        );
        let life = Lifecycle {
            header: header(Kind::Fork),
            value: 1,
            other: 2,
            pad: 0,
        };
        assert_eq!(
            decode(words_of(&life).as_bytes()),
            Ok((Kind::Fork, Record::Lifecycle(&life)))
        );
    }

    #[test]
    fn a_stack_has_its_declared_number_of_frames() {
        let stack = Stack {
            header: header(Kind::Stack),
            stack: 1,
            n: 2,
            end: 3,
            image: 4,
            comm: *b"worker\0\0\0\0\0\0\0\0\0\0",
        };
        let mut words = words_of(&stack);
        words.push(10);
        assert_eq!(
            decode(words.as_bytes()),
            Err(DecodeError::Length {
                got: 1,
                expected: 2
            })
        );
        words.push(11);
        assert_eq!(
            decode(words.as_bytes()),
            Ok((Kind::Stack, Record::Stack(&stack, &[10, 11])))
        );
    }

    fn walk() -> Verify {
        let mut walk = Verify {
            header: header(Kind::Verify),
            at: Registers {
                pc: 1,
                sp: 2,
                fp: 3,
                extra: 6,
                extra_is: 7,
            },
            sequence: 4,
            trampoline: 5,
            pending: 2,
            n: 5,
            end: End::NoRow as u32,
            pages: 1,
            returns: [PendingReturn::default(); COPIED_RETURNS],
            frames: [6; MAX_FRAMES + 1],
            copy: [[7; COPIED_PAGE]; COPIED_PAGES],
        };
        walk.returns[1].slot = 8;
        walk.frames[1] = Word::python(5);
        walk.frames[2] = Word::python_at(4, 3);
        walk
    }

    #[test]
    fn a_walk_to_verify_has_its_declared_stack_only() {
        let words = words_of(&walk());
        let (_, record) = decode(words.as_bytes()).unwrap();
        let Record::Verify(sample) = record else {
            panic!("{record:?}");
        };
        assert_eq!((sample.at.pc, sample.at.sp, sample.at.fp), (1, 2, 3));
        assert_eq!((sample.sequence, sample.trampoline), (4, 5));
        assert_eq!(sample.end, End::NoRow);
        assert_eq!(sample.returns.iter().map(|r| r.slot).sum::<u64>(), 8);
        assert_eq!(sample.returns.len(), 2);
        assert_eq!(sample.frames, [6; 3]);
        assert_eq!(sample.copy, [7; COPIED_PAGE]);
    }

    #[test]
    fn an_oversized_walk_has_the_bytes_that_exist() {
        let mut walk = walk();
        (walk.pending, walk.n, walk.pages) = (u32::MAX, u32::MAX, u32::MAX);
        let words = words_of(&walk);
        let (_, record) = decode(words.as_bytes()).unwrap();
        let Record::Verify(sample) = record else {
            panic!("{record:?}");
        };
        assert_eq!(sample.returns.len(), COPIED_RETURNS);
        assert_eq!(sample.frames.len(), MAX_FRAMES - 2);
        assert_eq!(sample.copy.len(), COPIED_PAGES * COPIED_PAGE);
        walk.end = 99;
        assert_eq!(
            decode(words_of(&walk).as_bytes()),
            Err(DecodeError::End(99))
        );
    }

    #[test]
    fn records_of_devices_come_back_as_they_were_laid_out() {
        let alloc = device::Alloc {
            header: header(Kind::DeviceAlloc),
            addr: 1,
            size: 2,
            stack: 3,
            device: 4,
            error: 5,
        };
        let expected = Ok((Kind::DeviceAlloc, Record::DeviceAlloc(&alloc)));
        assert_eq!(decode(words_of(&alloc).as_bytes()), expected);
        let report = device::Report {
            header: header(Kind::DeviceReport),
            addr: 1,
            size: -2,
            stack: 3,
            allocated: 4,
            reserved: 5,
            device: 6,
            pad: 0,
        };
        let expected = Ok((Kind::DeviceReport, Record::DeviceReport(&report)));
        assert_eq!(decode(words_of(&report).as_bytes()), expected);
        let range = device::Range {
            header: header(Kind::DeviceMap),
            addr: 1,
            len: 2,
            handle: 3,
            device: 4,
            pad: 0,
        };
        let expected = Ok((Kind::DeviceMap, Record::DeviceRange(&range)));
        assert_eq!(decode(words_of(&range).as_bytes()), expected);
        assert!(decode(&words_of(&range).as_bytes()[..55]).is_err());
    }

    #[test]
    fn short_and_foreign_records_are_errors() {
        assert!(matches!(
            decode(&[0u64].as_bytes()[..3]),
            Err(DecodeError::Length { got: 3, .. })
        ));
        let free = Free {
            header: header(Kind::Free),
            addr: 7,
        };
        assert!(decode(&words_of(&free).as_bytes()[..31]).is_err());
        let mut words = words_of(&free);
        words.as_mut_bytes()[0] = 99;
        assert_eq!(decode(words.as_bytes()), Err(DecodeError::Kind(99)));
        let shifted = &words.as_bytes()[1..];
        assert_eq!(decode(shifted), Err(DecodeError::Misaligned));
    }
}
