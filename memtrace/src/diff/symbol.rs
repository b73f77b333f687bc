//! Names of functions that are the same whatever the compiler made of them.

use super::isa;

/// What GCC and LLVM append to the name of a part or copy of a function.
const CLONES: &[&str] = &[
    ".cold",
    ".constprop",
    ".isra",
    ".llvm",
    ".localalias",
    ".lto_priv",
    ".part",
];

/// `name` without traces of the build, and the instruction set extensions that it had. With
/// `templates` off, C++'s template arguments and Rust's generic ones go too.
pub(super) fn normalise(name: &str, templates: bool) -> (String, Vec<String>) {
    let name = without_clones(without_version(name));
    let mut name = without_abi_tags(&name);
    // Inline namespaces by which libstdc++ and libc++ tell their ABIs apart.
    for inline in ["std::__cxx11::", "std::__1::"] {
        if name.contains(inline) {
            name = name.replace(inline, "std::");
        }
    }
    // oneDNN's kernels are templates over a number that means an instruction set.
    name = without_numbers_after(&name, "cpu_isa_t)");
    if !templates {
        name = without_arguments(&name);
    }
    // GCC's function multiversioning: `f.default`, `f.avx2`, `f.arch_haswell`.
    match name.strip_suffix(".default") {
        Some(base) if !base.is_empty() => (format!("{base}.{}", isa::PLACEHOLDER), Vec::new()),
        _ => isa::fold(&name.replace(".arch_", ".")),
    }
}

/// Without an ELF symbol version (`memcpy@@GLIBC_2.14`).
fn without_version(name: &str) -> &str {
    match name.find('@') {
        Some(at) if at > 0 => &name[..at],
        _ => name,
    }
}

/// Without `.constprop.0`, and without ` [clone .constprop.0]`, as demanglers write it.
fn without_clones(name: &str) -> String {
    let mut rest = name;
    while let Some(open) = rest.rfind(" [clone ")
        && rest.ends_with(']')
    {
        rest = &rest[..open];
    }
    loop {
        let base = rest.trim_end_matches(|c: char| c.is_ascii_digit());
        let numbered = base.len() < rest.len() && base.ends_with('.');
        let base = match numbered {
            true => &base[..base.len() - 1],
            false => rest,
        };
        let clone = CLONES.iter().find_map(|clone| base.strip_suffix(clone));
        match clone {
            Some(base) if !base.is_empty() => rest = base,
            // `counter.0`: a static function in a function.
            _ if numbered && !base.is_empty() => rest = base,
            _ => return rest.to_owned(),
        }
    }
}

/// Without `[abi:cxx11]` and the like.
fn without_abi_tags(name: &str) -> String {
    let mut kept = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(open) = rest.find("[abi:")
        && let Some(close) = rest[open..].find(']')
    {
        kept.push_str(&rest[..open]);
        rest = &rest[open + close + 1..];
    }
    kept + rest
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

/// Without what is between angle brackets that follow a name. `operator<`, `->` and Rust's
/// `<T as Trait>::f` at a beginning are no arguments.
fn without_arguments(name: &str) -> String {
    let mut kept = String::with_capacity(name.len());
    let mut depth = 0usize;
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        let opens = c == '<'
            && (depth > 0
                || (kept.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ':'))
                    && !kept.ends_with("operator")));
        match c {
            _ if opens => depth += 1,
            '>' if depth > 0 => depth -= 1,
            '-' if depth > 0 && chars.peek() == Some(&'>') => {
                chars.next();
            }
            _ if depth == 0 => kept.push(c),
            _ => {}
        }
    }
    match depth {
        0 => kept,
        // Brackets that do not pair were no brackets.
        _ => name.to_owned(),
    }
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
