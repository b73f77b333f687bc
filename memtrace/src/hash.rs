//! Cheap hashing for lookups made with every event: small integers and structs of them. Not
//! resistant to chosen keys: a program that chooses its addresses badly slows its tracing down.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// A map keyed by small integers or structs of them.
pub(crate) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<FastHasher>>;

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes every bit of `value` into every bit of the result. A bijection: two
/// values never share a hash.
pub(crate) fn mix(value: u64) -> u64 {
    let x = value.wrapping_mul(MULTIPLIER);
    let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

/// Multiplies word by word.
#[derive(Default)]
pub(crate) struct FastHasher(u64);

impl Hasher for FastHasher {
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(MULTIPLIER);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_ne_bytes(word));
        }
    }

    fn finish(&self) -> u64 {
        // The map uses the lowest and the highest bits; the multiplication leaves the lowest poor.
        self.0 ^ (self.0 >> 32)
    }
}
