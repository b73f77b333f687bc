//! Bytes of the ring buffer → records. Nothing here touches the kernel.

use bytes::Buf;
use memtrace_common::{
    device,
    event::{
        Alloc, COMM, COPIED_PAGE, COPIED_PAGES, COPIED_RETURNS, Free, Header, Kind, Lifecycle, Map,
        PendingReturn, Stack, Timing, Unmap, Verify,
    },
    limits::MAX_FRAMES,
    python::{Code, Text},
    unwind::{End, Registers, Word},
};

/// A record as the kernel side wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Alloc(Alloc),
    Free(Free),
    Map(Map),
    Unmap(Unmap),
    Lifecycle(Lifecycle),
    /// A new stack and its frames.
    Stack(Stack, Vec<u64>),
    /// A new code object and what was copied of it.
    PythonCode(Box<Code>, Vec<u8>),
    Verify(Box<Sample>),
    Timing(Timing),
    DeviceAlloc(device::Alloc),
    DeviceReport(device::Report),
    DeviceRange(device::Range),
}

/// A [`Verify`] without what it has no use for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pub header: Header,
    pub at: Registers,
    pub sequence: u64,
    pub trampoline: u64,
    pub end: End,
    pub returns: Vec<PendingReturn>,
    /// Words of native frames: those of Python lie beside the stack that is copied.
    pub frames: Vec<u64>,
    /// The stack, from the beginning of the page that holds `at.sp` on.
    pub copy: Vec<u8>,
}

/// A record that is not one: the two sides disagree.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("record of unknown kind {0}")]
    Kind(u8),
    #[error("record of {got} bytes, expected {expected}")]
    Length { got: usize, expected: usize },
    #[error("walk with the unknown end {0}")]
    End(u32),
}

