//! Names of functions, independent of changes made by the compiler.

use super::isa;
use crate::frames::symbol;

/// `name` without traces of the build, and the instruction set extensions that it had. With
/// `templates` off, C++'s template arguments and Rust's generic ones go too.
pub(super) fn normalise(name: &str, templates: bool) -> (String, Vec<String>) {
    // oneDNN's kernels are templates over a number that means an instruction set.
    let name = without_numbers_after(&symbol::in_source(name, templates), "cpu_isa_t)");
    // GCC's function multiversioning: `f.default`, `f.avx2`, `f.arch_haswell`.
    match name.strip_suffix(".default") {
        Some(base) if !base.is_empty() => (format!("{base}.{}", isa::PLACEHOLDER), Vec::new()),
        _ => isa::fold(&name.replace(".arch_", ".")),
    }
}

fn without_numbers_after(name: &str, marker: &str) -> String {
    let mut parts = name.split(marker);
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept.push_str(marker);
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        if rest.len() < part.len() {
            kept.push_str(isa::PLACEHOLDER);
        }
        kept.push_str(rest);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(function: &str) -> String {
        normalise(function, true).0
    }

    #[test]
    fn traces_of_the_build_go() {
        for (function, expected) in [
            ("fill.constprop.0", "fill"),
            ("fill.isra.0.cold", "fill"),
            ("fill.part.12.lto_priv.3", "fill"),
            ("f(int) [clone .constprop.0] [clone .cold]", "f(int)"),
            ("fill.llvm.1234567", "fill"),
            ("helper.0", "helper"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            (
                "read[abi:cxx11](std::__cxx11::basic_string<char> const&)",
                "read(std::basic_string<char> const&)",
            ),
            (
                "std::__1::vector<int>::push_back",
                "std::vector<int>::push_back",
            ),
            (
                "gemm<(dnnl::cpu_isa_t)79>::run",
                "gemm<(dnnl::cpu_isa_t)<isa>>::run",
            ),
            (".cold", ".cold"),
            ("@x", "@x"),
            ("main", "main"),
            ("", ""),
        ] {
            assert_eq!(name(function), expected);
        }
    }

    #[test]
    fn arguments_of_templates_go_when_asked() {
        for (function, expected) in [
            (
                "std::vector<int, std::allocator<int> >::push_back(int)",
                "std::vector::push_back(int)",
            ),
            ("operator<(A, B)", "operator<(A, B)"),
            ("operator<< <char>(A)", "operator<< <char>(A)"),
            ("Ptr<A>::operator->()", "Ptr::operator->()"),
            ("call<auto () -> int>()", "call()"),
            ("<T as Trait>::f", "<T as Trait>::f"),
            ("alloc::vec::Vec<T>::push", "alloc::vec::Vec::push"),
            ("a<b", "a<b"),
        ] {
            assert_eq!(normalise(function, false).0, expected);
        }
    }

    #[test]
    fn extensions_stay_known() {
        let (name, isa) = normalise("scale_avx2.constprop.0", true);
        assert_eq!(
            (name.as_str(), isa),
            ("scale_<isa>", vec!["avx2".to_owned()])
        );
        for version in ["scale.default", "scale.avx2", "scale.arch_haswell"] {
            assert_eq!(normalise(version, true).0, "scale.<isa>");
        }
    }
}
