//! Summarises Python's imports.
//!
//! A program that loads large libraries has hundreds of thousands of distinct stacks before its first line of work, and
//! nobody asks where in a module's import a block was made. So while a process that was seen to start imports its
//! modules, the kernel side replaces what a module does by the module, and the collector does the same to stacks that
//! were walked before the kernel side knew the import system. When no new module was seen for a while, the program has
//! begun its work, even if that is within an import: stacks are whole from then on.

use std::collections::HashMap;

use memtrace_common::{
    python::{Code, IMPORT_FILES, IMPORT_NATIVE_FRAMES, Imports as Files, NOT_BEGUN},
    unwind::Word,
};

use crate::python::CodeObject;

/// The import system, which is frozen into the interpreter.
const IMPORT_SYSTEM: &str = "<frozen importlib.";
/// Its parts (Lib/importlib in CPython's sources), which call each other.
const PARTS: [&str; 2] = ["_bootstrap>", "_bootstrap_external>"];

/// The code that a module runs when it is imported.
const MODULE: &str = "<module>";

/// How long imports are summarised after the last new module, ns. Loading a large native library takes seconds.
const PATIENCE_NS: u64 = 30_000_000_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Imports {
    /// By tgid; `None`: not any more.
    of: HashMap<u32, Option<Importing>>,
}

#[derive(Debug)]
struct Importing {
    files: Files,
    /// Which of [`PARTS`] are known.
    knows: [bool; PARTS.len()],
    /// When a new module was last seen, CLOCK_MONOTONIC.
    latest_ns: u64,
}

/// Whether code belongs to the import system.
fn is_import_system(object: &CodeObject) -> bool {
    object.filename.starts_with(IMPORT_SYSTEM)
}

/// The native frames of a stack that has Python frames and is not a summary of an import; `None` for other stacks.
pub(super) fn native(words: &[u64]) -> Option<Vec<u64>> {
    let outermost = Word::decode(*words.last()?);
    if matches!(
        outermost,
        Some(Word::PythonAt {
            instruction: NOT_BEGUN,
            ..
        })
    ) {
        return None;
    }
    let is_native = |word: &u64| {
        let word = Word::decode(*word);
        !matches!(word, Some(Word::Python(_) | Word::PythonAt { .. }))
    };
    let native: Vec<u64> = words.iter().copied().filter(is_native).collect();
    (native.len() < words.len()).then_some(native)
}

impl Imports {
    /// The words of a stack of an import as the kernel side summarises them; `None`: the stack stays as it is. `object`
    /// finds the code object of an address and a fingerprint.
    pub(super) fn summarise<'a>(
        &self,
        tgid: u32,
        words: &[u64],
        object: impl Fn(u64, u32) -> Option<&'a CodeObject>,
    ) -> Option<Vec<u64>> {
        self.of.get(&tgid)?.as_ref()?;
        let mut module: Option<[u64; 2]> = None;
        for (index, pair) in words.windows(2).enumerate() {
            let (Some(Word::Python(code)), Some(Word::PythonAt { fingerprint, .. })) =
                (Word::decode(pair[0]), Word::decode(pair[1]))
            else {
                continue;
            };
            let frame = [pair[0], Word::python_at(NOT_BEGUN, fingerprint)];
            if object(code, fingerprint).is_some_and(is_import_system) {
                let inner = match &module {
                    Some(module) => module,
                    None => &words[..index.min(IMPORT_NATIVE_FRAMES as usize)],
                };
                return Some([inner, &frame].concat());
            }
            module = Some(frame);
        }
        None
    }

    /// Takes in a code object of a process that was seen to start. The import system as the kernel side has to know it,
    /// if that has changed.
    pub(super) fn learn(&mut self, code: &Code, object: &CodeObject) -> Option<Files> {
        let part = object.filename.strip_prefix(IMPORT_SYSTEM);
        if part.is_none() && object.name != MODULE {
            return None;
        }
        let new = || {
            Some(Importing {
                files: Files {
                    files: [0; IMPORT_FILES],
                },
                knows: [false; PARTS.len()],
                latest_ns: 0,
            })
        };
        let importing = self
            .of
            .entry(code.header.tgid)
            .or_insert_with(new)
            .as_mut()?;
        importing.latest_ns = importing.latest_ns.max(code.header.time_ns);
        let part = part?;
        let files = &mut importing.files.files;
        if files.contains(&code.filename.object) {
            return None;
        }
        let free = files.iter_mut().find(|file| **file == 0)?;
        *free = code.filename.object;
        for (knows, known) in importing.knows.iter_mut().zip(PARTS) {
            *knows |= part == known;
        }
        // With one part alone, a frame of the other one would pass for a module.
        (importing.knows == [true; PARTS.len()]).then_some(importing.files)
    }

    /// Whether the imports of a process are over.
    pub(super) fn are_over(&self, tgid: u32) -> bool {
        self.of.get(&tgid).is_some_and(Option::is_none)
    }

    /// The imports of a process are over.
    pub(super) fn end(&mut self, tgid: u32) {
        self.of.insert(tgid, None);
    }

    /// Processes whose imports are over.
    pub(super) fn take_ended(&mut self, now_ns: u64) -> Vec<u32> {
        let mut ended = Vec::new();
        for (tgid, importing) in &mut self.of {
            if importing
                .take_if(|of| now_ns.saturating_sub(of.latest_ns) > PATIENCE_NS)
                .is_some()
            {
                ended.push(*tgid);
            }
        }
        ended
    }

    /// The process has ended, or runs another program.
    pub(super) fn forget(&mut self, tgid: u32) {
        self.of.remove(&tgid);
    }
}

