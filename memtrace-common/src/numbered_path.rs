//! Numbers in front of an absolute path, which do not change where it leads: a `/.` or a `/` for each binary digit. Before
//! Linux 5.15, a perf event for a probe has nothing else that the collector chooses and the kernel side can read.

/// Words of eight characters that hold a number.
pub const WORDS: usize = 3;

/// How many numbers there are.
pub const NUMBERS: u32 = 1 << (WORDS * DIGITS);

/// Binary digits in a word: pairs of characters.
const DIGITS: usize = 4;

/// What stands in front of the path for a number.
pub fn prefix(number: u32) -> impl Iterator<Item = &'static str> {
    // The codes of `/` and `.` are odd and even.
    let digit = move |at| ["/.", "//"][(number >> at & 1) as usize];
    (0..WORDS * DIGITS).rev().map(digit)
}

/// The number in front of a path, whose text begins with these words.
#[inline(always)]
pub fn number(text: [u64; WORDS]) -> u32 {
    let digits = |word: u64| (0..DIGITS).map(move |at| word >> (16 * at + 8) & 1);
    let digits = text.into_iter().flat_map(digits);
    digits.fold(0, |number, digit| number << 1 | digit as u32)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::{fs, string::String};

    #[test]
    fn a_number_is_read_and_leads_nowhere_else() {
        for wanted in [0, 1, 0xabc, NUMBERS - 1] {
            let path: String = prefix(wanted).chain(["/proc/self/stat"]).collect();
            let mut words = path.as_bytes().chunks_exact(8);
            let mut word = || u64::from_le_bytes(words.next().unwrap().try_into().unwrap());
            assert_eq!(number([(); WORDS].map(|()| word())), wanted, "{path}");
            let read = fs::canonicalize(&path).unwrap();
            assert_eq!(read, fs::canonicalize("/proc/self/stat").unwrap());
        }
    }
}