/// Decodes one record.
pub fn decode(mut bytes: &[u8]) -> Result<(Kind, Record), DecodeError> {
    let length = bytes.len();
    expect(length, size_of::<Header>())?;
    let header = Header {
        kind: bytes.get_u8(),
        layer: bytes.get_u8(),
        flags: bytes.get_u16_ne(),
        tgid: bytes.get_u32_ne(),
        tid: bytes.get_u32_ne(),
        pad: bytes.get_u32_ne(),
        time_ns: bytes.get_u64_ne(),
    };
    let kind = Kind::try_from(header.kind).map_err(DecodeError::Kind)?;
    let record = match kind {
        Kind::Alloc | Kind::ReallocEnd => {
            expect(length, size_of::<Alloc>())?;
            Record::Alloc(Alloc {
                header,
                addr: bytes.get_u64_ne(),
                size: bytes.get_u64_ne(),
                stack: bytes.get_u64_ne(),
            })
        }
        Kind::Free | Kind::ReallocBegin => {
            expect(length, size_of::<Free>())?;
            Record::Free(Free {
                header,
                addr: bytes.get_u64_ne(),
            })
        }
        Kind::Mmap | Kind::RemapEnd | Kind::Brk | Kind::Shmat => {
            expect(length, size_of::<Map>())?;
            Record::Map(Map {
                header,
                addr: bytes.get_u64_ne(),
                len: bytes.get_u64_ne(),
                stack: bytes.get_u64_ne(),
                prot: bytes.get_u32_ne(),
                map_flags: bytes.get_u32_ne(),
                ino: bytes.get_u64_ne(),
                file_offset: bytes.get_u64_ne(),
                dev: bytes.get_u32_ne(),
                pad: bytes.get_u32_ne(),
            })
        }
        Kind::UnmapBegin | Kind::UnmapEnd | Kind::RemapBegin => {
            expect(length, size_of::<Unmap>())?;
            Record::Unmap(Unmap {
                header,
                addr: bytes.get_u64_ne(),
                len: bytes.get_u64_ne(),
            })
        }
        Kind::Fork | Kind::Exec | Kind::Exit | Kind::Stopped => {
            expect(length, size_of::<Lifecycle>())?;
            Record::Lifecycle(Lifecycle {
                header,
                value: bytes.get_u64_ne(),
                other: bytes.get_u32_ne(),
                pad: bytes.get_u32_ne(),
            })
        }
        Kind::Stack => {
            expect(length, size_of::<Stack>())?;
            let mut stack = Stack {
                header,
                stack: bytes.get_u64_ne(),
                n: bytes.get_u32_ne(),
                end: bytes.get_u32_ne(),
                image: bytes.get_u64_ne(),
                comm: [0; COMM],
            };
            bytes.copy_to_slice(&mut stack.comm);
            let words = stack.n as usize;
            expect(bytes.len() / 8, words)?;
            Record::Stack(stack, (0..words).map(|_| bytes.get_u64_ne()).collect())
        }
        Kind::PythonCode => {
            expect(length, size_of::<Code>())?;
            let text = |bytes: &mut &[u8]| Text {
                object: bytes.get_u64_ne(),
                length: bytes.get_u32_ne(),
                width: bytes.get_u16_ne(),
                ascii: bytes.get_u16_ne(),
            };
            let code = Code {
                header,
                image: bytes.get_u64_ne(),
                code: bytes.get_u64_ne(),
                filename: text(&mut bytes),
                name: text(&mut bytes),
                linetable: bytes.get_u64_ne(),
                linetable_len: bytes.get_u32_ne(),
                first_line: bytes.get_u32_ne(),
                fingerprint: bytes.get_u32_ne(),
                pad: bytes.get_u32_ne(),
            };
            Record::PythonCode(Box::new(code), bytes.to_vec())
        }
        Kind::Verify => {
            expect(length, size_of::<Verify>())?;
            Record::Verify(Box::new(sample(header, bytes)?))
        }
        Kind::Timing => {
            expect(length, size_of::<Timing>())?;
            Record::Timing(Timing {
                header,
                walk_ns: bytes.get_u64_ne(),
                stackid_ns: bytes.get_u64_ne(),
                frames: bytes.get_u32_ne(),
                end: bytes.get_u32_ne(),
            })
        }
        Kind::DeviceAlloc => {
            expect(length, size_of::<device::Alloc>())?;
            Record::DeviceAlloc(device::Alloc {
                header,
                addr: bytes.get_u64_ne(),
                size: bytes.get_u64_ne(),
                stack: bytes.get_u64_ne(),
                device: bytes.get_u32_ne(),
                error: bytes.get_u32_ne(),
            })
        }
        Kind::DeviceReport => {
            expect(length, size_of::<device::Report>())?;
            Record::DeviceReport(device::Report {
                header,
                addr: bytes.get_u64_ne(),
                size: bytes.get_i64_ne(),
                stack: bytes.get_u64_ne(),
                allocated: bytes.get_u64_ne(),
                reserved: bytes.get_u64_ne(),
                device: bytes.get_u32_ne(),
                pad: bytes.get_u32_ne(),
            })
        }
        Kind::DeviceMap
        | Kind::DeviceUnmap
        | Kind::DeviceRetain
        | Kind::DevicePool
        | Kind::EntryPoint
        | Kind::DeviceRequest => {
            expect(length, size_of::<device::Range>())?;
            Record::DeviceRange(device::Range {
                header,
                addr: bytes.get_u64_ne(),
                len: bytes.get_u64_ne(),
                handle: bytes.get_u64_ne(),
                device: bytes.get_u32_ne(),
                pad: bytes.get_u32_ne(),
            })
        }
    };
    Ok((kind, record))
}

/// The rest of a [`Verify`], which is there in full.
fn sample(header: Header, mut bytes: &[u8]) -> Result<Sample, DecodeError> {
    let at = Registers {
        pc: bytes.get_u64_ne(),
        sp: bytes.get_u64_ne(),
        fp: bytes.get_u64_ne(),
        bx: bytes.get_u64_ne(),
        bx_is: bytes.get_u64_ne(),
    };
    let (sequence, trampoline) = (bytes.get_u64_ne(), bytes.get_u64_ne());
    let pending = bytes.get_u32_ne() as usize;
    let n = bytes.get_u32_ne() as usize;
    let end = End::try_from(bytes.get_u32_ne()).map_err(DecodeError::End)?;
    let pages = bytes.get_u32_ne() as usize;
    let mut returns: Vec<PendingReturn> = (0..COPIED_RETURNS)
        .map(|_| PendingReturn {
            slot: bytes.get_u64_ne(),
            original: bytes.get_u64_ne(),
        })
        .collect();
    returns.truncate(pending);
    let mut frames: Vec<u64> = (0..=MAX_FRAMES).map(|_| bytes.get_u64_ne()).collect();
    frames.truncate(n.min(MAX_FRAMES));
    frames.retain(|&word| !is_python(word));
    let mut copy = bytes[..COPIED_PAGES * COPIED_PAGE].to_vec();
    copy.truncate(pages.saturating_mul(COPIED_PAGE));
    Ok(Sample {
        header,
        at,
        sequence,
        trampoline,
        end,
        returns,
        frames,
        copy,
    })
}

