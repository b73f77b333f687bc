//! Offsets in the CPython structures that the kernel side follows. Up to 3.12 the layout of a minor
//! version is fixed once it is released; since 3.13 the interpreter describes it in
//! `_Py_DebugOffsets` at the beginning of `_PyRuntime` (Include/internal/pycore_runtime.h in 3.13,
//! pycore_debug_offsets.h in 3.14). x86-64.

use super::Candidate;
use crate::process::elf::Elf;
use memtrace_common::python::{Interpreter, NONE};

/// Why the layout of an interpreter is unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("Python 3.{0} is not supported, expected 3.9 to 3.14")]
    Version(u32),
    /// `PY_VERSION_HEX`.
    #[error("the interpreter is of version {got:#x}, expected a release of 3.{minor}")]
    OtherVersion { minor: u32, got: u64 },
    #[error("free-threaded Python 3.{0} is not supported")]
    FreeThreaded(u32),
    #[error("the interpreter's own description is damaged: {0}")]
    Damaged(&'static str),
}

/// The layout of the interpreter of a process. `exec`: number of its file; `bias`: difference
/// between addresses in the process and in the file.
pub(crate) fn interpreter(
    candidate: &Candidate,
    exec: u32,
    bias: u64,
) -> Result<Interpreter, Error> {
    let minor = candidate.minor;
    let runtime = candidate.runtime.wrapping_add(bias);
    let layout = match minor {
        9 => V3_9,
        10 => V3_10,
        11 => V3_11,
        12 => V3_12,
        13 | 14 => {
            let described = Described::of(minor).ok_or(Error::Version(minor))?;
            described.parse(minor, &candidate.description)?
        }
        other => return Err(Error::Version(other)),
    };
    Ok(Interpreter {
        runtime,
        eval: candidate.eval,
        exec,
        minor,
        ..layout
    })
}

/// What the file has for `_Py_DebugOffsets`. The memory of a process may not have it yet: its interpreter is found as soon
/// as its code is mapped.
pub(super) fn description(elf: &Elf<'_>, runtime: u64, minor: u32) -> Vec<u8> {
    let words = Described::of(minor).map_or(0, |described| described.words);
    let bytes = elf.initial(runtime, words * 8);
    bytes.unwrap_or_default().to_vec()
}

/// Whether the file's `_PyRuntime` is marked as free-threaded; 3.13 and later.
pub(super) fn is_free_threaded(elf: &Elf<'_>, runtime: u64, minor: u32) -> bool {
    let Some(bytes) = elf.initial(runtime, 3 * 8).filter(|_| minor >= 13) else {
        return false;
    };
    bytes.starts_with(COOKIE) && word(bytes, FREE_THREADED).is_some_and(|word| word != 0)
}

/// The parts common to all versions: object headers, and most of a string's.
const COMMON: Interpreter = Interpreter {
    runtime: 0,
    eval: [[0; 2]; 2],
    exec: 0,
    minor: 0,
    runtime_interpreters: 0,
    interpreter_next: 0,
    interpreter_threads: 0,
    thread_next: 8,
    thread_id: 0,
    thread_frame: 0,
    cframe_frame: NONE,
    frame_code: 0,
    frame_previous: 0,
    frame_instruction: 0,
    frame_boundary: NONE,
    code_instructions: NONE,
    code_filename: 0,
    code_name: 0,
    code_linetable: 0,
    code_first_line: 0,
    str_ascii_data: 48,
    str_compact_data: 72,
    str_length: 16,
    str_state: 32,
    bytes_size: 16,
    bytes_data: 32,
};

/// Include/cpython/{pystate,frameobject,code}.h, Include/internal/pycore_{runtime,interp}.h.
const V3_9: Interpreter = Interpreter {
    runtime_interpreters: 32,
    interpreter_threads: 8,
    thread_id: 176,
    thread_frame: 24,
    frame_code: 32,
    frame_previous: 24,
    frame_instruction: 104,
    code_filename: 104,
    code_name: 112,
    code_linetable: 120,
    code_first_line: 40,
    ..COMMON
};

const V3_10: Interpreter = Interpreter {
    frame_instruction: 96,
    ..V3_9
};

/// Include/internal/pycore_frame.h has `_PyInterpreterFrame` from here on.
const V3_11: Interpreter = Interpreter {
    runtime_interpreters: 40,
    interpreter_threads: 16,
    thread_id: 152,
    thread_frame: 56,
    cframe_frame: 8,
    frame_code: 32,
    frame_previous: 48,
    frame_instruction: 56,
    frame_boundary: 68,
    code_instructions: 184,
    code_filename: 112,
    code_name: 128,
    code_linetable: 136,
    code_first_line: 72,
    ..COMMON
};

