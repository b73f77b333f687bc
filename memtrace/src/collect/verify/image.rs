//! A file's call frame information, read without memtrace's own unwinder.

use std::{collections::HashMap, fs::File, sync::Arc};

use framehop::{ExplicitModuleSectionInfo, Module};
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, Operation, Register,
    RegisterRule, UnwindContext, UnwindExpression, UnwindSection,
};
use object::{Object, ObjectSection};

use super::mapped::Mapped;
use crate::{
    arch,
    file::FileBytes,
    process::elf::{Elf, Segment},
    unwind::Contexts,
};

type Slice<'data> = EndianSlice<'data, LittleEndian>;

/// Bytes of a section.
#[derive(Clone)]
pub(super) struct Section(Arc<[u8]>);

impl std::ops::Deref for Section {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// What to expect of `framehop` at an address. If it finds no call frame information, or none that
/// it supports, it follows the frame pointer silently: a guess, which must not count as true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cfi {
    /// None covers the address.
    Missing,
    /// Beyond `framehop` (memory operands, registers other than sp and fp).
    NotDone,
    /// The outermost function of a coroutine, known by name; `framehop` would continue.
    Outermost,
    /// A signal handler's return code; `framehop` knows nothing of those.
    Signal,
    /// A rule that it applies unchanged, with a canonical frame address at this offset of sp or fp;
    /// `None` if an expression computes it.
    Rule(Option<(Base, i64)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Sp,
    Fp,
}

pub(super) struct Image {
    pub(super) path: String,
    segments: Vec<Segment>,
    eh_frame: Option<(Section, u64)>,
    eh_frame_hdr: Option<(Section, u64)>,
    text: u64,
    contexts: Contexts,
    known: HashMap<u64, Cfi>,
}

impl Image {
    /// A file that cannot be read has no call frame information.
    pub(super) fn open(path: String, file: &File) -> Image {
        let mut image = Image {
            path,
            segments: Vec::new(),
            eh_frame: None,
            eh_frame_hdr: None,
            text: 0,
            contexts: Contexts::default(),
            known: HashMap::new(),
        };
        let bytes = FileBytes::new(file);
        image.contexts = Contexts::of(&bytes);
        if let Ok(elf) = Elf::parse(&bytes) {
            image.segments = elf.segments().to_vec();
        }
        if let Ok(elf) = object::read::elf::ElfFile64::<object::LittleEndian, _>::parse(&bytes) {
            let section = |name| {
                let section = elf.section_by_name(name)?;
                let data = section.data().ok()?;
                (!data.is_empty()).then(|| (Section(data.into()), section.address()))
            };
            image.eh_frame = section(".eh_frame");
            image.eh_frame_hdr = section(".eh_frame_hdr");
            image.text = elf
                .section_by_name(".text")
                .map_or(0, |section| section.address());
        }
        image
    }

    /// Absolute address − address in the file's terms, of a mapping.
    pub(super) fn bias(&self, mapped: &Mapped) -> Option<u64> {
        let segment = self.segments.iter().find(|segment| {
            let page = segment.file_offset & !4095;
            segment.execute
                && (page..segment.file_offset + segment.file_size).contains(&mapped.file_offset)
        })?;
        Some(
            mapped
                .start
                .wrapping_sub(mapped.file_offset)
                .wrapping_add(segment.file_offset)
                .wrapping_sub(segment.virt),
        )
    }

    /// Description of a mapping for `framehop`.
    pub(super) fn module(&self, mapped: &Mapped) -> Option<Module<Section>> {
        let base = self.bias(mapped)?;
        let range = |(section, address): &(Section, u64)| {
            *address..address.saturating_add(section.len() as u64)
        };
        let data =
            |section: &Option<(Section, u64)>| section.as_ref().map(|(data, _)| data.clone());
        let sections = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: Some(self.text..self.text),
            eh_frame_svma: self.eh_frame.as_ref().map(range),
            eh_frame: data(&self.eh_frame),
            eh_frame_hdr_svma: self.eh_frame_hdr.as_ref().map(range),
            eh_frame_hdr: data(&self.eh_frame_hdr),
            text: None,
            stubs_svma: None,
            stub_helper_svma: None,
            got_svma: None,
            unwind_info: None,
            debug_frame: None,
            text_segment_svma: None,
            text_segment: None,
        };
        Some(Module::new(
            self.path.clone(),
            mapped.start..mapped.end,
            base,
            sections,
        ))
    }

