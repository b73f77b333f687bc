//! Readable names of C++ and Rust functions.

use std::{
    borrow::Cow,
    fmt::{self, Write},
};

/// Longest name, bytes. A mangled name of 220 bytes can stand for gigabytes.
const LONGEST: usize = 4 << 10;

/// Longest mangled name that is parsed, bytes.
const LONGEST_MANGLED: usize = 16 << 10;

/// Parts that a demangler may write for one name, also empty ones: its work.
const MOST_PARTS: usize = 16 << 10;

/// The beginning of an expression that the C++ demangler cannot read (Itanium C++ ABI, 5.1.6.1: `X <unresolved-name>`).
const UNREADABLE: &str = "Xsr";

/// Most places at which the name of a function may end that are tried.
const MOST_ENDS: usize = 64;

/// `name` as its language writes it. Only names with a mangling prefix are demangled: a C function
/// `b` is not a C++ `bool`, which a demangler of types would make of it. Longer names are cut.
pub(crate) fn demangle(name: &str) -> Cow<'_, str> {
    if name.len() > LONGEST_MANGLED {
        return bounded(name);
    }
    let mut readable = Readable::default();
    // Both of Rust's schemes, without the hash; the older one looks like C++.
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        let written = write!(readable, "{rust:#}");
        return readable.or(name, written.is_ok());
    }
    // Itanium C++ ABI, 5.1.2: every mangled name begins so.
    let symbol = name.starts_with("_Z").then(|| parsed(name)).flatten();
    match symbol {
        Some(symbol) => {
            let written = symbol.structured_demangle(&mut readable, &Default::default());
            readable.or(name, written.is_ok())
        }
        None => bounded(name),
    }
}

/// The demangler cannot read members of types that depend on templates, as in `std::enable_if<…>::type`. In the type of
/// a function they come after its name, which is all that is read then.
fn parsed(name: &str) -> Option<cpp_demangle::Symbol<&str>> {
    let whole = cpp_demangle::Symbol::new(name);
    whole.ok().or_else(|| {
        let (readable, _) = name.split_once(UNREADABLE)?;
        let ends = readable.rmatch_indices('E').take(MOST_ENDS);
        let mut names = ends.filter_map(|(end, _)| readable.get(..=end));
        names.find_map(|name| cpp_demangle::Symbol::new(name).ok())
    })
}

/// Whether a name may stand for a readable one.
pub(crate) fn is_mangled(name: &str) -> bool {
    // With further underscores on some systems, and without on others.
    let bare = name.trim_start_matches('_');
    bare.starts_with(['Z', 'R'])
}

/// `text`, cut if it is longer than a name may be.
pub(super) fn bounded(text: &str) -> Cow<'_, str> {
    match text.len() {
        ..=LONGEST => Cow::Borrowed(text),
        _ => Cow::Owned(cut(text)),
    }
}

fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(LONGEST);
    format!("{}…", &text[..end])
}

/// Refuses to grow beyond [`LONGEST`] and [`MOST_PARTS`], which ends the demangler that writes to it.
#[derive(Default)]
struct Readable {
    text: String,
    parts: usize,
}

impl Readable {
    /// The name, if it `is_whole` or was cut by this; otherwise `mangled`.
    fn or(self, mangled: &str, is_whole: bool) -> Cow<'_, str> {
        match is_whole {
            true => Cow::Owned(self.text),
            false if self.text.len() > LONGEST => Cow::Owned(cut(&self.text)),
            false => bounded(mangled),
        }
    }
}

impl Write for Readable {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = LONGEST.saturating_sub(self.text.len());
        self.parts += 1;
        match text.len() <= left && self.parts <= MOST_PARTS {
            true => {
                self.text.push_str(text);
                Ok(())
            }
            false => {
                // One byte more than there may be: it is known to be cut.
                let end = text.ceil_char_boundary(left + 1);
                self.text.push_str(&text[..end]);
                Err(fmt::Error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mangled_names_become_readable() {
        for (mangled, readable) in [
            ("_Znwm", "operator new(unsigned long)"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
            ),
            (
                "_ZSt4swapIiENSt9enable_ifIXsrSt6__and_IJSt6__not_ISt15__is_tuple_likeIT_EESt21is_move_constructible\
                 IS4_ESt18is_move_assignableIS4_EEE5valueEvE4typeERS4_SE_",
                "std::swap<int>",
            ),
            (
                "_ZNSt10shared_ptrI4NodeEaSI4LeafEENSt9enable_ifIXsrSt13is_assignableIRSt12__shared_ptrIS0_EES_IT_E\
                 E5valueERS1_E4typeEOS6_",
                "std::shared_ptr<Node>::operator=<Leaf>",
            ),
            (
                "_ZN4core9panicking9panic_fmt17h5f1a6fd39197ad62E",
                "core::panicking::panic_fmt",
            ),
            ("_RNvC6_123foo3bar", "123foo::bar"),
        ] {
            assert_eq!(demangle(mangled), readable);
        }
    }

    #[test]
    fn plain_names_stay() {
        for name in ["a", "b", "main", "x", "Z", "_Zfoo bar", "R", "_R", ""] {
            assert_eq!(demangle(name), name);
        }
    }

    /// Each type refers twice to the one before: the name's length is 2 to the power of their number.
    #[test]
    fn a_name_that_stands_for_gigabytes_is_cut() {
        // In base 36 (Itanium C++ ABI, 5.1.10); each type takes a second number for its template.
        let types = [
            "S_", "S1_", "S3_", "S5_", "S7_", "S9_", "SB_", "SD_", "SF_", "SH_", "SJ_",
        ];
        let types = types
            .into_iter()
            .chain(["SL_", "SN_", "SP_", "SR_", "ST_", "SV_", "SX_"]);
        let doubling = |levels: usize| {
            let types = types.clone().take(levels).map(|of| format!("1BI{of}{of}E"));
            format!("_Z1f1A{}", types.collect::<String>())
        };
        assert_eq!(demangle(&doubling(1)), "f(A, B<A, A>)");
        let long = demangle(&doubling(18)).into_owned();
        assert!(long.starts_with("f(A, B<"), "{long}");
        assert!(
            long.len() <= LONGEST + "…".len() && long.ends_with('…'),
            "{}",
            long.len()
        );
    }

    #[test]
    fn plain_names_are_cut_at_a_character() {
        let name = "é".repeat(LONGEST);
        let cut = demangle(&name).into_owned();
        assert_eq!(cut.len(), LONGEST + "…".len());
        assert!(demangle(&"x".repeat(LONGEST)).len() == LONGEST);
    }
}
