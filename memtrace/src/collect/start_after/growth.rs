//! Growth of resident memory.

use std::{collections::VecDeque, time::Duration};

/// Growth of resident memory: over so many steps of this length, with so many of them upwards, and by at least so many
/// bytes. A step or two down are garbage collection.
pub(super) const STEP: Duration = Duration::from_secs(5);
pub(super) const STEPS: usize = 6;
const UPWARDS: usize = 5;
const LEAST_GROWTH: u64 = 8 << 20;

/// Resident memory at the ends of the last steps, bytes.
#[derive(Default)]
pub(super) struct Growth(VecDeque<u64>);

impl Growth {
    /// Adds the end of a step; whether memory has grown over the last steps.
    pub(super) fn add(&mut self, bytes: u64) -> bool {
        self.0.push_back(bytes);
        if self.0.len() > STEPS + 1 {
            self.0.pop_front();
        }
        let ends = self.0.iter().zip(self.0.iter().skip(1));
        let upwards = ends.filter(|(begin, end)| end > begin).count();
        let first = self.0.front().copied().unwrap_or(bytes);
        self.0.len() > STEPS && upwards >= UPWARDS && bytes.saturating_sub(first) >= LEAST_GROWTH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_rises_most_of_the_time_grows() {
        let grows = |bytes: &[u64]| {
            let mut growth = Growth::default();
            let met: Vec<bool> = bytes.iter().map(|mib| growth.add(mib << 20)).collect();
            met.iter().position(|&met| met)
        };
        assert_eq!(grows(&[10, 12, 14, 16, 18, 20, 22]), Some(6));
        // Collected once, and twice.
        assert_eq!(grows(&[10, 14, 18, 16, 20, 24, 28]), Some(6));
        assert_eq!(grows(&[10, 14, 18, 16, 20, 18, 28]), None);
        // Too little; at its start only; a saw.
        assert_eq!(grows(&[10, 11, 12, 13, 14, 15, 16, 17]), None);
        assert_eq!(grows(&[10, 40, 40, 40, 40, 40, 40, 40]), None);
        assert_eq!(grows(&[10, 30, 10, 30, 10, 30, 10, 30]), None);
        // Only the last steps count.
        assert_eq!(grows(&[99, 9, 10, 12, 14, 16, 18, 20, 22]), Some(7));
    }
}
