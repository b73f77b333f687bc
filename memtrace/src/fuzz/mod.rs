//! The readers of what others wrote, as targets of `cargo xtask fuzz`: an input must not make one panic, run for long or
//! take much memory.

mod edits;
#[cfg(test)]
mod tests;

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use tempfile::NamedTempFile;

use crate::{
    analysis::{suppressions::Suppressions, system::SystemSeries, verdict},
    file::{FileBytes, of_bytes},
    host,
    probes::plan::plan,
    process::elf::{Elf, read_all},
    python,
    recording::{At, Recording},
    render,
    symbolize::{
        Detail, Symbolizer,
        debug_files::{Places, Proof},
        demangle::demangle,
        perf_map::PerfMap,
    },
    unwind::{Contexts, Table, fragments, rule_at},
    view::Filter,
};

/// A reader, and the folder of its corpus.
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
}

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

/// All targets. Each reads any bytes.
pub const TARGETS: [Target; 8] = [
    target("recording", recording),
    target("recording_values", recording_values),
    target("perf_map", perf_map),
    target("debug_file", debug_file),
    target("demangle", demangled),
    target("dist_info", dist_info),
    target("elf", elf),
    target("eh_frame", eh_frame),
];

/// Addresses and offsets that are asked for in each file, beside those that it names.
const PLACES: [u64; 6] = [0, 0x1000, 0x1139, 0x1234, 0x3fff, u64::MAX];

/// The file of a recording.
fn recording(bytes: &[u8]) {
    read_written(|path| fs::write(path, bytes));
}

/// A sound SQLite file with any values in memtrace's tables.
fn recording_values(bytes: &[u8]) {
    read_written(|path| edits::make(path, bytes));
}

/// Reads a file in memory, once it is written.
fn read_written(write: impl FnOnce(&Path) -> io::Result<()>) {
    let file = NamedTempFile::new_in("/dev/shm");
    if let Ok(file) = file
        && write(file.path()).is_ok()
    {
        read(file.path());
    }
}

/// What `memtrace diagnose` prints.
fn read(path: &Path) {
    let Ok(recording) = Recording::open(path) else {
        return;
    };
    let _ = recording.snapshot(At::End);
    let none = Suppressions::default();
    let system = SystemSeries::read(&recording);
    let Ok(found) = system.and_then(|system| verdict::diagnose(&recording, &system, &none)) else {
        return;
    };
    let cut_off = recording.cut_off().ok().flatten();
    let _ = render::diagnosis(&mut io::sink(), &found, cut_off, &Filter::default());
}

/// /tmp/perf-PID.map.
fn perf_map(bytes: &[u8]) {
    let Some(file) = file(bytes) else { return };
    let map = PerfMap::new("/tmp/perf-1.map".to_owned(), file);
    for address in PLACES {
        map.frame(address);
    }
}

/// A module, and after [`BETWEEN`] its debug file.
fn debug_file(bytes: &[u8]) {
    let at = bytes.windows(BETWEEN.len()).position(|at| at == BETWEEN);
    let (module, debug) = match at {
        Some(at) => (&bytes[..at], &bytes[at + BETWEEN.len()..]),
        None => (bytes, bytes),
    };
    let (Some(module_file), Some(debug)) = (file(module), file(debug)) else {
        return;
    };
    let build_id = Elf::parse(&module.to_vec())
        .ok()
        .and_then(|elf| elf.build_id);
    let path = Path::new("/usr/bin/program");
    let mut symbolizer = Symbolizer::default();
    let (id, wanted) = symbolizer.add(
        "/usr/bin/program",
        module_file,
        build_id.clone(),
        Detail::Full,
    );
    Places::empty()
        .candidates(path, build_id.as_deref(), &wanted, None)
        .count();
    symbolizer.offer(id, debug, Proof::FETCHED);
    for address in PLACES {
        symbolizer.frames(id, address);
        symbolizer.frames_at(id, address);
    }
}

const BETWEEN: &[u8] = b"--debug file--";

/// A name in a symbol table.
fn demangled(bytes: &[u8]) {
    demangle(&String::from_utf8_lossy(bytes));
}

/// The name of a folder of metadata and its files, a zero after each.
fn dist_info(bytes: &[u8]) {
    host::python::fuzz(&String::from_utf8_lossy(bytes));
}

/// A program or library, as probes and images are made of it.
fn elf(bytes: &[u8]) {
    let Some(file) = file(bytes) else { return };
    let source = FileBytes::new(&file);
    read_all(&source);
    let Ok(elf) = Elf::parse(&source) else { return };
    for address in PLACES {
        elf.pointer(address);
        elf.bound_function(address);
        elf.section_of(address);
    }
    plan(&elf, &[]);
    let _ = python::find(&elf, Path::new("/usr/bin/python3"));
}

/// Call frame information, in a program or library.
fn eh_frame(bytes: &[u8]) {
    let Some(file) = file(bytes) else { return };
    let source = FileBytes::new(&file);
    let _ = Table::compile(&source);
    Contexts::of(&source);
    for address in PLACES {
        rule_at(&source, address);
    }
    fragments(&source, &PLACES);
}

fn file(bytes: &[u8]) -> Option<File> {
    of_bytes(bytes).ok()
}
