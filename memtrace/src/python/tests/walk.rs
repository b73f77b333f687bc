//! Stacks of running interpreters, followed as the kernel side does, with nothing but an
//! [`Interpreter`] and the process's memory.

use super::{
    super::{CodeObject, interpreter},
    *,
};
use memtrace_common::python::{
    Code, FILENAME, Identity, Interpreter, LINETABLE, NAME, NONE, STR_HASH, Text, characters,
    fingerprint,
};

/// Reads one process.
struct Walker<'a> {
    script: &'a Script,
    at: Interpreter,
}

/// A frame, and whether the one before it in the chain was called by native code.
#[derive(Debug)]
struct Walked {
    name: String,
    file: String,
    line: Option<u32>,
    ends_run: bool,
}

impl Walker<'_> {
    fn bytes<const N: usize>(&self, address: u64) -> [u8; N] {
        let mut bytes = [0; N];
        let read = self.script.read(address, &mut bytes);
        read.unwrap_or_else(|error| panic!("3.{}: {address:#x}: {error}", self.at.minor));
        bytes
    }

    fn pointer(&self, object: u64, offset: u32) -> u64 {
        u64::from_ne_bytes(self.bytes(object + u64::from(offset)))
    }

    fn number(&self, object: u64, offset: u32) -> u32 {
        u32::from_ne_bytes(self.bytes(object + u64::from(offset)))
    }

    fn list(&self, first: u64, next: u32) -> Vec<u64> {
        let some = |object: u64| (object != 0).then_some(object);
        std::iter::successors(some(first), |&object| some(self.pointer(object, next)))
            .take(1000)
            .collect()
    }

    /// The stack of every thread state: its thread, and its frames, the innermost first.
    fn stacks(&self) -> Vec<(u64, Vec<Walked>)> {
        let at = &self.at;
        let first = self.pointer(at.runtime, at.runtime_interpreters);
        let interpreters = self.list(first, at.interpreter_next);
        interpreters
            .into_iter()
            .flat_map(|interpreter| {
                self.list(
                    self.pointer(interpreter, at.interpreter_threads),
                    at.thread_next,
                )
            })
            .map(|thread| (self.pointer(thread, at.thread_id), self.frames(thread)))
            .collect()
    }

    fn frames(&self, thread: u64) -> Vec<Walked> {
        let at = &self.at;
        let mut top = self.pointer(thread, at.thread_frame);
        if at.cframe_frame != NONE && top != 0 {
            top = self.pointer(top, at.cframe_frame);
        }
        let mut walked: Vec<Walked> = Vec::new();
        for frame in self.list(top, at.frame_previous) {
            let mark = match at.frame_boundary {
                NONE => 1,
                boundary => self.bytes::<1>(frame + u64::from(boundary))[0],
            };
            if at.minor >= 12 && mark >= 3 {
                if let Some(last) = walked.last_mut() {
                    last.ends_run = true;
                }
                continue;
            }
            // 3.14 keeps tags in the lowest bits.
            let code = self.pointer(frame, at.frame_code) & !7;
            let instruction = match at.code_instructions {
                NONE => self.number(frame, at.frame_instruction),
                code_instructions => self
                    .pointer(frame, at.frame_instruction)
                    .wrapping_sub(code + u64::from(code_instructions))
                    as u32,
            };
            let object = self.code(code);
            let frame = object.frame(object.line(instruction));
            walked.push(Walked {
                name: frame.function.unwrap(),
                file: frame.file.unwrap(),
                line: frame.line,
                ends_run: at.minor < 12 && mark == 1,
            });
        }
        walked
    }

    /// The record that the kernel side would send, decoded.
    fn code(&self, code: u64) -> CodeObject {
        let (record, areas) = self.record(code);
        CodeObject::decode(&record, &areas, &self.at, &|address, bytes| {
            self.script.read(address, bytes)
        })
    }

    fn record(&self, code: u64) -> (Code, Vec<u8>) {
        let at = &self.at;
        let (filename, mut areas) = self.text(self.pointer(code, at.code_filename), FILENAME);
        let (name, area) = self.text(self.pointer(code, at.code_name), NAME);
        areas.extend(area);
        let linetable = self.pointer(code, at.code_linetable);
        let linetable_len = self.number(linetable, at.bytes_size);
        areas.extend(self.area(
            linetable + u64::from(at.bytes_data),
            linetable_len as usize,
            LINETABLE,
        ));
        let first_line = self.number(code, at.code_first_line);
        let record = Code {
            code,
            filename,
            name,
            linetable,
            linetable_len,
            first_line,
            fingerprint: fingerprint(&Identity {
                filename: filename.object,
                name: name.object,
                linetable,
                first_line,
                name_hash: self.pointer(name.object, STR_HASH),
                linetable_size: self.pointer(linetable, at.bytes_size),
                linetable_start: self.pointer(linetable, at.bytes_data),
            }),
            ..Code::default()
        };
        (record, areas)
    }

    fn text(&self, object: u64, area: usize) -> (Text, Vec<u8>) {
        let at = &self.at;
        let state = self.number(object, at.str_state);
        let (width, ascii) = characters(state);
        let length = self.number(object, at.str_length);
        let data = if ascii {
            at.str_ascii_data
        } else {
            at.str_compact_data
        };
        let text = Text {
            object,
            length,
            width: width as u16,
            ascii: u16::from(ascii),
        };
        (
            text,
            self.area(object + u64::from(data), (length * width) as usize, area),
        )
    }

    fn area(&self, address: u64, size: usize, area: usize) -> Vec<u8> {
        let mut bytes = vec![0; size.min(area)];
        self.script.read(address, &mut bytes).unwrap();
        bytes.resize(area, 0);
        bytes
    }
}

