//! Detects whether a file contains a CPython interpreter, its version, and the addresses of its
//! evaluation loop.

use super::Candidate;
use crate::{
    arch::{self, Architecture},
    process::elf::Elf,
    unwind,
};
use std::{ops::Range, path::Path};

/// Minor versions of Python 3 whose structures are known.
pub(super) const SUPPORTED: Range<u32> = 9..15;

const EVAL: &str = "_PyEval_EvalFrameDefault";

/// An interpreter whose frames are not supported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Python frames are supported for CPython 3.9 to 3.14 with the GIL, not for {what}")]
pub(crate) struct Unsupported {
    /// "Python 3.8".
    pub what: String,
}

/// Searches a file for an interpreter; `path` counts for its name only. `None`: there is none.
pub(crate) fn find(elf: &Elf<'_>, path: &Path) -> Result<Option<Candidate>, Unsupported> {
    let (Some(eval), Some(runtime)) = (
        elf.functions().find(|function| function.name == EVAL),
        elf.variables()
            .find(|variable| variable.name == "_PyRuntime"),
    ) else {
        return Ok(None);
    };
    let unsupported = |what: &str| Unsupported { what: what.into() };
    let build = elf
        .soname
        .as_deref()
        .and_then(Build::of_name)
        .or_else(|| Build::of_name(path.file_name()?.to_str()?));
    let minor = by_symbol(elf)
        .or(build.map(|build| build.minor))
        .or_else(|| by_content(elf))
        .ok_or_else(|| unsupported("an interpreter of unknown version"))?;
    if !SUPPORTED.contains(&minor) {
        return Err(unsupported(&format!("Python 3.{minor}")));
    }
    if build.is_some_and(|build| build.free_threaded)
        || super::offsets::is_free_threaded(elf, runtime.virt, minor)
    {
        return Err(unsupported(&format!("free-threaded Python 3.{minor}")));
    }
    if build.is_some_and(|build| build.debug) {
        return Err(unsupported(&format!("a debug build of Python 3.{minor}")));
    }
    if eval.size == 0 {
        return Err(unsupported("a file whose symbols have no sizes"));
    }
    let main = eval.virt..eval.virt.saturating_add(eval.size);
    let cold = by_cold_symbol(elf)
        .or_else(|| by_jumps(elf, &main))
        .unwrap_or(0..0);
    Ok(Some(Candidate {
        minor,
        runtime: runtime.virt,
        eval: [[main.start, main.end], [cold.start, cold.end]],
        handlers: handlers(elf),
        code_dealloc: code_dealloc(elf),
        description: super::offsets::description(elf, runtime.virt, minor),
    }))
}

/// A version derived from the name of a library or a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Build {
    minor: u32,
    free_threaded: bool,
    debug: bool,
}

impl Build {
    /// `libpython3.11.so.1.0`, `python3.13t`, `python3.12d`.
    fn of_name(name: &str) -> Option<Build> {
        let rest = name.strip_prefix("lib").unwrap_or(name);
        let rest = rest.strip_prefix("python3.")?;
        let flags = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let minor = rest.strip_suffix(flags)?.parse().ok()?;
        let flags = flags.split('.').next().unwrap_or_default();
        Some(Build {
            minor,
            free_threaded: flags.contains('t'),
            debug: flags.contains('d'),
        })
    }
}

/// `Py_Version`, since 3.11: PY_VERSION_HEX (docs.python.org/3/c-api/apiabiversion.html).
fn by_symbol(elf: &Elf<'_>) -> Option<u32> {
    let symbol = elf.variables().find(|v| v.name == "Py_Version")?;
    let bytes = elf.initial(symbol.virt, 4)?.try_into().ok()?;
    let hex = u32::from_le_bytes(bytes);
    (hex >> 24 == 3).then_some(hex >> 16 & 0xff)
}

