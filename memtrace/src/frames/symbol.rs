//! Names of functions as in their sources, without the changes made by compiler and linker.

/// Suffixes that GCC and LLVM append to the name of a part or copy of a function.
const CLONES: &[&str] = &[
    ".cold",
    ".constprop",
    ".isra",
    ".llvm",
    ".localalias",
    ".lto_priv",
    ".part",
];

/// `name` without traces of the build. With `templates` off, C++'s template arguments and Rust's generic ones
/// go too.
pub(crate) fn in_source(name: &str, templates: bool) -> String {
    let name = without_clones(without_version(name));
    let mut name = without_abi_tags(&name);
    // Inline namespaces with which libstdc++ and libc++ mark their ABIs.
    for inline in ["std::__cxx11::", "std::__1::"] {
        if name.contains(inline) {
            name = name.replace(inline, "std::");
        }
    }
    match templates {
        true => name,
        false => without_arguments(&name),
    }
}

/// The same without the parameters and the return type, which C++ names have.
pub(crate) fn plain(name: &str) -> String {
    let name = in_source(name, false);
    let plain = without_parameters(&name).map(without_result);
    match plain {
        Some(plain) if !plain.is_empty() => plain.to_owned(),
        _ => name,
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

/// Without text between angle brackets that follow a name. `operator<`, `->` and Rust's `<T as
/// Trait>::f` at a beginning are not arguments.
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
            _ if opens => {
                // Rust's `f::<T>`.
                if depth == 0 && kept.ends_with("::") {
                    kept.truncate(kept.len() - 2);
                }
                depth += 1;
            }
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
        // Brackets that do not pair were not brackets.
        _ => name.to_owned(),
    }
}

/// `None` if there are none, as in most languages.
fn without_parameters(name: &str) -> Option<&str> {
    let close = name.rfind(')')?;
    let after = &name[close + 1..];
    let qualified = [" const", " volatile", " &", " ["];
    if !after.is_empty() && !qualified.iter().any(|of| after.starts_with(of)) {
        return None;
    }
    let mut depth = 0usize;
    let open = name[..=close].char_indices().rev().find(|(_, c)| {
        match c {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    let before = open.map(|(open, _)| &name[..open]);
    // `operator()` without its parameters.
    before.filter(|before| *before != "operator" && !before.ends_with("::operator"))
}

fn without_result(name: &str) -> &str {
    if name.contains("operator") {
        return name;
    }
    let mut depth = 0usize;
    let mut begin = 0;
    for (at, c) in name.char_indices() {
        match c {
            '(' | '{' => depth += 1,
            ')' | '}' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 => begin = at + 1,
            _ => {}
        }
    }
    &name[begin..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_are_those_in_the_source() {
        for (name, expected) in [
            ("void std::vector<A<B>>::f<C>(D<E>)", "std::vector::f"),
            (
                "std::__1::vector<int>::push_back(int&&)",
                "std::vector::push_back",
            ),
            ("list_resize.part.0", "list_resize"),
            (
                "<alloc::vec::Vec<T> as X>::extend",
                "<alloc::vec::Vec as X>::extend",
            ),
            ("<(K, V) as X>::f", "<(K, V) as X>::f"),
            (
                "ns::(anonymous namespace)::bar(int)",
                "ns::(anonymous namespace)::bar",
            ),
            (
                "void (anonymous namespace)::f<int>(int)",
                "(anonymous namespace)::f",
            ),
            (
                "main::{lambda(int)#1}::operator()(int) const",
                "main::{lambda(int)#1}::operator()",
            ),
            ("Foo::operator()(int)", "Foo::operator()"),
            ("Foo::operator()", "Foo::operator()"),
            ("my_operator(int)", "my_operator"),
            (
                "rayon::join::<A, B>::{closure#0}",
                "rayon::join::{closure#0}",
            ),
            ("app::flatten::<T>", "app::flatten"),
            ("Foo::operator bool() const", "Foo::operator bool"),
            ("unsigned long foo<int>(int)", "foo"),
            ("net/http.(*conn).serve", "net/http.(*conn).serve"),
            (
                "LazyCompile:~foo /srv/app.js:12",
                "LazyCompile:~foo /srv/app.js:12",
            ),
            ("main", "main"),
            ("(", "("),
            (")", ")"),
            ("", ""),
        ] {
            assert_eq!(plain(name), expected);
        }
    }
}
