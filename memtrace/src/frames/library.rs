//! Frames of libraries, which text folds into one line, and the program's own, which it never folds.

use super::{Frame, installed, own_line::is_of_language};

/// Folders of the system's and packages' libraries.
const FOLDERS: &[&str] = &["/usr/lib", "/lib", "/nix/store/", "/gnu/store/"];

/// Part of a stack in which libraries are folded.
#[derive(Debug, PartialEq)]
pub(crate) enum Part<'a> {
    Frame(&'a Frame),
    /// Adjacent frames of the library with this name.
    Folded(&'a str, Vec<&'a Frame>),
}

/// Folds each run of frames of one library in a stack (leaf first). The innermost frame and the innermost
/// Python frame stay; a stack without a frame of the program's own stays whole.
pub(crate) fn fold<'a>(frames: &[&'a Frame]) -> Vec<Part<'a>> {
    let has_own = frames.iter().any(|frame| library(frame).is_none());
    let python = frames.iter().position(|frame| frame.is_python());
    let libraries = frames.iter().copied().enumerate().map(|(index, frame)| {
        let is_kept = index == 0 || python == Some(index);
        (library(frame).filter(|_| has_own && !is_kept), frame)
    });
    let libraries: Vec<(Option<&str>, &Frame)> = libraries.collect();
    let mut parts = Vec::new();
    for run in libraries.chunk_by(|a, b| a.0 == b.0) {
        let frames = run.iter().map(|(_, frame)| *frame);
        match run {
            [(Some(name), _), _, ..] => parts.push(Part::Folded(name, frames.collect())),
            // A single frame takes no more room than its fold.
            _ => parts.extend(frames.map(Part::Frame)),
        }
    }
    parts
}

/// Whether a frame is the program's own: neither a library's nor generated code.
pub(crate) fn is_own(frame: &Frame) -> bool {
    library(frame).is_none()
        && !is_of_language(frame)
        && (frame.is_python() || frame.module.is_some())
}

/// The library or Python package of a frame; `None` for the program's own and for generated code.
fn library(frame: &Frame) -> Option<&str> {
    if frame.is_python() {
        let file = frame.file.as_deref().filter(|_| frame.is_installed())?;
        return Some(package(frame, file));
    }
    let path = frame.module.as_deref()?;
    let name = frame.module_name()?;
    let is_interpreter = || {
        let plain = name.strip_prefix("lib").unwrap_or(name);
        plain.starts_with("python3")
    };
    if is_interpreter() {
        return Some(name);
    }
    let is_library = name.ends_with(".so") || name.contains(".so.");
    let is_installed = || {
        FOLDERS.iter().any(|folder| path.starts_with(folder))
            || frame.is_packaged
            || installed(path).is_some()
    };
    (is_library && is_installed()).then_some(name)
}

/// The package of an installed Python file: `torch`.
fn package<'a>(frame: &Frame, file: &'a str) -> &'a str {
    let mut folders = ["/site-packages/", "/dist-packages/"].into_iter();
    let rest = folders.find_map(|folder| Some(file.rsplit_once(folder)?.1));
    let package = rest.and_then(|rest| rest.split('/').next());
    package.unwrap_or(match frame.is_packaged {
        true => "packages",
        false => "Python's standard library",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::fixture::{native, python};

    fn text(frames: &[Frame]) -> Vec<String> {
        let frames: Vec<&Frame> = frames.iter().collect();
        let parts = fold(&frames).into_iter();
        parts
            .map(|part| match part {
                Part::Frame(frame) => frame.function.clone().unwrap_or_default(),
                Part::Folded(name, frames) => format!("{} in {name}", frames.len()),
            })
            .collect()
    }

    #[test]
    fn runs_of_a_library_are_folded_and_own_frames_never() {
        let packages = "/venv/lib/python3.11/site-packages";
        let [torch, c10] =
            ["torch_cpu", "c10"].map(|name| format!("{packages}/torch/lib/lib{name}.so"));
        let linear = format!("{packages}/torch/nn/functional.py");
        let module = format!("{packages}/torch/nn/modules/module.py");
        let libc = "/usr/lib/x86_64-linux-gnu/libc.so.6";
        let frames = [
            native("c10::alloc_cpu", &c10),
            native("c10::allocate", &c10),
            native("at::empty", &torch),
            native("at::linear", &torch),
            python("linear", &linear, 1),
            python("_call_impl", &module, 2),
            python("_wrapped_call_impl", &module, 2),
            python("step", "/srv/train.py", 7),
            native("plugin", "/srv/libplugin.so"),
            native("main", "/usr/bin/program"),
            native("__libc_start_call_main", libc),
            native("__libc_start_main", libc),
            native("_start", "/usr/bin/python3.11"),
        ];
        assert_eq!(
            text(&frames),
            [
                "c10::alloc_cpu",
                "c10::allocate",
                "2 in libtorch_cpu.so",
                "linear",
                "2 in torch",
                "step",
                "plugin",
                "main",
                "2 in libc.so.6",
                "_start",
            ]
        );
    }

    #[test]
    fn code_of_the_interpreter_and_of_languages_is_not_the_programs_own() {
        let own = |function, file| is_own(&native(function, file));
        assert!(own("keep(int)", "/srv/program"));
        assert!(own("main", "/usr/bin/program"));
        assert!(!own("list_resize", "/usr/bin/python3.11"));
        assert!(!own("PyList_New", "/opt/lib/libpython3.12.so.1.0"));
        assert!(!own("std::vector<int>::push_back(int&&)", "/srv/program"));
        assert!(!own(
            "at::linear",
            "/venv/lib/python3.11/site-packages/torch/lib/libx.so"
        ));
    }

    #[test]
    fn a_stack_of_libraries_only_stays_whole() {
        let frames = ["a", "b", "c"].map(|name| native(name, "/usr/lib/libx.so.1"));
        assert_eq!(text(&frames), ["a", "b", "c"]);
        assert_eq!(text(&[]), [""; 0]);
    }
}