fn is_python(word: u64) -> bool {
    matches!(
        Word::decode(word),
        Some(Word::Python(_) | Word::PythonAt { .. })
    )
}

fn expect(got: usize, expected: usize) -> Result<(), DecodeError> {
    if got < expected {
        Err(DecodeError::Length { got, expected })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that the kernel side would write.
    fn bytes_of<T: Copy>(value: &T) -> Vec<u8> {
        // SAFETY: the event types have no implicit padding (their sizes are asserted).
        unsafe { std::slice::from_raw_parts((&raw const *value).cast::<u8>(), size_of::<T>()) }
            .to_vec()
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
            decode(&bytes_of(&alloc)),
            Ok((Kind::Alloc, Record::Alloc(alloc)))
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
        assert_eq!(decode(&bytes_of(&map)), Ok((Kind::Mmap, Record::Map(map))));
        let life = Lifecycle {
            header: header(Kind::Fork),
            value: 1,
            other: 2,
            pad: 0,
        };
        assert_eq!(
            decode(&bytes_of(&life)),
            Ok((Kind::Fork, Record::Lifecycle(life)))
        );
    }

    #[test]
    fn a_stack_carries_as_many_frames_as_it_says() {
        let stack = Stack {
            header: header(Kind::Stack),
            stack: 1,
            n: 2,
            end: 3,
            image: 4,
            comm: *b"worker\0\0\0\0\0\0\0\0\0\0",
        };
        let mut bytes = bytes_of(&stack);
        bytes.extend(10u64.to_ne_bytes());
        assert_eq!(
            decode(&bytes),
            Err(DecodeError::Length {
                got: 1,
                expected: 2
            })
        );
        bytes.extend(11u64.to_ne_bytes());
        assert_eq!(
            decode(&bytes),
            Ok((Kind::Stack, Record::Stack(stack, vec![10, 11])))
        );
    }

    fn walk() -> Verify {
        let mut walk = Verify {
            header: header(Kind::Verify),
            at: Registers {
                pc: 1,
                sp: 2,
                fp: 3,
                bx: 6,
                bx_is: 7,
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
    fn a_walk_to_verify_has_what_it_says_and_not_what_is_behind() {
        let (_, record) = decode(&bytes_of(&walk())).unwrap();
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
    fn a_walk_that_says_too_much_has_what_there_is() {
        let mut walk = walk();
        (walk.pending, walk.n, walk.pages) = (u32::MAX, u32::MAX, u32::MAX);
        let (_, record) = decode(&bytes_of(&walk)).unwrap();
        let Record::Verify(sample) = record else {
            panic!("{record:?}");
        };
        assert_eq!(sample.returns.len(), COPIED_RETURNS);
        assert_eq!(sample.frames.len(), MAX_FRAMES - 2);
        assert_eq!(sample.copy.len(), COPIED_PAGES * COPIED_PAGE);
        walk.end = 99;
        assert_eq!(decode(&bytes_of(&walk)), Err(DecodeError::End(99)));
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
        let expected = Ok((Kind::DeviceAlloc, Record::DeviceAlloc(alloc)));
        assert_eq!(decode(&bytes_of(&alloc)), expected);
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
        let expected = Ok((Kind::DeviceReport, Record::DeviceReport(report)));
        assert_eq!(decode(&bytes_of(&report)), expected);
        let range = device::Range {
            header: header(Kind::DeviceMap),
            addr: 1,
            len: 2,
            handle: 3,
            device: 4,
            pad: 0,
        };
        let expected = Ok((Kind::DeviceMap, Record::DeviceRange(range)));
        assert_eq!(decode(&bytes_of(&range)), expected);
        assert!(decode(&bytes_of(&range)[..55]).is_err());
    }

    #[test]
    fn short_and_foreign_records_are_errors() {
        assert!(matches!(
            decode(&[1, 2, 3]),
            Err(DecodeError::Length { got: 3, .. })
        ));
        let free = Free {
            header: header(Kind::Free),
            addr: 7,
        };
        assert!(decode(&bytes_of(&free)[..31]).is_err());
        let mut bytes = bytes_of(&free);
        bytes[0] = 99;
        assert_eq!(decode(&bytes), Err(DecodeError::Kind(99)));
    }
}
