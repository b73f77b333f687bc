//! Finding the interpreter and its evaluation loop in a file.

use super::{super::detect::*, *};
use crate::arch::{self, Architecture};
use std::process::Command;

#[test]
fn files_without_an_interpreter_have_no_candidate() {
    assert_eq!(
        candidate(&Path::new(arch::LIBRARIES).join("libc.so.6")),
        Ok(None)
    );
}

/// A function with a part that is moved away, and the marks of an interpreter.
fn compiled(dir: &Path, name: &str, version: &str) -> PathBuf {
    let source = dir.join("loop.c");
    write(
        &source,
        "
        extern void cold(int *) __attribute__((cold));
        extern void hot(int *);
        long _PyRuntime[4];
        int *_PyEval_EvalFrameDefault(int *op) {
            int locals[40];
            for (;;) {
                switch (*op++) {
                case 0: hot(locals); break;
                case 1: hot(op + *locals); break;
                case 2: return op;
                default: cold(locals); cold(op); hot(locals + 1); break;
                }
            }
        }
        void _TAIL_CALL_NOP(void) {}
        void _TAIL_CALL_RESUME(void) {}
        static void code_dealloc(void *code) { hot(code); }
        void *PyCode_Type[10] = {[6] = code_dealloc};
        void hot(int *p) { *p = 1; }
        void cold(int *p) { *p = 2; }
        ",
    );
    let out = dir.join(name);
    let done = Command::new("gcc")
        .args([
            "-O2",
            "-shared",
            "-fPIC",
            "-freorder-blocks-and-partition",
            "-o",
        ])
        .arg(&out)
        .arg(&source)
        .arg(version)
        .status()
        .unwrap();
    assert!(done.success());
    out
}

#[test]
fn the_cold_part_is_found_without_its_symbol() {
    let dir = tempfile::tempdir().unwrap();
    let file = compiled(
        dir.path(),
        "libpython3.9.so.1.0",
        "-Wl,-soname,libpython3.9.so.1.0",
    );
    let with_symbols = candidate(&file).unwrap().unwrap();
    let [main, cold] = with_symbols.eval;
    assert!(
        main[0] < main[1] && cold[0] < cold[1],
        "{main:x?} {cold:x?}"
    );
    assert!(cold[1] <= main[0] || cold[0] >= main[1]);
    let handlers = with_symbols.handlers.unwrap();
    assert!(handlers[0] < handlers[1]);
    assert!(handlers[1] <= main[0] || handlers[0] >= main[1]);

    let stripped = Command::new("strip").arg(&file).status().unwrap();
    assert!(stripped.success());
    assert_eq!(candidate(&file).unwrap().unwrap(), with_symbols);
}

#[test]
fn the_end_of_code_objects_is_found_however_its_pointer_is_relocated() {
    let dir = tempfile::tempdir().unwrap();
    let found = |option: &str| {
        let file = compiled(dir.path(), "libpython3.11.so", option);
        let bytes = std::fs::read(&file).unwrap();
        let elf = Elf::parse(&bytes).unwrap();
        let symbol = elf.functions().find(|of| of.name == "code_dealloc");
        let expected = symbol.map(|of| of.virt);
        assert!(expected.is_some());
        assert_eq!(candidate(&file).unwrap().unwrap().code_dealloc, expected);
    };
    found("-g0");
    found("-Wl,-z,pack-relative-relocs");
}

#[test]
fn the_version_comes_from_a_name_or_from_the_content() {
    let dir = tempfile::tempdir().unwrap();
    let minor = |name: &str, option: &str| {
        candidate(&compiled(dir.path(), name, option)).map(|found| found.unwrap().minor)
    };
    let soname = "-Wl,-soname,libpython3.10.so.1.0";
    assert_eq!(minor("renamed.so", soname), Ok(10), "by the soname");
    assert_eq!(minor("python3.12", "-g0"), Ok(12), "by the file's name");
    assert_eq!(
        minor("embedded.so", "-Wl,-soname,prefix/3.9.18"),
        Ok(9),
        "by the text"
    );
    for (name, option, what) in [
        ("embedded.so", "-g0", "an interpreter of unknown version"),
        ("libpython3.8.so", "-g0", "Python 3.8"),
        ("python3.15", "-g0", "Python 3.15"),
        ("python3.13t", "-g0", "free-threaded Python 3.13"),
        ("libpython3.11d.so.1.0", "-g0", "a debug build"),
    ] {
        let error = minor(name, option).unwrap_err();
        assert!(error.to_string().contains(what), "{name}: {error}");
    }
}

/// Call frame information has to agree with the symbols of the interpreters here that have them.
#[test]
fn the_interpreters_here_have_their_loops() {
    let dir = tempfile::tempdir().unwrap();
    for interpreter in interpreters() {
        let script = dir.path().join("wait.py");
        write(&script, "import os\nos.write(1, b'r')\nos.read(0, 1)\n");
        let script = Script::start(&interpreter, &script, 1);
        let found = script.interpreter();
        if !is_supported(&interpreter) {
            // Up to 3.6 there was no `_PyRuntime`.
            assert!(
                matches!(found, Ok(None) | Err(_)),
                "{}",
                interpreter.display()
            );
            continue;
        }
        let (path, candidate, _) = found.unwrap().unwrap();
        let [main, cold] = candidate.eval;
        eprintln!(
            "{}: 3.{} {main:x?} {cold:x?}",
            path.display(),
            candidate.minor
        );
        assert!(main[1] - main[0] > 10_000, "{}", path.display());
        assert!(cold[0] == cold[1] || cold[1] <= main[0] || cold[0] >= main[1]);
        let bytes = std::fs::read(&path).unwrap();
        let elf = Elf::parse(&bytes).unwrap();
        let mut functions = elf.functions().filter(|of| of.name == "code_dealloc");
        let known = functions.next().map(|of| of.virt);
        let freeing = candidate.code_dealloc;
        assert!(freeing.is_some() && (known.is_none() || known == freeing));
        let found = by_jumps(&elf, &(main[0]..main[1])).unwrap_or(0..0);
        // gcc leaves a few instructions there that nothing leads to.
        if found.is_empty() {
            let code = elf.code(elf.file_offset(cold[0]).unwrap_or(0), cold[1] - cold[0]);
            assert!(arch::jumps(Architecture::NATIVE, code, 0).is_empty());
        } else {
            assert_eq!(found, cold[0]..cold[1], "{}", path.display());
        }
    }
}
