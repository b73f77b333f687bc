//! The line of a stack that its programmer knows.

use super::{Frame, innermost_of_program, runtime_heaps, symbol::plain};

/// Prefixes of functions in the languages' own libraries.
const LIBRARIES: &[&str] = &[
    "std::",
    "__gnu_cxx::",
    "alloc::",
    "core::",
    "hashbrown::",
    "<alloc::",
    "<str>::",
    "<[",
    "<std::",
    "<core::",
    // Go's.
    "runtime.",
    "runtime/cgo",
    "_cgo_",
    // C++'s, where a name could not be demangled.
    "_ZSt",
    "_ZNSt",
    "_ZNKSt",
    "_ZN9__gnu_cxx",
    "_ZNK9__gnu_cxx",
];

/// Parts of the paths of the sources of languages' libraries and of packages: Rust's, Go's and C++'s.
const SOURCES: &[&str] = &[
    "/rustc/",
    "/lib/rustlib/src/rust/library/",
    "/.cargo/registry/",
    "/.cargo/git/",
    "/go/pkg/mod/",
    "/include/c++/",
    "/usr/include/",
];

/// Files of the libraries of C and C++.
const RUNTIMES: &[&str] = &["libc.so", "libc-2", "libstdc++.so", "libc++.so", "ld-musl"];

/// Whether this is a source of Go's standard library: `/usr/local/go/src/net/http/server.go`, or below `go-1.22` or
/// `go1.22`. The folders of other code begin with a domain there.
fn is_of_go(file: &str) -> bool {
    let Some((root, package)) = file.split_once("/src/") else {
        return false;
    };
    let root = root.rsplit('/').next().unwrap_or_default();
    let version = root
        .strip_prefix("go")
        .map(|rest| rest.trim_start_matches('-'));
    let is_root = version.is_some_and(|of| of.is_empty() || of.starts_with("1."));
    let package = package.split('/').next().unwrap_or_default();
    is_root && file.ends_with(".go") && !package.contains('.')
}

fn is_of_libc(frame: &Frame) -> bool {
    let module = frame.module_name().filter(|_| !frame.is_python());
    module.is_some_and(|module| RUNTIMES.iter().any(|runtime| module.starts_with(runtime)))
}

/// Whether a native frame is of a language's library, or of a package that comes as source.
pub(crate) fn is_of_language(frame: &Frame) -> bool {
    if is_of_libc(frame) {
        return true;
    }
    let file = frame.file.as_deref().filter(|_| !frame.is_python());
    if file.is_some_and(|file| SOURCES.iter().any(|of| file.contains(of)) || is_of_go(file)) {
        return true;
    }
    let function = frame.function.as_deref().map(plain);
    function.is_some_and(|function| {
        let mut libraries = LIBRARIES.iter();
        libraries.any(|library| function.starts_with(library))
    })
}

/// Folders of the libraries that come with the system.
const SYSTEM: &[&str] = &["/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/"];

/// Functions of such libraries that run a whole program: their call says nothing about what it does.
const LOOPS: &[&str] = &[
    "g_main_loop_run",
    "g_main_context_iteration",
    "g_application_run",
    "gtk_main",
    "QCoreApplication::exec",
    "QEventLoop::exec",
    "event_base_loop",
    "ev_run",
    "uv_run",
];

/// Whether a native frame is of a library that comes with the system, or of the runtime of a language.
pub(super) fn is_of_system(frame: &Frame) -> bool {
    let module = frame.module.as_deref().filter(|_| !frame.is_python());
    let file = frame.module_name().unwrap_or_default();
    module.is_some_and(|module| {
        let mut folders = SYSTEM.iter();
        folders.any(|folder| module.starts_with(folder))
            || runtime_heaps::in_file(file, |_| false).is_some()
    })
}

fn is_loop(frame: &Frame) -> bool {
    let function = frame.function.as_deref().map(plain);
    function.is_some_and(|function| LOOPS.contains(&&*function))
}

/// Whether a native frame is certainly of the program itself: its file does not come with the system, or tells its lines.
pub(crate) fn is_of_program(frame: &Frame) -> bool {
    let is_own = |module: &str| !module.starts_with("/usr/") || frame.file.is_some();
    let module = frame.module.as_deref().filter(|_| !frame.is_python());
    let module = module.filter(|module| module.starts_with('/') && is_own(module));
    module.is_some() && !is_of_system(frame) && !is_of_language(frame)
}