/// Long enough that its name and its line table do not fit their areas; `deep` is at its end.
const LONG: usize = 300;

/// Three threads: the main one stops deep inside, a second in a lambda, the third in a
/// subinterpreter. Each writes a byte in the line in which it stops; before that, the main one
/// writes its identity, as returned by `pthread_self`.
fn source() -> String {
    let long = "l".repeat(LONG);
    let body = "        x = x.a; x.b(x)\n".repeat(1000);
    format!(
        r#"import _thread
import os
import sys
try:
    import _interpreters as interpreters
    execute = interpreters.exec
except ImportError:
    import _xxsubinterpreters as interpreters
    execute = interpreters.run_string
blocked = _thread.allocate_lock()
blocked.acquire()
never, _ = os.pipe()


def wait():
    os.write(1, b"r"); os.read(0, 1)  # wait


def generate():
    wait()  # generate
    yield


class Größe:
    class 𠀀:
        def run(self):
            for _ in generate():  # run
                pass


def {long}(x=None):
    if x:
{body}
    sorted([1], key=lambda _: Größe.𠀀().run())  # lambda


def second():
    (lambda: (os.write(1, b"r"), blocked.acquire()))()  # second


INNER = """
import os
def inner():
    os.write(1, b"r"); os.read(%d, 1)
inner()
""" % never


def third():
    execute(interpreters.create(), INNER)  # third


os.write(1, _thread.get_ident().to_bytes(8, "little"))
_thread.start_new_thread(second, ())
_thread.start_new_thread(third, ())
{long}()  # module
"#
    )
}

/// The line that ends with a mark.
fn marked(source: &str, mark: &str) -> Option<u32> {
    let at = source
        .lines()
        .position(|line| line.ends_with(&format!("# {mark}")));
    Some(u32::try_from(at.unwrap()).unwrap() + 1)
}

#[test]
fn stacks_of_running_interpreters_match_the_script() {
    let dir = tempfile::tempdir().unwrap();
    // A directory and a file in letters that need two bytes, a path longer than its area.
    let dir = dir.path().join("目录".repeat(30)).join("x".repeat(150));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("脚本.py");
    let source = source();
    write(&path, &source);
    let mut walked = Vec::new();
    for program in interpreters() {
        if !is_supported(&program) {
            continue;
        }
        let script = Script::start(&program, &path, 8 + 3);
        let (_, candidate, bias) = script.interpreter().unwrap().unwrap();
        let at = interpreter(&candidate, 0, bias).unwrap();
        let walker = Walker {
            script: &script,
            at,
        };
        check(&walker, &source, path.to_str().unwrap());
        walked.push(candidate.minor);
    }
    eprintln!("walked: {walked:?}");
    assert!(!walked.is_empty());
}

