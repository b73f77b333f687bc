//! Names of modules that are the same for every build of one library.

use super::isa;

/// The interpreter, whether it is a program or a library.
pub(super) const PYTHON: &str = "python";

/// `path` without folder, suffix, versions and the hash that packagers put in, and the names of
/// instruction set extensions that the path had: `/x/numpy.libs/libgomp-a34b3233.so.1.0.0` is
/// `libgomp`, `libmkl_avx2.so.2` is `libmkl_<isa>`.
pub(super) fn normalise(path: &str) -> (String, Vec<String>) {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let name = path.rsplit('/').next().unwrap_or(path);
    // `[vdso]`, `[anon]`: names of the kernel's.
    if name.starts_with('[') {
        return (name.to_owned(), Vec::new());
    }
    let (name, mut found) = isa::fold(stem(name));
    // A folder for one level of the architecture, in which the dynamic linker looks (ld.so(8)).
    if let Some((_, inside)) = path.split_once("/glibc-hwcaps/") {
        found.extend(isa::fold(inside.split('/').next().unwrap_or(inside)).1);
        found.sort();
        found.dedup();
    }
    match is_python(&name) {
        true => (PYTHON.into(), found),
        false => (name, found),
    }
}

fn stem(name: &str) -> &str {
    let Some((stem, _)) = split_so(name) else {
        return name;
    };
    // `_umath.cpython-311-x86_64-linux-gnu`, `_rust.abi3`: PEP 3149, PEP 384.
    let tag = stem.rfind(".cpython-").or_else(|| stem.rfind(".pypy"));
    let stem = match tag {
        Some(tag) => &stem[..tag],
        None => stem.strip_suffix(".abi3").unwrap_or(stem),
    };
    // `libopenblas-0cf96a72.3.23.dev`: a version follows the hash.
    let version = stem
        .match_indices('.')
        .map(|(dot, _)| dot)
        .find(|dot| stem[dot + 1..].starts_with(|c: char| c.is_ascii_digit()));
    let stem = match version {
        Some(dot) if without_hash(&stem[..dot]).is_some() => &stem[..dot],
        _ => stem,
    };
    let stem = without_hash(stem).unwrap_or(stem);
    // `libc-2.31`, as glibc named its files up to 2.33.
    match stem.rsplit_once('-') {
        Some((name, version)) if !name.is_empty() && is_version(version) => name,
        _ => stem,
    }
}

/// Text before and after `.so`, if that is a suffix and not part of a name.
fn split_so(name: &str) -> Option<(&str, &str)> {
    let mut places = name.match_indices(".so").map(|(at, _)| at);
    places.find_map(|at| {
        let rest = &name[at + ".so".len()..];
        let suffix = rest.is_empty() || rest.starts_with('.');
        (at > 0 && suffix).then(|| (&name[..at], rest))
    })
}

/// Without the eight hex digits that auditwheel adds to the names of files it copies into a wheel.
fn without_hash(stem: &str) -> Option<&str> {
    let (name, hash) = stem.rsplit_once('-')?;
    let is_hash = hash.len() == 8
        && hash
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    (is_hash && !name.is_empty()).then_some(name)
}

fn is_version(text: &str) -> bool {
    text.contains('.')
        && text
            .split('.')
            .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

/// `python3.11`, `libpython3.11`, `python3.13t`.
fn is_python(name: &str) -> bool {
    let name = name.strip_prefix("lib").unwrap_or(name);
    name.strip_prefix(PYTHON).is_some_and(|version| {
        version
            .bytes()
            .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b't' | b'd' | b'm'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_of_one_library_have_one_name() {
        for (path, expected) in [
            ("/usr/lib/x86_64-linux-gnu/libc.so.6", "libc"),
            ("/lib/libc-2.31.so", "libc"),
            ("/w/numpy.libs/libgomp-a34b3233.so.1.0.0", "libgomp"),
            (
                "/w/scipy_openblas/libopenblas64_p-r0-0cf96a72.3.23.dev.so",
                "libopenblas64_p-r0",
            ),
            (
                "/w/numpy/_multiarray_umath.cpython-311-x86_64-linux-gnu.so",
                "_multiarray_umath",
            ),
            ("/w/cryptography/_rust.abi3.so", "_rust"),
            ("/usr/bin/python3.11", "python"),
            (
                "/home/u/.pyenv/versions/3.12.1/lib/libpython3.12.so.1.0",
                "python",
            ),
            ("/opt/app/server (deleted)", "server"),
            ("libtorch_cpu.so", "libtorch_cpu"),
            ("[vdso]", "[vdso]"),
            ("/opt/my.sorter", "my.sorter"),
            ("/opt/.so", ".so"),
            ("", ""),
        ] {
            assert_eq!(normalise(path).0, expected, "{path}");
        }
    }

    #[test]
    fn lookalikes_of_hashes_and_versions_stay() {
        for name in ["libfoo-release", "libfoo-2", "x86-64", "pythonista"] {
            assert_eq!(normalise(&format!("/lib/{name}.so")).0, name);
        }
    }

    #[test]
    fn extensions_are_found_in_the_name_and_in_the_linkers_folder() {
        let (name, isa) = normalise("/opt/lib/glibc-hwcaps/x86-64-v3/libmkl_avx2.so.2");
        assert_eq!(name, "libmkl_<isa>");
        assert_eq!(isa, ["avx2", "x86-64-v3"]);
    }
}