/// The program's own line in a stack without its wrappers (leaf first): of Python the innermost that is not
/// installed, otherwise the first that is of no language's library, and of none of the system's if the program called it.
pub(crate) fn own_line<'a>(frames: &[&'a Frame]) -> Option<&'a Frame> {
    let python = frames.iter().copied().filter(|frame| frame.is_python());
    let native = frames
        .iter()
        .copied()
        .filter(|frame| !is_of_language(frame));
    let mut native = native.take_while(|frame| !is_loop(frame));
    innermost_of_program(python)
        .or_else(|| {
            let own = native.find(|frame| is_of_program(frame) || !is_of_system(frame))?;
            is_of_program(own).then_some(own)
        })
        .or_else(|| compared_line(frames))
}

/// As [`own_line`], if it is certainly the program's.
pub(crate) fn program_line<'a>(frames: &[&'a Frame]) -> Option<&'a Frame> {
    own_line(frames).filter(|own| match own.is_python() {
        true => own.file.is_some() && !own.is_installed(),
        false => is_of_program(own),
    })
}

/// Callers that are named: further out, they say little.
const CALLERS: usize = 3;

/// The program's functions that called its own native line, the nearest first, in a stack as above: the line may be that of a
/// pool or of another allocator of the program's. Everything is called by `main`.
pub(crate) fn callers<'a>(frames: &[&'a Frame]) -> Vec<&'a Frame> {
    let Some(own) = own_line(frames).filter(|own| is_of_program(own)) else {
        return vec![];
    };
    let outwards = frames.iter().copied();
    let outwards = outwards.skip_while(|frame| !std::ptr::eq(*frame, own));
    let named = outwards.filter(|frame| is_of_program(frame) && frame.function.is_some());
    let mut named: Vec<&Frame> = named.collect();
    named.dedup_by_key(|frame| &frame.function);
    let is_main = |frame: &Frame| {
        let name = frame.function.as_deref().map(plain).unwrap_or_default();
        name == "main" || name == "main.main" || name.ends_with("::main")
    };
    let callers = named.into_iter().skip(1).take_while(|of| !is_main(of));
    callers.take(CALLERS).collect()
}

/// As [`own_line`], but the innermost function of a library counts, too: growth is compared between machines there, because
/// libraries may differ.
pub(crate) fn compared_line<'a>(frames: &[&'a Frame]) -> Option<&'a Frame> {
    let python = frames.iter().copied().filter(|frame| frame.is_python());
    let mut native = frames.iter().copied();
    innermost_of_program(python)
        .or_else(|| native.find(|frame| !is_of_language(frame)))
        .or_else(|| frames.iter().copied().find(|frame| !is_of_libc(frame)))
        .or(frames.first().copied())
}

/// The function of a library of the system that the program's own line called, in a stack as above.
pub(crate) fn library_call<'a>(frames: &[&'a Frame]) -> Option<&'a Frame> {
    let own = own_line(frames).filter(|own| !own.is_python())?;
    let inside = frames
        .iter()
        .take_while(|frame| !std::ptr::eq(**frame, own));
    let called = inside.copied().last()?;
    (is_of_system(called) && !is_of_language(called)).then_some(called)
}