/// By the text at the beginning of `Py_GetVersion`, "3.9.18" and a zero; linkers make it the end of
/// another text with the same end. `None` if the file has texts of more than one version.
fn by_content(elf: &Elf<'_>) -> Option<u32> {
    let mut found = None;
    for (bytes, at) in elf
        .contents()
        .flat_map(|bytes| memchr_all(bytes, b"3.").map(move |at| (bytes, at)))
    {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        if before.is_some_and(|byte| byte.is_ascii_digit() || *byte == b'.') {
            continue;
        }
        let Some(minor) = bytes.get(at + 2..).and_then(version_text) else {
            continue;
        };
        if SUPPORTED.contains(&minor) && found.replace(minor).is_some_and(|other| other != minor) {
            return None;
        }
    }
    found
}

/// The minor version, if a patch version and a zero follow.
fn version_text(bytes: &[u8]) -> Option<u32> {
    let text = bytes.get(..bytes.len().min(8))?;
    let text = &text[..text.iter().position(|&byte| byte == 0)?];
    let (minor, patch) = std::str::from_utf8(text).ok()?.split_once('.')?;
    let digits =
        |text: &str| (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    (digits(minor) && digits(patch)).then(|| minor.parse().ok())?
}

fn memchr_all<'a>(bytes: &'a [u8], what: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    bytes
        .windows(what.len())
        .enumerate()
        .filter_map(move |(at, window)| (window == what).then_some(at))
}

/// The part of the loop that the compiler moved away as cold: the largest, if there are several.
fn by_cold_symbol(elf: &Elf<'_>) -> Option<Range<u64>> {
    elf.functions()
        .filter(|function| {
            let suffix = function.name.strip_prefix(EVAL);
            suffix.is_some_and(|it| it.starts_with(".cold") || it.starts_with(".part."))
        })
        .map(|function| function.virt..function.virt.saturating_add(function.size))
        .max_by_key(|range| range.end - range.start)
        .filter(|range| !range.is_empty())
}

/// The same without a symbol: the address outside itself that the loop jumps to and at which no
/// function begins; the most frequent one, because data among the code may look like jumps.
pub(super) fn by_jumps(elf: &Elf<'_>, main: &Range<u64>) -> Option<Range<u64>> {
    let body = elf.code(elf.file_offset(main.start)?, main.end - main.start);
    let targets = jumps_out(elf.architecture, body, main);
    unwind::fragments(elf.data(), &targets)
        .into_iter()
        .filter(|range| range.end <= main.start || range.start >= main.end)
        .max_by_key(|range| {
            targets
                .iter()
                .filter(|target| range.contains(target))
                .count()
        })
}

/// Targets outside `main`, the addresses of `body`, of its direct jumps.
fn jumps_out(architecture: Architecture, body: &[u8], main: &Range<u64>) -> Vec<u64> {
    let mut targets = arch::jumps(architecture, body, main.start);
    targets.retain(|target| !main.contains(target));
    targets.sort_unstable();
    targets.dedup();
    targets
}

/// `PyTypeObject.tp_dealloc`, bytes: the same in all versions (Include/cpython/object.h).
const TP_DEALLOC: u64 = 48;

/// Where the type of code objects refers to. The function itself has no symbol in a stripped file.
fn code_dealloc(elf: &Elf<'_>) -> Option<u64> {
    let code = elf.variables().find(|v| v.name == "PyCode_Type")?;
    let function = elf.pointer(code.virt.checked_add(TP_DEALLOC)?)?;
    let is_code = |offset| !elf.code(offset, 1).is_empty();
    elf.file_offset(function)
        .is_some_and(is_code)
        .then_some(function)
}

/// From the first to the last of the functions for single instructions.
fn handlers(elf: &Elf<'_>) -> Option<[u64; 2]> {
    elf.functions()
        .filter(|function| function.name.starts_with("_TAIL_CALL_"))
        .map(|function| [function.virt, function.virt.saturating_add(function.size)])
        .reduce(|all, one| [all[0].min(one[0]), all[1].max(one[1])])
}
