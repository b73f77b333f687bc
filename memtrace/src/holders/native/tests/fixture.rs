//! Memory made by hand, for tests.

use crate::holders::memory::Memory;
use std::collections::BTreeMap;

/// Mapped ranges, by address.
#[derive(Default)]
pub(in crate::holders::native) struct Made {
    ranges: BTreeMap<u64, Vec<u8>>,
}

impl Made {
    /// Maps zeros.
    pub(in crate::holders::native) fn map(&mut self, start: u64, len: u64) {
        self.ranges.insert(start, vec![0; len as usize]);
    }

    /// Writes a word to mapped memory.
    pub(in crate::holders::native) fn put(&mut self, address: u64, value: u64) {
        self.write(address, &value.to_le_bytes());
    }

    pub(in crate::holders::native) fn write(&mut self, address: u64, bytes: &[u8]) {
        let (start, range) = self.ranges.range_mut(..=address).next_back().unwrap();
        let at = (address - start) as usize;
        range[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

impl Memory for Made {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        let found = self.ranges.range(..=address).next_back();
        let bytes = found.and_then(|(start, range)| {
            let at = usize::try_from(address - start).ok()?;
            range.get(at..at.checked_add(buffer.len())?)
        });
        bytes.is_some_and(|bytes| {
            buffer.copy_from_slice(bytes);
            true
        })
    }
}

/// Memory where everything can be read and nothing makes sense.
pub(in crate::holders::native) struct Noise(pub(in crate::holders::native) u64);

impl Memory for Noise {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        for (index, bytes) in (0..).step_by(8).zip(buffer.chunks_mut(8)) {
            let at = address.wrapping_add(index);
            let word = crate::hash::mix(at ^ self.0);
            // Many words are small, or point into the neighbourhood.
            let word = match word % 4 {
                0 => word >> 55,
                1 => at & !0xffff | word >> 48 & !0xf,
                _ => word,
            };
            bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
        }
        true
    }
}
