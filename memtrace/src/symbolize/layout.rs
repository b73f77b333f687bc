//! Facts from the headers of an ELF file: the place of its code, its identity, and the places of
//! possible names. Any bytes are accepted.

use crate::file::{BUDGET, FileBytes, Positioned, hex};
use object::{
    CompressedFileRange, CompressionFormat, Object, ObjectSection, ObjectSegment, SectionFlags,
    SegmentFlags,
    elf::{PF_X, SHF_EXECINSTR},
};
use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    ops::Range,
    os::unix::ffi::OsStringExt,
};

/// Most that all compressed sections of a file may hold, bytes: they are unpacked into memory.
const MOST_UNCOMPRESSED: u64 = BUDGET / 2;
/// Most that symbols packed with xz may take, and a decoder for them, bytes.
const MOST_PACKED_SYMBOLS: u64 = BUDGET / 4;

/// The parts of a file that can be read in a bounded amount of memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounded {
    pub(super) symbols: bool,
    pub(super) debug_info: bool,
    /// A part is larger than what is read, not damaged.
    pub(super) is_cut: bool,
}

/// A loadable segment. Bytes.
struct Segment {
    file_offset: u64,
    file_size: u64,
    virt_offset: u64,
    executable: bool,
}

/// For anything but an ELF file, all are empty.
#[derive(Default)]
pub(super) struct Layout {
    segments: Vec<Segment>,
    /// Addresses of the procedure linkage table.
    plt: Vec<Range<u64>>,
    /// Lower-case hex.
    pub(super) build_id: Option<String>,
    /// Name and CRC-32 of the debug file (`.gnu_debuglink`, GDB manual, section 18.3).
    pub(super) debug_link: Option<(OsString, u32)>,
    /// It names a further file that a reader of its debug information would open.
    pub(super) leads_elsewhere: bool,
    pub(super) has_debug_info: bool,
    /// Compressed sections, those of debug information apart from others.
    compressed_debug_info: Vec<CompressedFileRange>,
    compressed: Vec<CompressedFileRange>,
    /// Symbols that are packed with xz, if any, unpack within [`MOST_PACKED_SYMBOLS`].
    packed_symbols_fit: bool,
}

impl Layout {
    pub(super) fn read(file: &File) -> Self {
        let data = FileBytes::new(file);
        let Ok(elf) = object::File::parse(&data) else {
            return Self::default();
        };
        let sections = || elf.sections();
        let named = |name: &str| elf.section_by_name_bytes(name.as_bytes()).is_some();
        let debug_link = elf.gnu_debuglink().ok().flatten();
        let (compressed_debug_info, compressed): (Vec<_>, Vec<_>) = sections()
            .filter_map(|section| {
                let range = section.compressed_file_range().ok()?;
                let is_compressed = range.format != CompressionFormat::None;
                let is_debug_info = section.name_bytes().is_ok_and(is_debug_info);
                is_compressed.then_some((is_debug_info, range))
            })
            .partition(|(is_debug_info, _)| *is_debug_info);
        let ranges = |of: Vec<(bool, CompressedFileRange)>| of.into_iter().map(|(_, range)| range);
        let altlink = [".gnu_debugaltlink", ".debug_sup"];
        Self {
            segments: segments(&elf),
            plt: sections()
                .filter(|section| {
                    section
                        .name_bytes()
                        .is_ok_and(|name| name.starts_with(b".plt"))
                })
                .filter(|section| is_executable(section.flags()))
                .map(|section| section.address()..section.address().saturating_add(section.size()))
                .collect(),
            build_id: elf.build_id().ok().flatten().map(hex),
            leads_elsewhere: debug_link.is_some() || altlink.into_iter().any(named),
            debug_link: debug_link.map(|(name, crc)| (OsString::from_vec(name.to_vec()), crc)),
            has_debug_info: named(".debug_info"),
            compressed_debug_info: ranges(compressed_debug_info).collect(),
            compressed: ranges(compressed).collect(),
            packed_symbols_fit: elf
                .section_by_name_bytes(b".gnu_debugdata")
                .is_none_or(|section| section.data().is_ok_and(unpacks)),
        }
    }