    /// See [`Cfi`]; `vaddr` as the file means it.
    pub(super) fn cfi(&mut self, vaddr: u64) -> Cfi {
        if let Some(&known) = self.known.get(&vaddr) {
            return known;
        }
        let cfi = match self.contexts.is_outermost(vaddr) {
            true => Cfi::Outermost,
            false => self.find(vaddr).unwrap_or(Cfi::Missing),
        };
        self.known.insert(vaddr, cfi);
        cfi
    }

    fn find(&self, vaddr: u64) -> Option<Cfi> {
        let (bytes, address) = self.eh_frame.as_ref()?;
        let mut section = EhFrame::new(bytes, LittleEndian);
        section.set_address_size(8);
        section.set_vendor(arch::VENDOR);
        let mut bases = BaseAddresses::default()
            .set_eh_frame(*address)
            .set_text(self.text);
        let cie = EhFrame::<Slice<'_>>::cie_from_offset;
        let fde = match &self.eh_frame_hdr {
            Some((bytes, address)) => {
                bases = bases.set_eh_frame_hdr(*address);
                let header = EhFrameHdr::new(bytes, LittleEndian).parse(&bases, 8).ok()?;
                header
                    .table()?
                    .fde_for_address(&section, &bases, vaddr, cie)
                    .ok()?
            }
            None => section.fde_for_address(&bases, vaddr, cie).ok()?,
        };
        if fde.is_signal_trampoline() {
            return Some(Cfi::Signal);
        }
        let mut context = UnwindContext::new();
        let row = fde
            .unwind_info_for_address(&section, &bases, &mut context, vaddr)
            .ok()?;
        let plain = |expression: UnwindExpression<usize>| {
            let Ok(expression) = expression.get(&section) else {
                return false;
            };
            let mut operations = expression.operations(fde.cie().encoding());
            loop {
                match operations.next() {
                    Ok(None) => return true,
                    Ok(Some(Operation::Deref { .. })) | Err(_) => return false,
                    Ok(Some(Operation::RegisterOffset { register, .. })) if !has(register) => {
                        return false;
                    }
                    Ok(Some(_)) => {}
                }
            }
        };
        let done = |rule: Option<RegisterRule<usize>>| match rule {
            None
            | Some(
                RegisterRule::Undefined
                | RegisterRule::SameValue
                | RegisterRule::Offset(_)
                | RegisterRule::ValOffset(_),
            ) => true,
            Some(RegisterRule::Register(register)) => has(register),
            Some(
                RegisterRule::Expression(expression) | RegisterRule::ValExpression(expression),
            ) => plain(expression),
            Some(_) => false,
        };
        // A missing rule for the return address does not mean that there is none.
        if row.register(arch::PC).is_none()
            // Above the CFA: that is not the caller's stack pointer.
            || matches!(row.register(arch::PC), Some(RegisterRule::Offset(0..)))
            || !done(row.register(arch::PC))
            || !done(row.register(arch::FP))
        {
            return Some(Cfi::NotDone);
        }
        Some(match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => match *register {
                arch::SP => Cfi::Rule(Some((Base::Sp, *offset))),
                arch::FP => Cfi::Rule(Some((Base::Fp, *offset))),
                _ => Cfi::NotDone,
            },
            CfaRule::Expression(expression) if plain(*expression) => Cfi::Rule(None),
            CfaRule::Expression(_) => Cfi::NotDone,
        })
    }
}

/// The registers that `framehop` knows the values of.
fn has(register: Register) -> bool {
    [arch::SP, arch::FP, arch::PC].contains(&register)
}