#[cfg(test)]
mod tests {
    use memtrace_common::{
        event::Header,
        python::{Text, fingerprint},
    };

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn learn(imports: &mut Imports, at_s: u64, file: (&str, u64), name: &str) -> Option<Files> {
        let code = Code {
            header: Header {
                tgid: 7,
                time_ns: at_s * SECOND,
                ..Header::default()
            },
            filename: Text {
                object: file.1,
                ..Text::default()
            },
            fingerprint: fingerprint(&memtrace_common::python::Identity::default()),
            ..Code::default()
        };
        let object = CodeObject::of(name, file.0);
        imports.learn(&code, &object)
    }

    #[test]
    fn the_import_system_is_known_by_its_files() {
        let mut imports = Imports::default();
        assert_eq!(
            learn(&mut imports, 1, ("/srv/a.py", 0x10), "<module>"),
            None
        );
        let bootstrap = ("<frozen importlib._bootstrap>", 0x20);
        assert_eq!(learn(&mut imports, 1, bootstrap, "_find_and_load"), None);
        assert_eq!(learn(&mut imports, 1, bootstrap, "_load_unlocked"), None);
        let external = ("<frozen importlib._bootstrap_external>", 0x30);
        let files = learn(&mut imports, 1, external, "get_code").unwrap();
        assert_eq!(files.files, [0x20, 0x30, 0, 0]);
    }

    /// What a module's import does is the module's frame; what the import system does itself keeps its innermost frames.
    #[test]
    fn what_the_kernel_side_did_not_summarise_yet_is_summarised() {
        let [system, module, main] = ["<frozen importlib._bootstrap>", "/srv/a.py", "/srv/main.py"]
            .map(|file| CodeObject::of("f", file));
        let object = |code, _| match code {
            0x10 => Some(&module),
            0x20 => Some(&system),
            0x30 => Some(&main),
            _ => None,
        };
        let frame = |code, at| [Word::python(code), Word::python_at(at, 5)];
        let native = [1, 2, 3].map(|vaddr| [Word::file(4, vaddr)]);
        let outer = [frame(0x20, 8), frame(0x30, 9)].concat();
        let mut imports = Imports::default();
        let words = [&frame(0x10, 6)[..], &frame(0x10, 7), &native[0], &outer].concat();
        assert_eq!(imports.summarise(7, &words, object), None);

        let bootstrap = ("<frozen importlib._bootstrap>", 0x20);
        learn(&mut imports, 1, bootstrap, "_find_and_load");
        let begun = u32::MAX;
        let summary = [frame(0x10, begun), frame(0x20, begun)].concat();
        let summarised = imports.summarise(7, &words, object);
        assert_eq!(summarised.as_ref(), Some(&summary));
        assert_eq!(imports.summarise(7, &summary, object), Some(summary));

        let words = [native.concat(), outer].concat();
        let summary = [&native[0][..], &native[1], &frame(0x20, begun)].concat();
        assert_eq!(imports.summarise(7, &words, object), Some(summary));
        assert_eq!(imports.summarise(7, &frame(0x30, 9), object), None);
        assert_eq!(imports.summarise(8, &words, object), None);
    }

    #[test]
    fn without_python_frames_only_summaries_have_some() {
        let native = [Word::file(4, 1), Word::file(4, 2)];
        let frame = |at| [Word::python(0x10), Word::python_at(at, 5)];
        let words = [&native[..1], &frame(7), &frame(NOT_BEGUN), &native[1..]].concat();
        assert_eq!(super::native(&words), Some(native.to_vec()));
        assert_eq!(super::native(&native), None);
        let summary = [frame(NOT_BEGUN), frame(NOT_BEGUN)].concat();
        assert_eq!(super::native(&summary), None);
        assert_eq!(super::native(&[]), None);
    }

    #[test]
    fn imports_are_over_some_time_after_the_last_module() {
        let mut imports = Imports::default();
        let bootstrap = ("<frozen importlib._bootstrap>", 0x20);
        learn(&mut imports, 1, bootstrap, "_find_and_load");
        learn(&mut imports, 8, ("/srv/a.py", 0x10), "<module>");
        // Other code of the program does not count.
        learn(&mut imports, 17, ("/srv/a.py", 0x10), "serve");
        assert!(imports.take_ended(38 * SECOND).is_empty());
        assert_eq!(imports.take_ended(39 * SECOND), [7]);
        assert!(imports.take_ended(90 * SECOND).is_empty());
        // For good.
        assert_eq!(
            learn(
                &mut imports,
                91,
                ("<frozen importlib._bootstrap>", 0x40),
                "x"
            ),
            None
        );
        imports.forget(7);
        learn(&mut imports, 92, bootstrap, "_find_and_load");
        let external = ("<frozen importlib._bootstrap_external>", 0x30);
        assert!(learn(&mut imports, 92, external, "get_code").is_some());
    }
}
