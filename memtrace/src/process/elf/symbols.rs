//! Reads symbol tables a piece at a time: the tables of a tenant's file take any size.

use super::error::ElfError;
use crate::file::{Bytes, MOST_READ};
use object::{
    Endianness, SectionIndex, elf, pod,
    read::{
        StringTable,
        elf::{SectionHeader as _, SectionTable},
    },
};
use std::cell::OnceCell;

pub(super) type Sections<'data> = SectionTable<'data, elf::FileHeader64<Endianness>, Bytes<'data>>;
pub(super) type Symbol = elf::Sym64<Endianness>;

/// Size of a symbol in the file, bytes.
const SIZE: u64 = size_of::<Symbol>() as u64;

/// How many are read at a time.
const PIECE: u64 = 1 << 14;

/// Most bytes of a name: each of millions of symbols may have a name without an end.
const MOST_NAME: usize = 1 << 12;

/// A symbol table; empty if the file has none of its kind.
pub(super) struct Symbols<'data> {
    /// Which section it is.
    pub section: SectionIndex,
    /// Offset into the file, bytes.
    offset: u64,
    count: u64,
    /// The section of the names.
    names_section: SectionIndex,
    /// Read as a whole, once.
    names: OnceCell<&'data [u8]>,
}

/// Reads `count` symbols of the table at `offset`, from the one with the number `first` on.
fn read(
    data: Bytes<'_>,
    offset: u64,
    first: u64,
    count: u64,
) -> Option<impl Iterator<Item = Symbol> + use<>> {
    // As aligned as a symbol must be.
    let mut words = vec![0_u64; (count * SIZE / 8) as usize];
    let start = offset.checked_add(first * SIZE)?;
    data.0.copy(start, pod::bytes_of_slice_mut(&mut words))?;
    let of = move |at: usize| {
        let symbol = pod::slice_from_all_bytes(pod::bytes_of_slice(&words)).ok()?;
        symbol.get(at).copied()
    };
    Some((0..).map_while(of))
}

/// The name of a symbol among the `names` of its table; `None` if it is too long, or not UTF-8.
pub(super) fn name_of<'data>(
    symbol: &Symbol,
    names: &'data [u8],
    endian: Endianness,
) -> Option<&'data str> {
    let begin = names.get(symbol.st_name.get(endian) as usize..)?;
    let begin = &begin[..begin.len().min(MOST_NAME)];
    let name = StringTable::new(begin, 0, begin.len() as u64).get(0).ok()?;
    std::str::from_utf8(name).ok()
}

impl<'data> Symbols<'data> {
    /// The file's table of this kind.
    pub(super) fn find(
        sections: &Sections<'data>,
        endian: Endianness,
        kind: elf::SectionType,
    ) -> Result<Self, ElfError> {
        let found = sections
            .enumerate()
            .find(|(_, section)| section.sh_type(endian) == kind);
        let size = found.map_or(0, |(_, section)| section.sh_size(endian));
        if size > MOST_READ {
            return Err(ElfError::TooManySymbols(size / SIZE));
        }
        let none = SectionIndex(0);
        Ok(Self {
            section: found.map_or(none, |(index, _)| index),
            offset: found.map_or(0, |(_, section)| section.sh_offset(endian)),
            count: size / SIZE,
            names_section: found.map_or(none, |(_, section)| section.link(endian)),
            names: OnceCell::new(),
        })
    }

    /// The symbols of the table, up to a piece that cannot be read.
    pub(super) fn iter(&self, data: Bytes<'data>) -> impl Iterator<Item = Symbol> + use<'data> {
        let (offset, count) = (self.offset, self.count);
        let pieces = (0..count).step_by(PIECE as usize);
        pieces
            .map_while(move |first| read(data, offset, first, PIECE.min(count - first)))
            .flatten()
    }

    pub(super) fn get(&self, data: Bytes<'data>, index: u64) -> Option<Symbol> {
        if index >= self.count {
            return None;
        }
        read(data, self.offset, index, 1)?.next()
    }

    /// The bytes of their names; empty if they cannot be read.
    pub(super) fn names(
        &self,
        sections: &Sections<'data>,
        endian: Endianness,
        data: Bytes<'data>,
    ) -> &'data [u8] {
        self.names.get_or_init(|| {
            let section = sections.section(self.names_section).ok();
            let names = section.and_then(|section| section.data(endian, data).ok());
            names.unwrap_or_default()
        })
    }
}