fn check(walker: &Walker<'_>, source: &str, file: &str) {
    let minor = walker.at.minor;
    let stacks = walker.stacks();
    let named = |stack: &[Walked]| -> Vec<(String, String, Option<u32>)> {
        let seen = |frame: &Walked| (frame.name.clone(), frame.file.clone(), frame.line);
        stack.iter().map(seen).collect()
    };
    let expected = |frames: &[(&str, &str)]| -> Vec<(String, String, Option<u32>)> {
        let seen = |&(name, mark): &(&str, &str)| {
            // There are only own names before 3.11.
            let own = name.rsplit('.').next().unwrap();
            let name = if minor < 11 { own } else { name };
            (name.to_owned(), file.to_owned(), marked(source, mark))
        };
        frames.iter().map(seen).collect()
    };
    let long = "l".repeat(LONG);
    let lambda = format!("{long}.<locals>.<lambda>");
    let find = |name: &str| {
        let mut found = stacks
            .iter()
            .filter(|(_, stack)| stack.first().is_some_and(|frame| frame.name == name));
        let stack = found.next();
        assert!(found.next().is_none());
        stack.unwrap_or_else(|| panic!("3.{minor}: no {name} in {stacks:#?}"))
    };

    let (main_thread, main) = find("wait");
    let frames = [
        ("wait", "wait"),
        ("generate", "generate"),
        ("Größe.𠀀.run", "run"),
        (&*lambda, "lambda"),
        (&*long, "lambda"),
        ("<module>", "module"),
    ];
    assert_eq!(named(main), expected(&frames), "3.{minor}");
    assert!(main[3].ends_run, "3.{minor}: sorted calls the lambda");
    assert!(main[5].ends_run, "3.{minor}");
    assert_eq!(
        main[0].ends_run,
        minor < 11,
        "3.{minor}: a call without native code"
    );
    assert_eq!(main[4].ends_run, minor < 11, "3.{minor}");

    let name = if minor < 11 {
        "<lambda>"
    } else {
        "second.<locals>.<lambda>"
    };
    let (second_thread, second) = find(name);
    assert_eq!(
        named(second),
        expected(&[("second.<locals>.<lambda>", "second"), ("second", "second")]),
        "3.{minor}"
    );
    assert_eq!(
        walker.script.said[..8],
        main_thread.to_le_bytes(),
        "3.{minor}"
    );
    assert_ne!(main_thread, second_thread);

    let (_, third) = find("third");
    assert_eq!(named(third), expected(&[("third", "third")]), "3.{minor}");
    let (_, inner) = find("inner");
    let lines: Vec<_> = inner
        .iter()
        .map(|frame| (&*frame.name, frame.line))
        .collect();
    assert_eq!(
        lines,
        [("inner", Some(4)), ("<module>", Some(5))],
        "3.{minor}"
    );
}

#[test]
fn code_that_changed_meanwhile_is_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("script.py");
    let long = "l".repeat(LONG);
    write(
        &path,
        &format!("import os\ndef {long}():\n    os.write(1, b'r'); os.read(0, 1)\n{long}()\n"),
    );
    let script = Script::start(Path::new(DISTRIBUTION), &path, 1);
    let (_, candidate, bias) = script.interpreter().unwrap().unwrap();
    let at = interpreter(&candidate, 0, bias).unwrap();
    let read = |address, bytes: &mut [u8]| script.read(address, bytes);
    let walker = Walker {
        script: &script,
        at,
    };
    let first = walker.pointer(at.runtime, at.runtime_interpreters);
    let thread = walker.pointer(first, at.interpreter_threads);
    let mut frame = walker.pointer(thread, at.thread_frame);
    if at.cframe_frame != NONE {
        frame = walker.pointer(frame, at.cframe_frame);
    }
    let (mut record, areas) = walker.record(walker.pointer(frame, at.frame_code) & !7);
    assert_eq!(CodeObject::decode(&record, &areas, &at, &read).name, long);
    record.fingerprint ^= 1;
    let decoded = CodeObject::decode(&record, &areas, &at, &read);
    assert_eq!(decoded.name, format!("{}…", &long[..NAME]));
    assert_eq!(decoded.filename, path.to_str().unwrap());
}
