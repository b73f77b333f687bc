//! Parses the parts of an ELF file that memtrace uses: identity, dependencies, function symbols and
//! the mapping from addresses to file offsets. Any bytes are accepted: a malformed file is an error
//! or has fewer symbols, never a panic.

mod error;
mod symbols;
#[cfg(test)]
mod tests;

pub(crate) use self::error::ElfError;
use self::symbols::{Sections, Symbol, Symbols, name_of};
use object::Endianness;
use object::elf;
use object::read::elf::{
    Dyn as _, FileHeader as _, Note, NoteIterator, ProgramHeader as _, Rela as _,
    SectionHeader as _, Sym as _,
};
use object::read::{ReadRef as _, StringTable};
use std::ops::Range;

use crate::{
    arch::{self, Architecture},
    file::{Bytes, Source, hex},
};

/// One loaded segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Address before relocation.
    pub virt: u64,
    /// Offset into the file, bytes.
    pub file_offset: u64,
    /// Bytes that come from the file.
    pub file_size: u64,
    /// Bytes in memory: the rest begins as zeros.
    pub memory_size: u64,
    pub write: bool,
    pub execute: bool,
}

/// A defined function with an address in an executable segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FunctionSymbol<'data> {
    /// Mangled, without version.
    pub name: &'data str,
    /// Address before relocation.
    pub virt: u64,
    /// Offset into the file, bytes.
    pub file_offset: u64,
    /// Bytes; 0 if the symbol table does not contain it.
    pub size: u64,
}

/// A defined variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variable<'data> {
    /// Mangled, without version.
    pub name: &'data str,
    /// Address before relocation; of a thread-local variable, offset in the file's thread-local storage.
    pub virt: u64,
    /// Bytes; 0 if the symbol table does not contain it.
    pub size: u64,
}

/// Thread-local storage: each thread has a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadLocal {
    /// Bytes.
    pub size: u64,
    /// Bytes.
    pub alignment: u64,
}

/// Description of a statically defined probe, as systemtap's `sys/sdt.h` makes it. Addresses are before relocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsdtNote<'data> {
    pub provider: &'data str,
    pub name: &'data str,
    /// The instruction to probe.
    pub virt: u64,
    /// A 16-bit counter of observers; the probe passes its arguments only while it is not 0.
    pub semaphore: Option<u64>,
    /// Separated by spaces, each `SIZE@OPERAND` in the assembler's syntax.
    pub arguments: &'data str,
}

/// Type of those notes.
const NT_STAPSDT: elf::NoteType = elf::NoteType(3);

impl<'data> UsdtNote<'data> {
    /// Three addresses and three strings. The second address is that of `.stapsdt.base` when the
    /// first and third were noted (prelinking moves it); `base` is its actual address.
    fn parse(desc: &'data [u8], base: Option<u64>) -> Option<Self> {
        let (words, strings) = desc.split_at_checked(3 * 8)?;
        let word = |at: usize| {
            words[at * 8..]
                .first_chunk()
                .map(|&word| u64::from_le_bytes(word))
        };
        let moved = match (base, word(1)?) {
            (Some(base), noted) if noted != 0 => base.wrapping_sub(noted),
            _ => 0,
        };
        let mut strings = strings.split(|&byte| byte == 0);
        let mut string = || std::str::from_utf8(strings.next()?).ok();
        Some(Self {
            provider: string()?,
            name: string()?,
            virt: word(0)?.wrapping_add(moved),
            semaphore: word(2)
                .filter(|&at| at != 0)
                .map(|at| at.wrapping_add(moved)),
            arguments: string()?,
        })
    }
}

/// A parsed file.
pub(crate) struct Elf<'data> {
    data: Bytes<'data>,
    endian: Endianness,
    sections: Sections<'data>,
    dynamic_symbols: Symbols<'data>,
    /// All of them, unless the file was stripped.
    symbols: Symbols<'data>,
    programs: &'data [elf::ProgramHeader64<Endianness>],
    segments: Vec<Segment>,
    pub architecture: Architecture,
    /// Lower-case hex.
    pub build_id: Option<String>,
    pub soname: Option<String>,
    /// DT_NEEDED, in the loader's order.
    pub needed: Vec<String>,
}

