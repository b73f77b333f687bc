//! The resident memory of a recording's processes, and what kind of growth it has.

use crate::analysis::{
    account::Kind,
    verdict::{Class, Grade, ProcessAccount},
};

/// A difference of at least this many bytes, and this share of the larger, is worth a sentence.
const LEAST: u64 = 4 << 20;
const LEAST_SHARE: u64 = 10;

/// The memory of all processes of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Memory {
    /// As read last, bytes.
    pub resident: u64,
    /// Growth, bytes per second.
    pub growth: f64,
    /// The part of the growth that is free in allocators, bytes per second.
    pub free: f64,
    /// The first finding; `None`: the recording is too short for one.
    pub verdict: Option<(Class, Grade)>,
}

impl Memory {
    /// From the accounts of the processes.
    pub(crate) fn new(
        resident: u64,
        accounts: &[ProcessAccount],
        verdict: Option<(Class, Grade)>,
    ) -> Memory {
        let mut memory = Memory {
            resident,
            verdict,
            ..Memory::default()
        };
        for of in accounts {
            let seconds = (of.to - of.from).max(f64::MIN_POSITIVE);
            let accounts = of.accounts.iter();
            for account in accounts.filter(|of| !matches!(of.kind, Kind::Device(_))) {
                memory.growth += account.growth / seconds;
                memory.free += account.retained() / seconds;
            }
        }
        memory
    }

    /// Whether there is so much more or less memory than in `other` that it is worth a sentence.
    pub(crate) fn is_unlike(&self, other: &Memory) -> bool {
        let difference = self.resident.abs_diff(other.resident);
        let larger = self.resident.max(other.resident);
        difference >= LEAST && difference >= larger / LEAST_SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_differences_are_no_difference() {
        let memory = |resident| Memory {
            resident,
            ..Memory::default()
        };
        let is_unlike = |a: u64, b: u64| memory(a << 20).is_unlike(&memory(b << 20));
        assert!(is_unlike(282, 450) && is_unlike(450, 282));
        assert!(!is_unlike(1, 4), "little");
        assert!(!is_unlike(1000, 1050), "a small share");
    }
}
