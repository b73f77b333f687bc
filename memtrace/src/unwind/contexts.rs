//! Finds the ends of coroutines' stacks.
//!
//! A new context gets a return address below its first function, in code that runs when that
//! function returns. Nothing calls that code, and call frame information does not mark the end of
//! the stack there: Boost's assembler has none, and glibc's begins at the very address, whereas a
//! return address is looked up by the byte before it, as if after a call. So the functions that
//! make contexts are found by name, and the addresses that they use by their instructions.
//!
//! Other coroutines begin in the middle of a stack. The part beyond their first function belongs to
//! others by the time it is read; these functions are found by name alone.

use std::ops::Range;

use object::{
    LittleEndian, ReadRef, elf,
    read::{
        StringTable,
        elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, SectionTable, Sym as _},
    },
};

use super::image::{Header, Segment};
use crate::arch::{Architecture, addresses_taken, words_loaded};

/// Ends of the names of functions that make contexts. Copies have a prefix.
///
/// - `makecontext` of glibc (sysdeps/unix/sysv/linux/x86_64/makecontext.c) takes the address of `__start_context`.
/// - `make_fcontext` of Boost.Context (src/asm/make_x86_64_sysv_elf_gas.S) takes that of `finish`. The coroutines and
///   fibers of Boost and Folly use it; PHP (Zend/asm), brpc (`bthread_make_fcontext`) and Swoole have copies.
const MAKERS: [&str; 2] = ["makecontext", "make_fcontext"];

/// Beginnings of the names of coroutines' outermost functions.
///
/// - greenlet 2.0 and later (src/greenlet/TUserGreenlet.cpp), and gevent on it: a greenlet begins in a copy of the
///   stack of whoever started it, and keeps that part only which is inside.
const OUTERMOST: [&str; 1] = ["_ZN8greenlet12UserGreenlet15inner_bootstrapE"];

/// Longest of these functions that is examined, bytes. The `makecontext` of glibc 2.36 has 656,
/// greenlet's function some 3,000.
const MAX_SIZE: u64 = 1 << 14;

/// Most functions of a file that are examined, and most addresses taken from all of them.
const MAX_FUNCTIONS: usize = 16;
const MAX_ENDS: usize = 64;

/// Coroutine addresses in a file, in the file's terms. Empty for a file without symbols.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Contexts {
    /// Possible return addresses of a context's first function.
    pub(super) ends: Vec<u64>,
    /// Code of outermost functions.
    pub(super) outermost: Vec<Range<u64>>,
}

impl Contexts {
    pub(crate) fn of<'data>(data: impl ReadRef<'data>) -> Contexts {
        Contexts::read(data).unwrap_or_default()
    }

    /// Whether an address is in the outermost function of a coroutine.
    pub(crate) fn is_outermost(&self, vaddr: u64) -> bool {
        self.outermost.iter().any(|range| range.contains(&vaddr))
    }

    fn read<'data, R: ReadRef<'data>>(data: R) -> Option<Contexts> {
        let header = Header::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, data).ok()?;
        let sections = header.sections(endian, data).ok()?;
        let mut found = Contexts::default();
        [elf::SHT_DYNSYM, elf::SHT_SYMTAB]
            .into_iter()
            .flat_map(|table| functions(&sections, table, data).unwrap_or_default())
            .take(MAX_FUNCTIONS)
            .filter_map(|(range, role)| {
                let body = bytes(segments, &range, elf::PF_X, data)?;
                Some((body, range, role))
            })
            .for_each(|(body, range, role)| match role {
                Role::Maker => {
                    let taken = addresses_taken(Architecture::NATIVE, body, range.start);
                    found.ends.extend(taken);
                    let words = words_loaded(Architecture::NATIVE, body, range.start);
                    let word = |at: u64| {
                        let bytes = bytes(segments, &(at..at.checked_add(8)?), elf::PF_R, data)?;
                        Some(u64::from_le_bytes(*bytes.first_chunk()?))
                    };
                    found.ends.extend(words.into_iter().filter_map(word));
                }
                Role::Outermost => found.outermost.push(range),
            });
        // A function in both tables comes twice.
        found.ends.sort_unstable();
        found.ends.dedup();
        found.ends.truncate(MAX_ENDS);
        found.outermost.sort_unstable_by_key(|range| range.start);
        found.outermost.dedup();
        Some(found)
    }
}

enum Role {
    Maker,
    Outermost,
}

impl Role {
    fn of(name: &[u8]) -> Option<Role> {
        if MAKERS.iter().any(|end| name.ends_with(end.as_bytes())) {
            Some(Role::Maker)
        } else if OUTERMOST
            .iter()
            .any(|start| name.starts_with(start.as_bytes()))
        {
            Some(Role::Outermost)
        } else {
            None
        }
    }
}

/// The functions of a symbol table that have a role.
fn functions<'data, R: ReadRef<'data>>(
    sections: &SectionTable<'data, Header, R>,
    table: elf::SectionType,
    data: R,
) -> Option<Vec<(Range<u64>, Role)>> {
    let symbols = sections.symbols(LittleEndian, data, table).ok()?;
    // Names as a whole: one by one they would be read one by one.
    let names = sections.section(symbols.string_section()).ok()?;
    let names = names.data(LittleEndian, data).ok()?;
    let names = StringTable::new(names, 0, names.len() as u64);
    let functions = symbols.iter().filter_map(|symbol| {
        let (start, size) = (symbol.st_value(LittleEndian), symbol.st_size(LittleEndian));
        let defined = symbol.st_type() == elf::STT_FUNC && !symbol.is_undefined(LittleEndian);
        if !defined || !(1..=MAX_SIZE).contains(&size) {
            return None;
        }
        let role = Role::of(symbol.name(LittleEndian, names).ok()?)?;
        Some((start..start.checked_add(size)?, role))
    });
    Some(functions.collect())
}

/// Bytes of a segment that has this flag.
fn bytes<'data>(
    segments: &[Segment],
    range: &Range<u64>,
    flag: elf::ProgramFlags,
    data: impl ReadRef<'data>,
) -> Option<&'data [u8]> {
    let size = range.end - range.start;
    let offset = segments
        .iter()
        .filter(|s| {
            s.p_type(LittleEndian) == elf::PT_LOAD && s.p_flags(LittleEndian).0 & flag.0 != 0
        })
        .find_map(|s| {
            let inside = range.start.checked_sub(s.p_vaddr(LittleEndian))?;
            let left = s.p_filesz(LittleEndian).checked_sub(inside)?;
            (size <= left).then(|| s.p_offset(LittleEndian).checked_add(inside))?
        })?;
    data.read_bytes_at(offset, size).ok()
}
