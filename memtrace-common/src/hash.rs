//! Keys of data that is too large to be compared.

/// The start value of a hash of several words: a single [`mix`] gives `a, b` and `b, a` the same.
pub const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes a word into a hash.
#[inline(always)]
pub const fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ hash >> 32
}
