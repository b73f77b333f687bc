//! Sets of hosts.

/// A set, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Hosts(Vec<u64>);

impl Hosts {
    /// Those of `n` hosts that are in it.
    pub(super) fn of(n: usize, is_in: impl Fn(usize) -> bool) -> Self {
        let mut words = vec![0; n.div_ceil(64)];
        for host in (0..n).filter(|host| is_in(*host)) {
            words[host / 64] |= 1 << (host % 64);
        }
        Self(words)
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(super) fn both(&self, other: &Self) -> Self {
        let words = self.0.iter().zip(&other.0);
        Self(words.map(|(a, b)| a & b).collect())
    }

    pub(super) fn without(&self, other: &Self) -> Self {
        let words = self.0.iter().zip(&other.0);
        Self(words.map(|(a, b)| a & !b).collect())
    }

    /// As `both(other).len()`.
    pub(super) fn overlap(&self, other: &Self) -> usize {
        let words = self.0.iter().zip(&other.0);
        words.map(|(a, b)| (a & b).count_ones() as usize).sum()
    }

    pub(super) fn numbers(&self) -> Vec<usize> {
        let hosts = 0..self.0.len() * 64;
        hosts
            .filter(|host| self.0[host / 64] >> (host % 64) & 1 == 1)
            .collect()
    }
}
