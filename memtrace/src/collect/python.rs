//! The Python side of stacks: which processes run an interpreter, and the code objects that the
//! kernel side has reported.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    io,
    sync::Arc,
};

use memtrace_common::{
    python::{
        BYTES_HEAD, CODE_BYTES, CODE_WINDOW, Code, FRAME_BYTES, FRAME_BYTES_BEFORE_311,
        Interpreter, NONE,
    },
    unwind::Word,
};

use super::{
    location::{CodeId, Location, ModuleIndex},
    modules::Module,
};
use crate::{
    hash::FastMap,
    process_root::Memory,
    python::{self, CodeObject},
};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pythons {
    /// By the kernel side's keys: program; address, fingerprint.
    known: FastMap<u64, FastMap<(u64, u32), CodeId>>,
    objects: Vec<Arc<CodeObject>>,
    by_content: HashMap<Arc<CodeObject>, CodeId>,
    warned: HashSet<ModuleIndex>,
}

/// Reads the memory of a process.
fn read(tgid: u32) -> impl Fn(u64, &mut [u8]) -> io::Result<()> {
    let memory = Memory::of(tgid);
    move |address, buffer| match &memory {
        Ok(memory) => memory.read_exact_at(buffer, address),
        Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
    }
}

impl Pythons {
    /// Checks a file that a process maps with this bias for an interpreter.
    pub(super) fn mapped(
        &mut self,
        index: ModuleIndex,
        module: &Module,
        bias: u64,
    ) -> Option<Interpreter> {
        let candidate = match &module.python {
            Ok(candidate) => candidate.as_ref()?,
            Err(unsupported) => {
                if self.warned.insert(index) {
                    tracing::warn!("`{}`: {unsupported}", module.file.path.display());
                }
                return None;
            }
        };
        match python::interpreter(candidate, index.0, bias) {
            Ok(interpreter) if !fits(&interpreter) => {
                if self.warned.insert(index) {
                    tracing::warn!(
                        "`{}`: the layout of its frames matches no known Python 3.{}",
                        module.file.path.display(),
                        interpreter.minor
                    );
                }
                None
            }
            Ok(interpreter) => Some(interpreter),
            Err(error) => {
                if self.warned.insert(index) {
                    tracing::warn!(
                        "`{}`: stacks have no Python frames: {error}",
                        module.file.path.display()
                    );
                }
                None
            }
        }
    }

    /// No process runs the program any more.
    pub(super) fn forget_image(&mut self, image: u64) {
        self.known.remove(&image);
    }

    /// Takes in a code object of a process that runs `interpreter`; gives it, and whether it is new to the recording.
    pub(super) fn learn(
        &mut self,
        interpreter: &Interpreter,
        code: &Code,
        areas: &[u8],
    ) -> (CodeId, Arc<CodeObject>, bool) {
        let tgid = code.header.tgid;
        let object = Arc::new(CodeObject::decode(code, areas, interpreter, &read(tgid)));
        let next = CodeId(u32::try_from(self.objects.len()).unwrap_or(u32::MAX));
        // Two truncated ones may or may not be the same.
        let is_cut = [&object.name, &object.filename].map(|text| text.ends_with('…'));
        let (id, new) = match self.by_content.entry(Arc::clone(&object)) {
            Entry::Occupied(known) if is_cut == [false; 2] => (*known.get(), false),
            Entry::Occupied(mut known) => {
                self.objects.push(Arc::clone(&object));
                known.insert(next);
                (next, true)
            }
            Entry::Vacant(place) => {
                self.objects.push(Arc::clone(&object));
                (*place.insert(next), true)
            }
        };
        let known = self.known.entry(code.image).or_default();
        known.insert((code.code, code.fingerprint), id);
        (id, object, new)
    }

    /// Location of a frame of the code object at an absolute address, `at` the word that follows
    /// its own; `None` for one that is not a frame of the program.
    pub(super) fn locate(&self, image: u64, code: u64, at: Option<Word>) -> Option<Location> {
        let Some(Word::PythonAt {
            instruction,
            fingerprint,
        }) = at
        else {
            return Some(Location::UnknownPython(code));
        };
        let Some((id, object)) = self.find(image, code, fingerprint) else {
            return Some(Location::UnknownPython(code));
        };
        (!is_shim(object)).then(|| Location::Python(id, object.line(instruction)))
    }

    /// The code object at an absolute address.
    pub(super) fn find(
        &self,
        image: u64,
        code: u64,
        fingerprint: u32,
    ) -> Option<(CodeId, &CodeObject)> {
        let id = *self.known.get(&image)?.get(&(code, fingerprint))?;
        Some((id, &self.objects[id.0 as usize]))
    }
}

/// Whether it is the interpreter's own: 3.12 and 3.13 put `_Py_InitCleanup` (Python/specialize.c)
/// below an `__init__` that they have inlined. No other code has that file name.
fn is_shim(object: &CodeObject) -> bool {
    object.name == "__init__" && object.filename == "__init__"
}

/// Whether everything that the kernel side reads is within its reach.
fn fits(python: &Interpreter) -> bool {
    let frame = if python.minor >= 11 {
        FRAME_BYTES
    } else {
        FRAME_BYTES_BEFORE_311
    };
    // Words within this many bytes from an offset on.
    let lie_in = |words: &[u32], from: u32, bytes: u64| {
        let from = u64::from(from);
        words
            .iter()
            .all(|&word| (from..=from + bytes - 8).contains(&u64::from(word)))
    };
    let in_frame = [
        python.frame_code,
        python.frame_previous,
        python.frame_instruction,
    ];
    let in_code = [
        python.code_filename,
        python.code_name,
        python.code_linetable,
        python.code_first_line,
    ];
    lie_in(&in_frame, 0, frame)
        && (python.frame_boundary == NONE || u64::from(python.frame_boundary) < frame)
        && lie_in(&in_code, CODE_WINDOW, CODE_BYTES)
        && lie_in(&[python.bytes_data], python.bytes_size, BYTES_HEAD)
}

/// Bytes that the object allocator of this version takes from the kernel at once
/// (ARENA_SIZE, Objects/obmalloc.c, Include/internal/pycore_obmalloc.h).
pub(super) fn arena_size(python: &Interpreter) -> u64 {
    if python.minor >= 10 {
        1 << 20
    } else {
        256 << 10
    }
}