    /// Which parts of `file`, whose layout this is, take a bounded amount of memory: no section unpacks to
    /// more than it claims, and all together to at most [`MOST_UNCOMPRESSED`]. Unpacks them to find out,
    /// unless the file is trusted.
    pub(super) fn bounded(&self, file: &File, trusted: bool) -> Bounded {
        let fits = |ranges: &[CompressedFileRange]| {
            let claims = ranges.iter().map(|range| range.uncompressed_size);
            claims.fold(0, u64::saturating_add) <= MOST_UNCOMPRESSED
        };
        let holds = |ranges: &[CompressedFileRange]| {
            trusted || ranges.iter().all(|range| holds_its_claim(file, range))
        };
        let (debug_info, others) = (&*self.compressed_debug_info, &*self.compressed);
        let symbols = self.packed_symbols_fit && fits(others) && holds(others);
        Bounded {
            symbols,
            debug_info: symbols && fits(debug_info) && holds(debug_info),
            is_cut: !fits(debug_info) || !fits(others),
        }
    }

    pub(super) fn is_elf(&self) -> bool {
        !self.segments.is_empty()
    }

    /// The address in the terms of the ELF file (and its debug file, whose offsets differ).
    pub(super) fn virt_offset(&self, file_offset: u64) -> Option<u64> {
        // Linkers may map the page in which two segments meet into both; code is in the executable
        // one.
        self.segments
            .iter()
            .filter_map(|segment| {
                let distance = file_offset.checked_sub(segment.file_offset)?;
                (distance < segment.file_size).then_some((segment, distance))
            })
            .max_by_key(|(segment, _)| segment.executable)
            .and_then(|(segment, distance)| segment.virt_offset.checked_add(distance))
    }

    /// Offset in the file of an address in the file's terms; bytes.
    pub(super) fn file_offset(&self, virt_offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let distance = virt_offset.checked_sub(segment.virt_offset)?;
            let inside = distance < segment.file_size;
            inside.then(|| segment.file_offset.checked_add(distance))?
        })
    }

    pub(super) fn is_in_plt(&self, virt_offset: u64) -> bool {
        self.plt.iter().any(|range| range.contains(&virt_offset))
    }
}

fn segments<'data>(elf: &impl Object<'data>) -> Vec<Segment> {
    elf.segments()
        .map(|segment| {
            let (file_offset, file_size) = segment.file_range();
            Segment {
                file_offset,
                file_size,
                virt_offset: segment.address(),
                executable: matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags & PF_X == PF_X),
            }
        })
        .collect()
}

fn is_executable(flags: SectionFlags) -> bool {
    matches!(flags, SectionFlags::Elf { sh_flags, .. } if sh_flags & SHF_EXECINSTR == SHF_EXECINSTR)
}

fn is_debug_info(section: &[u8]) -> bool {
    section.starts_with(b".debug_") || section.starts_with(b".zdebug_")
}

/// Whether a compressed section unpacks to exactly the size it claims.
fn holds_its_claim(file: &File, range: &CompressedFileRange) -> bool {
    let packed = Positioned::new(file, range.offset).take(range.compressed_size);
    let unpacked: Box<dyn Read> = match range.format {
        CompressionFormat::Zlib => Box::new(flate2::read::ZlibDecoder::new(packed)),
        CompressionFormat::Zstandard => match zstd::Decoder::new(packed) {
            Ok(decoder) => Box::new(decoder),
            Err(_) => return false,
        },
        // Nor does blazesym unpack it.
        _ => return true,
    };
    let claim = range.uncompressed_size;
    io::copy(&mut unpacked.take(claim.saturating_add(1)), &mut io::sink())
        .is_ok_and(|size| size == claim)
}

/// Whether symbols packed with xz can be unpacked, in a bounded amount of memory.
fn unpacks(packed: &[u8]) -> bool {
    let Ok(stream) = xz2::stream::Stream::new_stream_decoder(MOST_PACKED_SYMBOLS, 0) else {
        return false;
    };
    let decoder = xz2::read::XzDecoder::new_stream(packed, stream);
    let mut bounded = decoder.take(MOST_PACKED_SYMBOLS + 1);
    io::copy(&mut bounded, &mut io::sink()).is_ok_and(|size| size <= MOST_PACKED_SYMBOLS)
}
