//! The rule for one address, for a single walk: compiling a large file's table takes seconds.

use super::{
    image::{Cfi, Image, Slice},
    rules::rule,
};
use gimli::{DebugFrame, EhFrame, EhFrameHdr, EhFrameOffset, UnwindContext, UnwindSection};
use memtrace_common::unwind::Rule;
use object::{
    LittleEndian, ReadRef, elf,
    read::elf::{FileHeader as _, ProgramHeader as _},
};

type FrameDescription<'data> = gimli::FrameDescriptionEntry<Slice<'data>>;

/// The rule for finding the caller of the code at an address in the file's terms. `None`: the file
/// has none.
pub(crate) fn rule_at<'data>(file: impl ReadRef<'data>, addr: u64) -> Option<Rule> {
    let image = Image::parse(file).ok()??;
    let bases = &image.bases;
    match &image.cfi {
        Cfi::Eh(section) => {
            let fde = by_index(file, &image, section, addr).or_else(|| {
                section
                    .fde_for_address(bases, addr, EhFrame::cie_from_offset)
                    .ok()
            });
            rule_of(section, &image, &fde?, addr)
        }
        Cfi::Debug(section) => {
            let fde = section.fde_for_address(bases, addr, DebugFrame::cie_from_offset);
            rule_of(section, &image, &fde.ok()?, addr)
        }
    }
}

/// By the binary search table in `.eh_frame_hdr`.
fn by_index<'data>(
    file: impl ReadRef<'data>,
    image: &Image<'data>,
    section: &EhFrame<Slice<'data>>,
    addr: u64,
) -> Option<FrameDescription<'data>> {
    let header = elf::FileHeader64::<LittleEndian>::parse(file).ok()?;
    let segments = header.program_headers(LittleEndian, file).ok()?;
    let segment = segments
        .iter()
        .find(|segment| segment.p_type(LittleEndian) == elf::PT_GNU_EH_FRAME)?;
    let bytes = segment.data(LittleEndian, file).ok()?;
    // gimli multiplies a larger number of entries without a check. Every linker writes four bytes.
    if bytes.get(2) != Some(&gimli::DW_EH_PE_udata4.0) {
        return None;
    }
    let bases = image
        .bases
        .clone()
        .set_eh_frame_hdr(segment.p_vaddr(LittleEndian));
    let index = EhFrameHdr::new(bytes, gimli::LittleEndian)
        .parse(&bases, 8)
        .ok()?;
    let direct = |pointer: gimli::Pointer| pointer.direct().ok();
    let found = direct(index.table()?.lookup(addr, &bases).ok()?)?;
    // gimli's own search subtracts without a check.
    let offset = found.checked_sub(direct(index.eh_frame_ptr())?)?;
    let offset = EhFrameOffset(usize::try_from(offset).ok()?);
    let fde = section
        .fde_from_offset(&bases, offset, EhFrame::cie_from_offset)
        .ok()?;
    fde.contains(addr).then_some(fde)
}

fn rule_of<'data, S: UnwindSection<Slice<'data>>>(
    section: &S,
    image: &Image<'data>,
    fde: &FrameDescription<'data>,
    addr: u64,
) -> Option<Rule> {
    let mut context = UnwindContext::new();
    let row = fde
        .unwind_info_for_address(section, &image.bases, &mut context, addr)
        .ok()?;
    Some(rule(section, fde.cie(), row))
}

#[cfg(test)]
mod tests {
    use super::{super::tests::library, *};
    use crate::unwind::Table;

    #[test]
    fn one_rule_is_the_one_of_the_table() {
        let bytes = std::fs::read(library("libc.so.6")).unwrap();
        let table = Table::compile(&*bytes).unwrap().unwrap();
        let from = u64::from(table.exec.first_page) << 16;
        let mut rules = 0;
        for addr in (from..from + (1 << 18)).step_by(997) {
            let Some(rule) = rule_at(&*bytes, addr) else {
                continue;
            };
            assert_eq!(table.lookup(addr), rule, "{addr:#x}");
            rules += 1;
        }
        assert!(rules > 100, "{rules} addresses have a rule");
    }
}