impl<'data> Elf<'data> {
    /// Reads the headers of a 64-bit file. Broken notes and a broken dynamic section only lose
    /// their own information.
    pub(crate) fn parse(source: &'data (dyn Source + 'data)) -> Result<Elf<'data>, ElfError> {
        let data = Bytes(source);
        match data.read_bytes_at(0, 5) {
            Ok([0x7f, b'E', b'L', b'F', 2]) => {}
            Ok([0x7f, b'E', b'L', b'F', 1]) => return Err(ElfError::NotSupported),
            _ => return Err(ElfError::NotElf),
        }
        let header = elf::FileHeader64::<Endianness>::parse(data)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, data)?;
        let mut segments = Vec::new();
        let mut dynamic = None;
        let programs = header.program_headers(endian, data)?;
        for header in programs {
            match header.p_type(endian) {
                elf::PT_LOAD => segments.push(Segment {
                    virt: header.p_vaddr(endian),
                    file_offset: header.p_offset(endian),
                    file_size: header.p_filesz(endian),
                    memory_size: header.p_memsz(endian),
                    write: header.p_flags(endian).0 & elf::PF_W.0 != 0,
                    execute: header.p_flags(endian).0 & elf::PF_X.0 != 0,
                }),
                elf::PT_DYNAMIC => dynamic = header.dynamic(endian, data).ok().flatten(),
                _ => {}
            }
        }
        let mut elf = Elf {
            data,
            endian,
            architecture: architecture(header.e_machine(endian)),
            dynamic_symbols: Symbols::find(&sections, endian, elf::SHT_DYNSYM)?,
            symbols: Symbols::find(&sections, endian, elf::SHT_SYMTAB)?,
            sections,
            programs,
            segments,
            build_id: None,
            soname: None,
            needed: Vec::new(),
        };
        elf.build_id = elf.gnu_build_id().map(hex);
        elf.read_dynamic(dynamic.unwrap_or_default());
        Ok(elf)
    }

    /// The loaded segments, in file order.
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Offset into the file of an address before relocation; `None` outside the parts of segments
    /// that come from the file.
    pub(crate) fn file_offset(&self, virt: u64) -> Option<u64> {
        let segment = self.segment_of(virt)?;
        segment.file_offset.checked_add(virt - segment.virt)
    }

    /// Up to `len` bytes of an executable segment from `file_offset` on.
    pub(crate) fn code(&self, file_offset: u64, len: u64) -> &'data [u8] {
        let end = self.segments.iter().find_map(|segment| {
            let end = segment.file_offset.checked_add(segment.file_size)?;
            (segment.execute && (segment.file_offset..end).contains(&file_offset)).then_some(end)
        });
        let bytes = end.and_then(|end| {
            let end = end
                .min(file_offset.saturating_add(len))
                .min(self.data.len().ok()?);
            let len = end.checked_sub(file_offset)?;
            self.data.read_bytes_at(file_offset, len).ok()
        });
        bytes.unwrap_or_default()
    }

    /// The section that has the code at an offset into the file, or in a file without sections the segment; offsets into the
    /// file, empty if there is none.
    pub(crate) fn code_around(&self, file_offset: u64) -> Range<u64> {
        let endian = self.endian;
        let sections = self.sections.iter().map(|section| {
            let start = section.sh_offset(endian);
            let is_code = section.sh_flags(endian).0 & elf::SHF_EXECINSTR.0 != 0;
            (
                is_code,
                start..start.saturating_add(section.sh_size(endian)),
            )
        });
        let segments = self.segments.iter().map(|segment| {
            let start = segment.file_offset;
            (
                segment.execute,
                start..start.saturating_add(segment.file_size),
            )
        });
        let mut code = sections.chain(segments);
        let around = code.find(|(is_code, range)| *is_code && range.contains(&file_offset));
        around.map(|(_, range)| range).unwrap_or_default()
    }

    /// Fills the buffer with what is in the file from an offset on.
    pub(crate) fn copy(&self, file_offset: u64, buffer: &mut [u8]) -> Option<()> {
        self.data.0.copy(file_offset, buffer)
    }

    /// The functions that the file defines, dynamic symbols first; a function
    /// in both tables comes twice. Undefined symbols and IFUNCs (whose address
    /// is their resolver's) are left out, as are names that are too long or not UTF-8.
    pub(crate) fn functions(&self) -> impl Iterator<Item = FunctionSymbol<'data>> {
        self.functions_of(&self.dynamic_symbols)
            .chain(self.functions_of(&self.symbols))
    }

    /// The functions that the dynamic loader can bind other files to.
    pub(crate) fn exported_functions(&self) -> impl Iterator<Item = FunctionSymbol<'data>> {
        self.functions_of(&self.dynamic_symbols)
    }

    /// Names of all symbols, defined here or not.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'data str> {
        self.all_symbols(|_| true).map(|(_, name)| name)
    }

    pub(crate) fn has_section(&self, name: &str) -> bool {
        self.sections
            .section_by_name(self.endian, name.as_bytes())
            .is_some()
    }

    /// Name of the function whose address the loader puts into the word at
    /// `virt`, a slot of the global offset table.
    pub(crate) fn bound_function(&self, virt: u64) -> Option<&'data str> {
        let relocation = self.relocation(virt)?;
        let index = relocation.r_sym(self.endian, false);
        let symbol = self.dynamic_symbols.get(self.data, index.into())?;
        name_of(&symbol, self.names_of(&self.dynamic_symbols), self.endian)
    }

    /// Whether the loader puts a variable's offset from the thread pointer into the word at `virt`.
    pub(crate) fn is_thread_offset(&self, virt: u64) -> bool {
        let mut relocations = self.relocations();
        relocations.any(|it| {
            it.r_offset(self.endian) == virt && it.r_type(self.endian, false) == arch::THREAD_OFFSET
        })
    }

    /// Where the pointer at `virt` leads once the file is loaded, an address before relocation; `None` if that is not the
    /// file's own, or the pointer is none.
    pub(crate) fn pointer(&self, virt: u64) -> Option<u64> {
        let target = match self.relocation(virt) {
            Some(relocation) if relocation.r_sym(self.endian, false) == 0 => {
                relocation.r_addend(self.endian).cast_unsigned()
            }
            Some(_) => return None,
            // It never moves, or the word itself has the address (DT_RELR).
            None => u64::from_le_bytes(self.initial(virt, 8)?.try_into().ok()?),
        };
        (target != 0).then_some(target)
    }

    /// The variables that the file defines with an address in a segment, dynamic symbols first.
    pub(crate) fn variables(&self) -> impl Iterator<Item = Variable<'data>> {
        self.data_symbols(elf::STT_OBJECT)
    }

    /// The thread-local variables that the file defines, dynamic symbols first.
    pub(crate) fn thread_local_variables(&self) -> impl Iterator<Item = Variable<'data>> {
        self.data_symbols(elf::STT_TLS)
    }

    /// The file's thread-local storage, if it has any.
    pub(crate) fn thread_local(&self) -> Option<ThreadLocal> {
        let endian = self.endian;
        let header = self
            .programs
            .iter()
            .find(|header| header.p_type(endian) == elf::PT_TLS)?;
        Some(ThreadLocal {
            size: header.p_memsz(endian),
            alignment: header.p_align(endian),
        })
    }

    /// Name and address, before relocation, of the section in memory that contains `virt`.
    pub(crate) fn section_of(&self, virt: u64) -> Option<(&'data str, u64)> {
        let endian = self.endian;
        let sections = &self.sections;
        let section = sections.iter().find(|section| {
            let inside = virt.checked_sub(section.sh_addr(endian));
            // `.tbss` takes no room in the image.
            let flags = section.sh_flags(endian).0;
            flags & elf::SHF_ALLOC.0 != 0
                && flags & elf::SHF_TLS.0 == 0
                && inside.is_some_and(|inside| inside < section.sh_size(endian))
        })?;
        let name = sections.section_name(endian, section).ok()?;
        Some((std::str::from_utf8(name).ok()?, section.sh_addr(endian)))
    }

    fn data_symbols(&self, kind: elf::SymbolType) -> impl Iterator<Item = Variable<'data>> {
        let endian = self.endian;
        let is_wanted =
            move |symbol: &Symbol| symbol.st_type() == kind && !symbol.is_undefined(endian);
        self.all_symbols(is_wanted)
            .map(move |(symbol, name)| Variable {
                name,
                virt: symbol.st_value(endian),
                size: symbol.st_size(endian),
            })
    }

    /// `len` bytes that the file has for `virt`, an address before relocation.
    pub(crate) fn initial(&self, virt: u64, len: usize) -> Option<&'data [u8]> {
        let segment = self.segment_of(virt)?;
        let inside = virt - segment.virt;
        if len as u64 > segment.file_size - inside {
            return None;
        }
        let start = segment.file_offset.checked_add(inside)?;
        self.data.read_bytes_at(start, len as u64).ok()
    }

    /// The statically defined probes (USDT) that the file describes. A damaged one ends its
    /// section, a meaningless one is skipped.
    pub(crate) fn usdt(&self) -> impl Iterator<Item = UsdtNote<'data>> {
        let endian = self.endian;
        let sections = &self.sections;
        let base = sections
            .section_by_name(endian, b".stapsdt.base")
            .map(|(_, section)| section.sh_addr(endian));
        let notes = sections
            .iter()
            .filter_map(move |section| section.notes(endian, self.data).ok().flatten());
        notes
            .flat_map(|mut notes| std::iter::from_fn(move || notes.next().ok().flatten()))
            .filter(move |note| note.name() == b"stapsdt" && note.n_type(endian) == NT_STAPSDT)
            .filter_map(move |note| UsdtNote::parse(note.desc(), base))
    }

    /// The file's contents of each of its segments.
    pub(crate) fn contents(&self) -> impl Iterator<Item = &'data [u8]> {
        self.segments.iter().filter_map(|segment| {
            self.data
                .read_bytes_at(segment.file_offset, segment.file_size)
                .ok()
        })
    }

    /// The whole file, to be read from.
    pub(crate) fn data(&self) -> Bytes<'data> {
        self.data
    }

    fn functions_of(&self, table: &Symbols<'data>) -> impl Iterator<Item = FunctionSymbol<'data>> {
        let endian = self.endian;
        let is_wanted = move |symbol: &Symbol| {
            let segment = || self.segment_of(symbol.st_value(endian));
            symbol.st_type() == elf::STT_FUNC
                && !symbol.is_undefined(endian)
                && segment().is_some_and(|segment| segment.execute)
        };
        self.symbols_of(table, is_wanted)
            .filter_map(move |(symbol, name)| {
                let virt = symbol.st_value(endian);
                Some(FunctionSymbol {
                    name,
                    virt,
                    file_offset: self.file_offset(virt)?,
                    size: symbol.st_size(endian),
                })
            })
    }

    /// The symbols that are wanted, with their names, dynamic ones first.
    fn all_symbols(
        &self,
        is_wanted: impl Fn(&Symbol) -> bool + Copy,
    ) -> impl Iterator<Item = (Symbol, &'data str)> {
        [&self.dynamic_symbols, &self.symbols]
            .into_iter()
            .flat_map(move |table| self.symbols_of(table, is_wanted))
    }

    /// A symbol whose name cannot be read is left out.
    fn symbols_of(
        &self,
        table: &Symbols<'data>,
        is_wanted: impl Fn(&Symbol) -> bool,
    ) -> impl Iterator<Item = (Symbol, &'data str)> {
        let names = self.names_of(table);
        let wanted = table.iter(self.data).filter(is_wanted);
        wanted.filter_map(move |symbol| {
            let name = name_of(&symbol, names, self.endian)?;
            Some((symbol, name))
        })
    }

    fn names_of(&self, table: &Symbols<'data>) -> &'data [u8] {
        table.names(&self.sections, self.endian, self.data)
    }

    /// What the loader puts into the word at `virt`.
    fn relocation(&self, virt: u64) -> Option<elf::Rela64<Endianness>> {
        self.relocations()
            .find(|it| it.r_offset(self.endian) == virt)
    }

    /// The relocations of the loader.
    fn relocations(&self) -> impl Iterator<Item = elf::Rela64<Endianness>> {
        let endian = self.endian;
        let sections = self.sections.iter().filter(move |section| {
            section.sh_type(endian) == elf::SHT_RELA
                && section.link(endian) == self.dynamic_symbols.section
        });
        sections
            .filter_map(move |section| section.data_as_array(endian, self.data).ok())
            .flat_map(|relocations: &[_]| relocations.iter().copied())
    }

    /// From the sections, or without any from the segments.
    fn gnu_build_id(&self) -> Option<&'data [u8]> {
        let (endian, data) = (self.endian, self.data);
        let of = |mut notes: NoteIterator<'data, _>| {
            let mut notes = std::iter::from_fn(|| notes.next().ok().flatten());
            let is_wanted = |note: &Note<'_, _>| {
                note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID
            };
            notes.find(is_wanted).map(|note| note.desc())
        };
        if self.sections.is_empty() {
            let notes =
                |header: &elf::ProgramHeader64<_>| header.notes(endian, data).ok().flatten();
            self.programs.iter().filter_map(notes).find_map(of)
        } else {
            let notes =
                |section: &elf::SectionHeader64<_>| section.notes(endian, data).ok().flatten();
            self.sections.iter().filter_map(notes).find_map(of)
        }
    }

    fn segment_of(&self, virt: u64) -> Option<&Segment> {
        self.segments.iter().find(|segment| {
            virt.checked_sub(segment.virt)
                .is_some_and(|inside| inside < segment.file_size)
        })
    }

    /// The dynamic section by the program headers, as the loader finds it: a
    /// file without section headers has it too.
    fn read_dynamic(&mut self, dynamic: &[elf::Dyn64<Endianness>]) {
        let endian = self.endian;
        let value = |tag: elf::DynamicTag| {
            dynamic
                .iter()
                .take_while(|entry| entry.d_tag(endian) != elf::DT_NULL)
                .filter(move |entry| entry.d_tag(endian) == tag)
                .map(|entry| entry.d_val(endian))
        };
        let strings = value(elf::DT_STRTAB).next().and_then(|virt| {
            let start = self.file_offset(virt)?;
            let end = start.checked_add(value(elf::DT_STRSZ).next()?)?;
            Some(StringTable::new(self.data, start, end))
        });
        let Some(strings) = strings else { return };
        let string = |offset: u64| Some(text(strings.get(u32::try_from(offset).ok()?).ok()?));
        let soname = value(elf::DT_SONAME).next().and_then(string);
        let needed = value(elf::DT_NEEDED).filter_map(string).collect();
        self.soname = soname;
        self.needed = needed;
    }
}

fn architecture(machine: elf::Machine) -> Architecture {
    match machine {
        elf::EM_X86_64 => Architecture::X86_64,
        elf::EM_AARCH64 => Architecture::Aarch64,
        other => Architecture::Other(other.0),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Reads all code, values and notes that a file describes.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_all<'data>(source: &'data (dyn Source + 'data)) -> usize {
    let Ok(elf) = Elf::parse(source) else {
        return 0;
    };
    let functions = elf.functions().map(|it| elf.code(it.file_offset, it.size));
    let code = functions.map(<[u8]>::len);
    let values = elf
        .variables()
        .filter_map(|variable| Some(elf.initial(variable.virt, 4)?.len()));
    let notes = elf.usdt().map(|note| note.arguments.len());
    code.chain(values).chain(notes).sum()
}
