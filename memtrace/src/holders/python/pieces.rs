//! Objects in the interpreter's own memory, told from anything else in it by their headers alone.

use super::{super::memory::Memory, Managed, Python, layout::flag, types::Type};
use crate::{hash::FastMap, holders::graph::BEFORE_OBJECT};

/// Finds objects, and knows the types that it has met.
pub(in super::super) struct Finder<'a> {
    python: &'a Python,
    memory: &'a dyn Memory,
    /// By address. Most other words are at the place of a type too, now and then.
    known: FastMap<u64, Header>,
    /// The type met last: neighbours are often of one type.
    last: (u64, Header),
    types: Vec<u64>,
}

/// Where the objects of a type are.
#[derive(Clone, Copy, Default)]
struct Header {
    /// Among the types that were found; `None`: the word is not the address of a type.
    number: Option<u32>,
    /// Bytes of a piece before an object, and those of the piece at least.
    before: usize,
    least: usize,
}

impl<'a> Finder<'a> {
    pub(in super::super) fn new(python: &'a Python, memory: &'a dyn Memory) -> Self {
        Self {
            python,
            memory,
            known: FastMap::default(),
            last: Default::default(),
            types: Vec::new(),
        }
    }

    /// The object that a piece of a pool was handed out for: where in the piece it begins, and the number of its type
    /// among those of this finder. `None`: the memory is for something else.
    ///
    /// What comes before an object depends on its type, so each place is for other types.
    pub(in super::super) fn object_in(&mut self, piece: &[u8]) -> Option<(u64, usize)> {
        BEFORE_OBJECT.into_iter().find_map(|before| {
            let before = before as usize;
            let [count, ty] = [before, before + 8].map(|at| {
                let word = piece.get(at..)?.first_chunk();
                word.map(|word| u64::from_le_bytes(*word))
            });
            let ty = ty.filter(|_| count.is_some_and(|it| self.python.types.is_alive(it)))?;
            let header = self.header(ty);
            let number = header.number? as usize;
            (header.before == before && header.least <= piece.len())
                .then_some((before as u64, number))
        })
    }

    fn header(&mut self, ty: u64) -> Header {
        if self.last.0 != ty {
            let header = match self.known.get(&ty) {
                Some(known) => *known,
                None => self.read(ty),
            };
            self.last = (ty, header);
        }
        self.last.1
    }

    fn read(&mut self, address: u64) -> Header {
        let python = self.python;
        let ty = python.types.get(self.memory, address);
        let header = ty.map_or_else(Header::default, |ty| {
            let before = python.before(&ty);
            // Strings are smaller than their type says.
            let size = if ty.flags & flag::STR != 0 {
                16
            } else {
                ty.size
            };
            self.types.push(address);
            Header {
                number: u32::try_from(self.types.len() - 1).ok(),
                before: before as usize,
                least: (before + size) as usize,
            }
        });
        self.known.insert(address, header);
        header
    }

    /// Types that were found so far.
    pub(in super::super) fn found(&self) -> usize {
        self.types.len()
    }

    /// Words that were looked at as types so far.
    pub(in super::super) fn looked_at(&self) -> usize {
        self.known.len()
    }

    /// The name of the type of a number.
    pub(in super::super) fn name(&self, number: usize) -> Option<String> {
        self.python
            .types
            .name_at(self.memory, *self.types.get(number)?)
    }
}

impl Python {
    /// Bytes before an object of this type (`_PyType_PreHeaderSize`): the collector's words, and those of attributes and
    /// weak references.
    fn before(&self, ty: &Type) -> u64 {
        let managed = match self.layout.managed {
            Managed::No => 0,
            Managed::Two => flag::MANAGED_DICT,
            Managed::Tagged | Managed::Inline => flag::MANAGED_DICT | flag::MANAGED_WEAKREF,
        };
        let of = |flags: u64| if ty.flags & flags != 0 { 16 } else { 0 };
        of(flag::HAVE_GC) + of(managed)
    }
}