/// The function of an extension that the innermost Python frame of a stack (leaf first) called.
pub(crate) fn extension<'a>(frames: impl Iterator<Item = &'a Frame>) -> Option<&'a Frame> {
    let mut native: Vec<&Frame> = Vec::new();
    for frame in frames {
        if frame.is_python() {
            return native.pop();
        }
        let module = frame.module_name().unwrap_or_default();
        let is_interpreter = module.starts_with("libpython") || module.starts_with("python");
        if !is_interpreter && !is_of_language(frame) && !frame.inlined {
            native.push(frame);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::fixture::{native, python};

    #[test]
    fn callers_are_those_of_the_program_up_to_main() {
        let [map, pool, open, serve, main] = [
            "chunk_map",
            "Pool<Session>::take(int)",
            "session_open",
            "serve",
            "app::main",
        ]
        .map(|name| native(name, "/srv/program"));
        let start = native("_start", "/srv/program");
        let mmap = native("__mmap64", "/usr/lib/libc.so.6");
        let each = native("std::__invoke(void (*)())", "/srv/program");
        let names = |frames: &[&Frame]| -> Vec<String> {
            let callers = callers(frames).into_iter();
            callers.filter_map(|of| of.function.clone()).collect()
        };
        let stack = [
            &mmap, &map, &pool, &pool, &each, &open, &serve, &main, &start,
        ];
        let near = ["Pool<Session>::take(int)", "session_open", "serve"];
        assert_eq!(names(&stack), near);
        assert_eq!(names(&stack[5..]), ["serve"]);
        assert_eq!(names(&[&map, &main, &start]), [""; 0]);
        let line = python("handle", "/srv/server.py", 6);
        assert_eq!(names(&[&map, &pool, &line]), [""; 0]);
    }

    #[test]
    fn own_lines_come_before_library_lines() {
        let installed = python(
            "forward",
            "/venv/lib/python3.11/site-packages/torch/nn/linear.py",
            1,
        );
        let own = python("predict", "/srv/server.py", 30);
        let [alloc, push, keep, main] = [
            "c10::alloc_cpu(unsigned long)",
            "std::vector<int>::push_back(int&&)",
            "keep(int)",
            "main",
        ]
        .map(|name| native(name, "/srv/program"));
        let line = |frames: &[&Frame]| own_line(frames).and_then(|frame| frame.function.clone());
        let is = |name: &str| Some(name.to_owned());
        assert_eq!(line(&[&alloc, &installed, &own, &main]), is("predict"));
        assert_eq!(line(&[&push, &keep, &main]), is("keep(int)"));
        assert_eq!(line(&[&push]), is("std::vector<int>::push_back(int&&)"));
        let parse = native(
            "xmlParseDocument",
            "/usr/lib/x86_64-linux-gnu/libxml2.so.2.9.14",
        );
        assert_eq!(line(&[&parse, &keep, &main]), is("keep(int)"));
        let called = library_call(&[&push, &parse, &keep, &main]);
        assert_eq!(
            called.and_then(|frame| frame.function.as_deref()),
            Some("xmlParseDocument")
        );
        assert_eq!(library_call(&[&push, &keep, &main]), None);
        let run = native("g_main_loop_run", "/usr/lib/libglib-2.0.so.0");
        assert_eq!(line(&[&parse, &run, &main]), is("xmlParseDocument"));
        let all = [&parse, &keep, &main];
        assert_eq!(compared_line(&all), Some(&parse));
        let server = native("main", "/usr/sbin/server");
        assert_eq!(line(&[&parse, &server]), is("xmlParseDocument"));
        assert_eq!(line(&[]), None);
        let mmap = native("mmap64", "/usr/lib/libc.so.6");
        let of_go = native("runtime.sysMapOS", "/srv/server");
        assert_eq!(line(&[&mmap, &of_go]), is("runtime.sysMapOS"));
    }

    #[test]
    fn an_extension_is_what_python_called() {
        let [list, helper, leak, eval] = [
            ("PyList_New", "/usr/lib/libpython3.12.so.1.0"),
            ("helper", "/srv/leaky.so"),
            ("leak_list", "/srv/leaky.so"),
            ("_PyEval_EvalFrameDefault", "/usr/bin/python3.12"),
        ]
        .map(|(name, module)| native(name, module));
        let own = python("load", "/srv/server.py", 3);
        let of = |frames: &[&Frame]| {
            let found = extension(frames.iter().copied());
            found.and_then(|frame| frame.function.clone())
        };
        let all = [&list, &helper, &leak, &eval, &own];
        assert_eq!(of(&all).as_deref(), Some("leak_list"));
        assert_eq!(of(&[&list, &eval, &own, &leak]), None);
        assert_eq!(of(&[&helper, &leak]), None);
    }

    #[test]
    fn sources_of_libraries_are_not_the_programs() {
        let of = |file: &str| {
            let mut frame = native("f", "/srv/program");
            frame.file = Some(file.into());
            is_of_language(&frame)
        };
        for file in [
            "/rustc/59807616e/library/alloc/src/raw_vec.rs",
            "/home/me/.cargo/registry/src/index.crates.io-6f17d22bba15001f/bytes-1.6.0/src/bytes.rs",
            "/usr/include/c++/13/bits/stl_vector.h",
            "/home/me/go/pkg/mod/github.com/lib/pq@v1.10.9/conn.go",
            "/usr/local/go/src/net/http/server.go",
            "/usr/lib/go-1.22/src/bytes/buffer.go",
        ] {
            assert!(of(file), "{file}");
        }
        for file in [
            "/srv/cargo/src/main.rs",
            "/home/me/go/src/github.com/me/server/main.go",
            "/srv/src/main.go",
            "/srv/include/pool.h",
        ] {
            assert!(!of(file), "{file}");
        }
        for function in [
            "runtime.mallocgc",
            "runtime/cgo",
            "_cgo_1f_Cfunc_f",
            "_ZNSt6vectorIiSaIiEE9push_backEOi",
        ] {
            assert!(
                is_of_language(&native(function, "/srv/program")),
                "{function}"
            );
        }
        assert!(!is_of_language(&native("runtime_init", "/srv/program")));
    }
}