const V3_12: Interpreter = Interpreter {
    interpreter_threads: 72,
    thread_id: 136,
    cframe_frame: 0,
    frame_code: 0,
    frame_previous: 8,
    frame_boundary: 70,
    code_instructions: 192,
    code_first_line: 68,
    str_ascii_data: 40,
    str_compact_data: 56,
    ..V3_11
};

const COOKIE: &[u8] = b"xdebugpy";

/// Index of a word of `_Py_DebugOffsets`.
const VERSION: usize = 1;
const FREE_THREADED: usize = 2;
const RUNTIME: usize = 3;
const INTERPRETER: usize = 6;

/// Bytes of `utf8_length` and `utf8`, which `PyCompactUnicodeObject` has after `PyASCIIObject`.
const COMPACT: u32 = 16;

const MAX_WORDS: usize = 81;

/// The words of `_Py_DebugOffsets` that describe each structure: the first of each is its size. The
/// order of those used here is the same in 3.13 and 3.14, which has more after them.
struct Described {
    thread: usize,
    frame: usize,
    code: usize,
    bytes: usize,
    unicode: usize,
    /// Words that are read.
    words: usize,
}

impl Described {
    fn of(minor: u32) -> Option<Described> {
        match minor {
            13 => Some(Described {
                thread: 19,
                frame: 28,
                code: 34,
                bytes: 64,
                unicode: 67,
                words: 71,
            }),
            14 => Some(Described {
                thread: 22,
                frame: 31,
                code: 39,
                bytes: 74,
                unicode: 77,
                words: MAX_WORDS,
            }),
            _ => None,
        }
    }

    fn parse(&self, minor: u32, bytes: &[u8]) -> Result<Interpreter, Error> {
        if !bytes.starts_with(COOKIE) {
            return Err(Error::Damaged("no cookie"));
        }
        let version = word(bytes, VERSION).ok_or(Error::Damaged("no version"))?;
        if version >> 16 != 0x300 | u64::from(minor) || !is_released(version) {
            return Err(Error::OtherVersion {
                minor,
                got: version,
            });
        }
        if word(bytes, FREE_THREADED) != Some(0) {
            return Err(Error::FreeThreaded(minor));
        }
        let field = |structure, index| field(bytes, structure, index);
        let ascii = field(self.unicode, 3)?;
        Ok(Interpreter {
            runtime_interpreters: field(RUNTIME, 2)?,
            interpreter_next: field(INTERPRETER, 2)?,
            interpreter_threads: field(INTERPRETER, 3)?,
            thread_next: field(self.thread, 2)?,
            thread_frame: field(self.thread, 4)?,
            thread_id: field(self.thread, 5)?,
            frame_previous: field(self.frame, 1)?,
            frame_code: field(self.frame, 2)?,
            frame_instruction: field(self.frame, 3)?,
            frame_boundary: field(self.frame, 5)?,
            code_filename: field(self.code, 1)?,
            code_name: field(self.code, 3)?,
            code_linetable: field(self.code, 4)?,
            code_first_line: field(self.code, 5)?,
            code_instructions: field(self.code, 9)?,
            bytes_size: field(self.bytes, 1)?,
            bytes_data: field(self.bytes, 2)?,
            str_state: field(self.unicode, 1)?,
            str_length: field(self.unicode, 2)?,
            str_ascii_data: ascii,
            str_compact_data: ascii + COMPACT,
            ..COMMON
        })
    }
}

/// A release or a candidate for one: the layout of earlier ones was still changing.
fn is_released(version: u64) -> bool {
    version >> 4 & 0xf >= 0xc
}

/// An offset, which must be within its structure.
fn field(bytes: &[u8], structure: usize, index: usize) -> Result<u32, Error> {
    /// The largest is the runtime's state, some hundred thousand bytes.
    const MAX_SIZE: u64 = 1 << 24;
    let damaged = Error::Damaged("an offset outside its structure");
    match (word(bytes, structure), word(bytes, structure + index)) {
        (Some(size), Some(offset)) if size <= MAX_SIZE && offset < size => {
            u32::try_from(offset).map_err(|_| damaged)
        }
        _ => Err(damaged),
    }
}

fn word(bytes: &[u8], index: usize) -> Option<u64> {
    let bytes = bytes.get(index * 8..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}
