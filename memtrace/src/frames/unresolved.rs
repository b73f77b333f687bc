//! The reason why a frame has no function. Recordings and reports contain it in words, which must
//! not change: a recording may be read by another version.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The reason why a frame has no function, and its address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub struct Unresolved {
    /// Set if the frame has no place in a file to name it by.
    pub address: Option<u64>,
    pub cause: Cause,
}

/// The reason alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    NoSuchModule,
    FileNotOpened,
    NotElf,
    OutsideSegments,
    /// Meanwhile its symbols may be another build's.
    FileChanged,
    SymbolsUnreadable,
    NoSymbol,
    Stripped,
    /// An assembler's label: how far it reaches is a guess.
    SymbolWithoutSize,
    NamelessFunction,
    /// In a stub of the dynamic linker.
    InPlt,
    NoPerfMap,
    /// The map's path.
    NotInPerfMap(Box<str>),
    CodeObjectLost,
    CodeRecordLost,
    NotMapped,
    /// Reading its symbols took too much memory or time.
    NamesBudget,
    /// Its symbols were not read when the recording ended or was cut off.
    NotNamedYet,
    /// In words of another version of memtrace.
    Other(Box<str>),
}

/// Causes without a value.
static WORDS: [(Cause, &str); 17] = [
    (Cause::NoSuchModule, "no such module"),
    (Cause::FileNotOpened, "its file could not be opened"),
    (Cause::NotElf, "not an ELF file"),
    (Cause::OutsideSegments, "outside the file's segments"),
    (
        Cause::FileChanged,
        "the file was changed after it was mapped",
    ),
    (Cause::SymbolsUnreadable, "its symbols cannot be read"),
    (Cause::NoSymbol, "no symbol covers it"),
    (Cause::Stripped, "no symbol covers it (stripped file)"),
    (Cause::SymbolWithoutSize, "the symbol before it has no size"),
    (Cause::NamelessFunction, "its function has no name"),
    (Cause::InPlt, "in the procedure linkage table (PLT)"),
    (
        Cause::NoPerfMap,
        "generated code, and its process writes no perf map",
    ),
    (Cause::CodeObjectLost, "its code object was lost"),
    (
        Cause::CodeRecordLost,
        "the record of its code object was lost",
    ),
    (Cause::NotMapped, "not in a known mapping"),
    (
        Cause::NamesBudget,
        "its symbols take too much memory or time to read",
    ),
    (
        Cause::NotNamedYet,
        "the recording ended before its symbols were read",
    ),
];

/// Before and after the path in the words of [`Cause::NotInPerfMap`].
const PERF_MAP: (&str, &str) = ("generated code not in `", "`");

impl Cause {
    /// The reason why there is nothing at `address`.
    pub fn at(self, address: u64) -> Unresolved {
        Unresolved {
            address: Some(address),
            cause: self,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Cause::Other(words) => f.write_str(words),
            Cause::NotInPerfMap(path) => write!(f, "{}{path}{}", PERF_MAP.0, PERF_MAP.1),
            known => {
                let words = WORDS.iter().find(|(cause, _)| cause == known);
                f.write_str(words.map_or("", |(_, words)| words))
            }
        }
    }
}

impl From<&str> for Cause {
    fn from(text: &str) -> Cause {
        if let Some((cause, _)) = WORDS.iter().find(|(_, words)| *words == text) {
            return cause.clone();
        }
        let path = text.strip_prefix(PERF_MAP.0);
        match path.and_then(|path| path.strip_suffix(PERF_MAP.1)) {
            Some(path) => Cause::NotInPerfMap(path.into()),
            None => Cause::Other(text.into()),
        }
    }
}

impl From<Cause> for Unresolved {
    fn from(cause: Cause) -> Unresolved {
        Unresolved {
            address: None,
            cause,
        }
    }
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "{address:#x}: {}", self.cause),
            None => self.cause.fmt(f),
        }
    }
}

impl From<Unresolved> for String {
    fn from(unresolved: Unresolved) -> String {
        unresolved.to_string()
    }
}

impl From<String> for Unresolved {
    fn from(text: String) -> Unresolved {
        text.as_str().into()
    }
}

impl From<&str> for Unresolved {
    /// Inverse of [`Unresolved::to_string`], for any text.
    fn from(text: &str) -> Unresolved {
        let address = text.split_once(": ").and_then(|(address, words)| {
            let number = u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()?;
            (format!("{number:#x}") == address).then(|| Cause::from(words).at(number))
        });
        address.unwrap_or_else(|| Cause::from(text).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_read_as_it_was_written() {
        let known = WORDS.iter().map(|(cause, _)| cause.clone());
        let others = [
            Cause::NotInPerfMap("/tmp/perf-1.map".into()),
            Cause::Other("no symbols".into()),
        ];
        for cause in known.chain(others) {
            assert!(!cause.to_string().is_empty(), "{cause:?}");
            for unresolved in [cause.clone().at(0x10), cause.into()] {
                let text = unresolved.to_string();
                assert_eq!(Unresolved::from(text.as_str()), unresolved, "{text}");
            }
        }
    }

    #[test]
    fn words_of_another_version_stay_as_they_are() {
        for text in ["", "0x10", "0x0A: new", "0x010: new", ": new", "0x10: new"] {
            assert_eq!(Unresolved::from(text).to_string(), text);
        }
    }

    #[test]
    fn json_has_the_words() {
        let value = serde_json::to_value(Cause::NotMapped.at(0x10)).unwrap();
        assert_eq!(value, "0x10: not in a known mapping");
    }
}
