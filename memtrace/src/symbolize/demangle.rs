//! Readable names of C++ and Rust functions.

use std::borrow::Cow;

/// `name` as its language writes it. Only names with a mangling prefix are demangled: a C function
/// `b` is not a C++ `bool`, which a demangler of types would make of it.
pub(crate) fn demangle(name: &str) -> Cow<'_, str> {
    // Both of Rust's schemes, without the hash; the older one looks like C++.
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return Cow::Owned(format!("{rust:#}"));
    }
    // Itanium C++ ABI, 5.1.2: every mangled name begins so.
    if name.starts_with("_Z")
        && let Ok(symbol) = cpp_demangle::Symbol::new(name)
        && let Ok(readable) = symbol.demangle()
    {
        return Cow::Owned(readable);
    }
    Cow::Borrowed(name)
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
}
