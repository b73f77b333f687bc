//! Resolves an address of a process: its executable mappings.

use std::collections::BTreeMap;

use super::location::{Location, ModuleIndex};

#[derive(Clone, Copy, Debug)]
struct Code {
    end: u64,
    /// File and offset of the mapping's start; `None` for generated code.
    file: Option<(ModuleIndex, u64)>,
}

/// Executable mappings of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses(BTreeMap<u64, Code>);

impl Addresses {
    /// Adds a mapping, which replaces whatever it overlaps.
    pub(super) fn insert(&mut self, start: u64, end: u64, file: Option<(ModuleIndex, u64)>) {
        let overlapped: Vec<u64> = self
            .0
            .range(..end)
            .rev()
            .take_while(|(_, code)| code.end > start)
            .map(|(&at, _)| at)
            .collect();
        for at in overlapped {
            self.0.remove(&at);
        }
        self.0.insert(start, Code { end, file });
    }

    /// Location of an absolute address of this process `tgid`, which runs the program `image`.
    pub(super) fn locate(&self, tgid: u32, image: u64, abs_addr: u64) -> Location {
        match self.0.range(..=abs_addr).next_back() {
            Some((&start, code)) if abs_addr < code.end => match code.file {
                Some((module, offset)) => Location::File(module, offset + (abs_addr - start)),
                None => Location::Anonymous {
                    tgid,
                    image,
                    abs_addr,
                },
            },
            _ => Location::Unmapped(abs_addr),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ModuleIndex = ModuleIndex(0);
    const B: ModuleIndex = ModuleIndex(1);

    #[test]
    fn an_address_is_its_mapping_and_the_offset_in_its_file() {
        let mut addresses = Addresses::default();
        addresses.insert(0x1000, 0x3000, Some((A, 0x5000)));
        addresses.insert(0x3000, 0x4000, None);
        assert_eq!(addresses.locate(7, 8, 0x0fff), Location::Unmapped(0x0fff));
        assert_eq!(addresses.locate(7, 8, 0x1234), Location::File(A, 0x5234));
        let generated = Location::Anonymous {
            tgid: 7,
            image: 8,
            abs_addr: 0x3000,
        };
        assert_eq!(addresses.locate(7, 8, 0x3000), generated);
        assert_eq!(addresses.locate(7, 8, 0x4000), Location::Unmapped(0x4000));
    }

    #[test]
    fn a_reused_range_is_never_the_old_file() {
        let mut addresses = Addresses::default();
        addresses.insert(0x1000, 0x2000, Some((A, 0)));
        addresses.insert(0x2000, 0x5000, Some((A, 0x1000)));
        addresses.insert(0x1800, 0x3000, Some((B, 0)));
        assert_eq!(addresses.locate(7, 8, 0x1900), Location::File(B, 0x100));
        assert_eq!(addresses.locate(7, 8, 0x1100), Location::Unmapped(0x1100));
        assert_eq!(addresses.locate(7, 8, 0x4000), Location::Unmapped(0x4000));
    }
}
