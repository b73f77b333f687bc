//! Names of instruction set extensions within names of functions and files.
//!
//! A library that has a function once per extension calls another one on another processor. For
//! matching they are one, `<isa>`; the actual one is kept, because it may be the answer.

/// Placeholder for an extension in a normalised name.
pub(super) const PLACEHOLDER: &str = "<isa>";

/// Extensions by their x86 and Arm names, microarchitectures by those of OpenBLAS and GCC's
/// `target_clones`; lower case. Shorter names that are also words (`atom`, `core2`, `mc`) are left
/// out.
const NAMES: &[&str] = &[
    "amx",
    "asimd",
    "asimddp",
    "asimdhp",
    "avx",
    "avx10",
    "avx2",
    "avx512",
    "avx512_core",
    "avx512bf16",
    "avx512bw",
    "avx512cd",
    "avx512dq",
    "avx512f",
    "avx512fp16",
    "avx512vl",
    "avx512vnni",
    "bmi",
    "bmi2",
    "cooperlake",
    "erms",
    "evex",
    "evex512",
    "excavator",
    "fma",
    "fma3",
    "fma4",
    "haswell",
    "neon",
    "neoversen1",
    "neoversev1",
    "nehalem",
    "prescott",
    "sandybridge",
    "sapphirerapids",
    "skylake",
    "skylakex",
    "sse",
    "sse2",
    "sse3",
    "sse4",
    "sse41",
    "sse42",
    "sse4_1",
    "sse4_2",
    "sse4a",
    "ssse3",
    "sve",
    "sve2",
    "x86-64-v2",
    "x86-64-v3",
    "x86-64-v4",
    "x86_64_v2",
    "x86_64_v3",
    "x86_64_v4",
    "zen",
    "zen4",
];

/// Suffixes after `_` that belong to an extension's name (oneDNN: `avx512_core_amx`).
const SUFFIXES: &[&str] = &["core", "amx", "bf16", "fp16", "ifma", "vnni", "int8"];

/// `name` with [`PLACEHOLDER`] for each extension, adjacent ones as one, and the extensions, lower
/// case, in order of appearance.
pub(super) fn fold(name: &str) -> (String, Vec<String>) {
    let mut folded = String::with_capacity(name.len());
    let mut found: Vec<String> = Vec::new();
    let mut at = 0;
    while let Some(c) = name[at..].chars().next() {
        match token(name, at) {
            Some(length) => {
                found.push(name[at..at + length].to_ascii_lowercase());
                at += length;
                // Only a separator since the one before.
                let joined = folded.trim_end_matches(['_', '-', '.']);
                if joined.ends_with(PLACEHOLDER) {
                    folded.truncate(joined.len());
                } else {
                    folded.push_str(PLACEHOLDER);
                }
            }
            None => {
                folded.push(c);
                at += c.len_utf8();
            }
        }
    }
    found.sort();
    found.dedup();
    (folded, found)
}

/// Length of the extension's name that begins at `at`, if there is one.
fn token(name: &str, at: usize) -> Option<usize> {
    let bytes = name.as_bytes();
    let starts = match at.checked_sub(1).map(|before| bytes[before]) {
        None => true,
        // `ConvAvx2`, `ConvAVX2`, but not `savx2`.
        Some(before) if before.is_ascii_alphanumeric() => {
            bytes[at].is_ascii_uppercase() && !before.is_ascii_uppercase()
        }
        Some(before) => before.is_ascii(),
    };
    if !starts {
        return None;
    }
    let initial = bytes[at].to_ascii_lowercase();
    let length = NAMES
        .iter()
        // Most words end here.
        .filter(|known| known.as_bytes().first() == Some(&initial))
        .filter(|known| {
            let text = bytes.get(at..at + known.len());
            text.is_some_and(|text| text.eq_ignore_ascii_case(known.as_bytes()))
        })
        .map(|known| known.len())
        .filter(|length| ends(bytes, at + length))
        .max()?;
    Some(length + suffixes(&bytes[at + length..]))
}

/// Whether a word ends before `at`.
fn ends(bytes: &[u8], at: usize) -> bool {
    match (bytes.get(at), at.checked_sub(1).map(|last| bytes[last])) {
        (None, _) => true,
        (Some(next), Some(last)) if next.is_ascii_uppercase() => !last.is_ascii_uppercase(),
        (Some(next), _) => !next.is_ascii_alphanumeric() && next.is_ascii(),
    }
}

fn suffixes(rest: &[u8]) -> usize {
    let mut length = 0;
    while rest.get(length) == Some(&b'_')
        && let Some(suffix) = SUFFIXES.iter().find(|suffix| {
            let text = rest.get(length + 1..length + 1 + suffix.len());
            text.is_some_and(|text| text.eq_ignore_ascii_case(suffix.as_bytes()))
                && ends(rest, length + 1 + suffix.len())
        })
    {
        length += 1 + suffix.len();
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_become_one_and_stay_known() {
        for (name, folded, found) in [
            ("dgemm_kernel_HASWELL", "dgemm_kernel_<isa>", "haswell"),
            (
                "__memcpy_avx_unaligned_erms",
                "__memcpy_<isa>_unaligned_<isa>",
                "avx erms",
            ),
            (
                "jit_avx512_core_amx_fwd",
                "jit_<isa>_fwd",
                "avx512_core_amx",
            ),
            ("libmkl_avx2", "libmkl_<isa>", "avx2"),
            ("sum_sse4_1_fma", "sum_<isa>", "fma sse4_1"),
            ("ConvAvx2Kernel::run", "Conv<isa>Kernel::run", "avx2"),
            ("MatMulAVX512F", "MatMul<isa>", "avx512f"),
            ("kernel.avx2", "kernel.<isa>", "avx2"),
            ("glibc-hwcaps/x86-64-v3", "glibc-hwcaps/<isa>", "x86-64-v3"),
        ] {
            let (text, isa) = fold(name);
            assert_eq!((text.as_str(), isa.join(" ").as_str()), (folded, found));
        }
    }

    #[test]
    fn other_names_stay() {
        for name in [
            "main",
            "assess",
            "cosset_lookup",
            "zenith",
            "savx2",
            "avx2x",
            "neonate",
            "naïve_ß",
            "",
        ] {
            assert_eq!(fold(name), (name.to_owned(), vec![]), "{name}");
        }
    }
}
