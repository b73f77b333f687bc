//! Finds the call frame information of an ELF image.

use super::CompileError;
use crate::arch;
use gimli::{BaseAddresses, DebugFrame, EhFrame, EhFrameHdr, EndianSlice, Vendor};
use object::{
    LittleEndian, ReadRef, elf,
    read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _, SectionHeader as _},
};
use std::ops::Range;

pub(super) type Slice<'data> = EndianSlice<'data, gimli::LittleEndian>;
pub(super) type Header = elf::FileHeader64<LittleEndian>;
pub(super) type Segment = elf::ProgramHeader64<LittleEndian>;

/// Bytes of an address in the files that are read.
const ADDRESS_SIZE: u8 = 8;

/// Most executable segments that are examined; linkers make one or two.
const MAX_CODE: usize = 256;

/// Longest rest of a segment that is taken for call frame information, bytes.
const MAX_REST: u64 = 256 << 20;

/// Input of a table: an ELF file, or an image of one in memory whose file offsets hold (the vDSO).
pub(super) struct Image<'data> {
    pub(super) cfi: Cfi<'data>,
    pub(super) bases: BaseAddresses,
    /// Addresses of the executable segments.
    code: Vec<Range<u64>>,
    /// The kernel's entry point, if it starts the program here.
    pub(super) entry: Option<u64>,
}

pub(super) enum Cfi<'data> {
    Eh(EhFrame<Slice<'data>>),
    Debug(DebugFrame<Slice<'data>>),
}

impl<'data> Image<'data> {
    /// `None`: the file has no call frame information.
    pub(super) fn parse<R: ReadRef<'data>>(data: R) -> Result<Option<Image<'data>>, CompileError> {
        let header = Header::parse(data)?;
        let endian = header.endian()?;
        let machine = header.e_machine(endian);
        if machine != arch::ELF_MACHINE {
            return Err(CompileError::Machine(machine.0));
        }
        let segments = header.program_headers(endian, data)?;
        let Some((cfi, bases)) = find(header, segments, data) else {
            return Ok(None);
        };
        let code = segments
            .iter()
            .filter(|s| s.p_type(endian) == elf::PT_LOAD && s.p_flags(endian).0 & elf::PF_X.0 != 0)
            .map(|s| s.p_vaddr(endian)..s.p_vaddr(endian).saturating_add(s.p_memsz(endian)))
            .take(MAX_CODE)
            .collect();
        let entry = header.e_entry(endian);
        Ok(Some(Image {
            cfi,
            bases,
            code,
            entry: (entry != 0 && starts_programs(segments, data)).then_some(entry),
        }))
    }

    /// The executable segment that holds `addr`. Linkers leave functions that they
    /// discarded in `.debug_frame`, at addresses outside.
    pub(super) fn code_at(&self, addr: u64) -> Option<&Range<u64>> {
        self.code.iter().find(|range| range.contains(&addr))
    }
}

/// Whether it names an interpreter, or is not a library: a program, or the dynamic loader. The
/// entry points of other libraries mean nothing; linkers put the beginning of `.text` there.
fn starts_programs<'data>(segments: &[Segment], data: impl ReadRef<'data>) -> bool {
    let has = |kind| segments.iter().any(|s| s.p_type(LittleEndian) == kind);
    let needs_libraries = segments
        .iter()
        .filter_map(|segment| segment.dynamic(LittleEndian, data).ok().flatten())
        .flatten()
        .any(|entry| entry.d_tag(LittleEndian) == elf::DT_NEEDED);
    has(elf::PT_INTERP) || !needs_libraries
}

fn find<'data>(
    header: &Header,
    segments: &[Segment],
    data: impl ReadRef<'data>,
) -> Option<(Cfi<'data>, BaseAddresses)> {
    let sections = header.sections(LittleEndian, data).unwrap_or_default();
    let section = |name: &[u8]| {
        let (_, section) = sections.section_by_name(LittleEndian, name)?;
        let compressed = section.sh_flags(LittleEndian).0 & elf::SHF_COMPRESSED.0 != 0;
        let bytes = section.data(LittleEndian, data).ok()?;
        (!compressed && !bytes.is_empty()).then(|| (section.sh_addr(LittleEndian), bytes))
    };
    let mut bases = BaseAddresses::default();
    if let Some((text, _)) = section(b".text") {
        bases = bases.set_text(text);
    }
    if let Some((addr, bytes)) = section(b".eh_frame").or_else(|| by_segment(segments, data)) {
        let mut cfi = EhFrame::new(bytes, gimli::LittleEndian);
        cfi.set_address_size(ADDRESS_SIZE);
        cfi.set_vendor(vendor(header));
        return Some((Cfi::Eh(cfi), bases.set_eh_frame(addr)));
    }
    let (_, bytes) = section(b".debug_frame")?;
    let mut cfi = DebugFrame::new(bytes, gimli::LittleEndian);
    cfi.set_address_size(ADDRESS_SIZE);
    cfi.set_vendor(vendor(header));
    Some((Cfi::Debug(cfi), bases))
}

/// Whose instructions call frame information may have: aarch64's say where return addresses are signed (DWARF for the Arm
/// 64-bit Architecture, section 4.4).
fn vendor(header: &Header) -> Vendor {
    match header.e_machine(LittleEndian) {
        elf::EM_AARCH64 => Vendor::AArch64,
        _ => Vendor::Default,
    }
}

/// `.eh_frame` of a file without section headers: PT_GNU_EH_FRAME is `.eh_frame_hdr`, which points
/// to it (Linux Standard Base Core, section 10.6). It ends somewhere in its segment.
fn by_segment<'data>(
    segments: &[Segment],
    data: impl ReadRef<'data>,
) -> Option<(u64, &'data [u8])> {
    let header = segments
        .iter()
        .find(|s| s.p_type(LittleEndian) == elf::PT_GNU_EH_FRAME)?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.p_vaddr(LittleEndian));
    let bytes = header.data(LittleEndian, data).ok()?;
    let addr = EhFrameHdr::new(bytes, gimli::LittleEndian)
        .parse(&bases, ADDRESS_SIZE)
        .ok()?
        .eh_frame_ptr()
        .direct()
        .ok()?;
    segments
        .iter()
        .filter(|s| s.p_type(LittleEndian) == elf::PT_LOAD)
        .find_map(|segment| {
            let start = addr.checked_sub(segment.p_vaddr(LittleEndian))?;
            let len = segment.p_filesz(LittleEndian).checked_sub(start)?;
            let offset = segment.p_offset(LittleEndian).checked_add(start)?;
            let bytes = data.read_bytes_at(offset, len.min(MAX_REST)).ok()?;
            (!bytes.is_empty()).then_some((addr, bytes))
        })
}
