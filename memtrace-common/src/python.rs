//! The kernel side's description of a CPython interpreter, and its records about Python code.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::hash::{SEED, mix};

/// A field that this version of the interpreter does not have.
pub const NONE: u32 = u32::MAX;

/// Value of the INTERPRETERS map, keyed by tgid. Offsets in bytes; structures
/// are named as in CPython's sources.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Interpreter {
    /// Absolute address of `_PyRuntime`.
    pub runtime: u64,
    /// Code of `_PyEval_EvalFrameDefault`, and of the part that the compiler moved away as cold (or
    /// an empty range): start and end, addresses as the file means them.
    pub eval: [[u64; 2]; 2],
    /// Number of the file that holds this code.
    pub exec: u32,
    /// 11 for Python 3.11.
    pub minor: u32,
    /// `_PyRuntimeState.interpreters.head`.
    pub runtime_interpreters: u32,
    /// `PyInterpreterState.next`, `.threads.head`.
    pub interpreter_next: u32,
    pub interpreter_threads: u32,
    /// `PyThreadState.next`, `.thread_id` (pthread_self, the thread's fs base).
    pub thread_next: u32,
    pub thread_id: u32,
    /// Pointer to the innermost frame, or (3.11, 3.12) to the `_PyCFrame` that has it.
    pub thread_frame: u32,
    /// `_PyCFrame.current_frame`, or [`NONE`].
    pub cframe_frame: u32,
    /// Of a frame (`PyFrameObject` up to 3.10, `_PyInterpreterFrame` since): its code object, the
    /// frame that called it.
    pub frame_code: u32,
    pub frame_previous: u32,
    /// `f_lasti` (i32) up to 3.10; since 3.11 a pointer into the code object.
    pub frame_instruction: u32,
    /// Byte that shows where a run of the evaluation loop began: `is_entry` in 3.11 (1: the outermost frame of the
    /// run), `owner` since 3.12 (3 or more: not a frame, a mark between runs), or [`NONE`]: each frame is a run of its
    /// own.
    pub frame_boundary: u32,
    /// `PyCodeObject.co_code_adaptive`, to which `frame_instruction` relates, or [`NONE`].
    pub code_instructions: u32,
    pub code_filename: u32,
    /// `co_qualname`, or `co_name` where there is none.
    pub code_name: u32,
    pub code_linetable: u32,
    pub code_first_line: u32,
    /// Data of a compact string: ASCII, and otherwise.
    pub str_ascii_data: u32,
    pub str_compact_data: u32,
    /// `PyASCIIObject.length` and `.state`; `PyVarObject.ob_size` and the data of a bytes object.
    pub str_length: u32,
    pub str_state: u32,
    pub bytes_size: u32,
    pub bytes_data: u32,
}

/// File names of code objects, see [`Imports`].
pub const IMPORT_FILES: usize = 4;

/// Value of the IMPORTS map, keyed by tgid: the import system of a process whose imports are summarised. Absolute
/// addresses of string objects, which its code objects have as file names; 0: none.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Imports {
    pub files: [u64; IMPORT_FILES],
}

/// Innermost native frames that stay of a summarised import without a Python frame of its own: a library that is loaded.
pub const IMPORT_NATIVE_FRAMES: u32 = 2;

/// The instruction of a frame that has not begun: it is at its first line.
pub const NOT_BEGUN: u32 = (1 << 28) - 1;

/// The fields of a code object lie in [`CODE_BYTES`] from this offset on, which are read at once.
pub const CODE_WINDOW: u32 = 40;
pub const CODE_BYTES: u64 = 112;

/// First bytes of a frame that hold its fields. Since 3.11 frames are small, and may end with a page.
pub const FRAME_BYTES: u64 = 80;
pub const FRAME_BYTES_BEFORE_311: u64 = 112;

/// Bytes of a bytes object from its size to the end of its first word of data.
pub const BYTES_HEAD: u64 = 24;

/// Most bytes of each part of a [`Code`] that the kernel side copies.
pub const FILENAME: usize = 256;
pub const NAME: usize = 256;
pub const LINETABLE: usize = 2048;

/// Bytes of a character and whether all are ASCII, by `PyASCIIObject.state`: `interned` has its
/// first 2 bits, or 16 in the first releases of 3.14, `kind` the next 3, `compact` and `ascii` one
/// each (Include/cpython/unicodeobject.h). `kind` is never 0, and of the 16 bits all but 2 are.
#[must_use]
pub const fn characters(state: u32) -> (u32, bool) {
    const KIND: u32 = 7;
    let early = state >> 2;
    let bits = if early & KIND != 0 {
        early
    } else {
        state >> 16
    };
    (bits & KIND, bits & 1 << 4 != 0)
}

/// A string object as far as it was copied.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Text {
    /// Absolute address of the object.
    pub object: u64,
    /// Characters.
    pub length: u32,
    /// Bytes of a character: 1, 2 or 4; 0: could not be read.
    pub width: u16,
    /// 1: ASCII.
    pub ascii: u16,
}

/// [`crate::event::Kind::PythonCode`]: a code object not reported before. Followed by the
/// filename, the name and the line table, each in an area of the size above.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Code {
    pub header: crate::event::Header,
    /// As in [`crate::event::Stack::image`].
    pub image: u64,
    /// Absolute address of the code object.
    pub code: u64,
    pub filename: Text,
    pub name: Text,
    /// Absolute address of the line table, a bytes object, and its bytes.
    pub linetable: u64,
    pub linetable_len: u32,
    pub first_line: u32,
    /// Of the pointers and the line above, see [`fingerprint`].
    pub fingerprint: u32,
    pub pad: u32,
}

/// The input of [`fingerprint`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Absolute addresses of the objects.
    pub filename: u64,
    pub name: u64,
    pub linetable: u64,
    pub first_line: u32,
    /// `PyASCIIObject.hash` of the name: objects of the same size often take the place of one another.
    pub name_hash: u64,
    /// `ob_size` of the line table, and the eight bytes where its data begins.
    pub linetable_size: u64,
    pub linetable_start: u64,
}

/// Offset of `PyASCIIObject.hash`, bytes; the same in all versions.
pub const STR_HASH: u32 = 24;

/// Distinguishes a code object from another one at the same address.
#[inline(always)]
pub const fn fingerprint(of: &Identity) -> u32 {
    let mut hash = mix(SEED, of.filename);
    hash = mix(hash, of.name);
    hash = mix(hash, of.linetable);
    hash = mix(hash, of.first_line as u64);
    hash = mix(hash, of.name_hash);
    hash = mix(hash, of.linetable_size);
    hash = mix(hash, of.linetable_start);
    hash as u32
}

#[cfg(test)]
mod tests {
    use super::characters;

    #[test]
    fn characters_of_either_layout() {
        let bits = |kind: u32, ascii: u32| kind | 1 << 3 | ascii << 4;
        // 3.9 to 3.13, later 3.14.
        assert_eq!(characters(bits(1, 1) << 2 | 1), (1, true));
        assert_eq!(characters(bits(2, 0) << 2), (2, false));
        assert_eq!(
            characters(0xdead_0000 | bits(4, 0) << 2 | 3),
            (4, false),
            "padding"
        );
        // The first of 3.14: `interned` is a number of 16 bits.
        assert_eq!(characters(bits(1, 1) << 16 | 3), (1, true));
        assert_eq!(characters(bits(4, 0) << 16), (4, false));
    }
}
