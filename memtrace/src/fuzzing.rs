//! Entry points of `cargo xtask fuzz`: readers of data that other people write. Each takes any bytes, and must neither
//! panic nor take long nor much memory.

use std::{fs::File, io::Write, path::Path};

use clap::Parser;

use crate::{
    Cli,
    file::{self, FileBytes},
    probes::plan,
    process::elf::Elf,
    python,
    unwind::Table,
};

/// Names and functions.
pub const TARGETS: [(&str, fn(&[u8])); 3] = [
    ("recording", recording),
    ("elf", elf),
    ("eh-frame", eh_frame),
];

/// A recording as other people mail it, through the longest way: reading, analysis, text.
fn recording(data: &[u8]) {
    let Ok(mut file) = tempfile::NamedTempFile::new_in("/dev/shm") else {
        return;
    };
    if file.write_all(data).is_err() {
        return;
    }
    for command in ["diagnose", "report"] {
        let arguments = [Path::new("memtrace"), Path::new(command), file.path()];
        if let Ok(cli) = Cli::try_parse_from(arguments) {
            // Errors are an answer.
            let _ = cli.run();
        }
    }
}

/// The inspection of a mapped file: its functions, its interpreter.
fn elf(data: &[u8]) {
    with_file(data, |file| {
        let bytes = FileBytes::new(file);
        let Ok(elf) = Elf::parse(&bytes) else { return };
        let path = Path::new("libpython3.11.so.1.0");
        let _ = python::find(&elf, path);
        plan::plan(&elf, &[]);
        plan::lacking(&elf, path);
        plan::unwinding(&elf);
        plan::hides_unwinding(&elf);
    });
}

/// Tables for unwinding.
fn eh_frame(data: &[u8]) {
    with_file(data, |file| {
        let bytes = FileBytes::new(file);
        let _ = Table::compile(&bytes);
    });
}

fn with_file(data: &[u8], read: impl FnOnce(&File)) {
    if let Ok(file) = file::of_bytes(data) {
        read(&file);
    }
}
