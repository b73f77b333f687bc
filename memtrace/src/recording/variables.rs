//! Environment variables among the facts: of which the names were recorded, and what stands for a
//! value that was not.

use sha2::{Digest, Sha256};

use crate::file::hex;

/// The field that says whether the names of all variables of a process were recorded. Recordings of
/// earlier versions lack it.
pub(crate) const NAMES: &str = "environment.names";

/// They were: a variable that is missing was not set.
pub(crate) const ALL: &str = "all";
/// Some are not text, were overwritten by the program, or are too many.
pub(crate) const IN_PART: &str = "in part";
/// The environment could not be read.
pub(crate) const UNREADABLE: &str = "unreadable";

/// Stands for a value of which nothing is recorded.
pub(crate) const WITHHELD: &str = "(set)";

/// Stands for a value: `#` and the first 16 bits of the SHA-256 of `memtrace`, a zero byte and
/// `NAME=VALUE`. The same on all machines, and too short to find a secret by: of all values, one in
/// 65,536 has the same.
pub(crate) fn hashed(name: &str, value: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update(format!("memtrace\0{name}={value}"));
    format!("#{}", hex(&hasher.finalize()[..2]))
}

/// Whether `value` is what [`hashed`] makes.
pub(crate) fn is_hashed(value: &str) -> bool {
    let digits = value.strip_prefix('#').unwrap_or_default();
    digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_of_a_name_are_told_from_others() {
        // printf 'memtrace\0A=1' | sha256sum
        assert_eq!(hashed("A", "1"), "#6d7c");
        assert_ne!(hashed("A", "1"), hashed("A", "2"));
        assert_ne!(hashed("A", "1"), hashed("B", "1"));
        assert!(is_hashed(&hashed("A", "")));
        for other in ["", "#", "1234", "#12345678", "#12g4", "(set)"] {
            assert!(!is_hashed(other), "{other}");
        }
    }
}
