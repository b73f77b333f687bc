//! The target of `targets/stacks/`, as different compilers and linkers make it.

use crate::targets::build;
use std::path::PathBuf;

/// How to build it.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    pub compiler: &'static str,
    pub flags: &'static [&'static str],
}

/// A frame pointer is only where the code could not do without.
const NO_FRAME_POINTERS: [&str; 2] = ["-O2", "-fomit-frame-pointer"];

const COMMON: [&str; 5] = ["-g", "-fno-builtin", "-Wall", "-Werror", "-pthread"];

const C: [&str; 7] = [
    "stacks/main.c",
    "stacks/probe.c",
    "stacks/frames.c",
    "stacks/callbacks.c",
    "stacks/signals.c",
    "stacks/contexts.c",
    "stacks/ways.c",
];

/// With everything that it can do, and the library that it loads.
#[track_caller]
pub fn dynamic(how: Build) -> [PathBuf; 2] {
    let flags = [&COMMON, how.flags, &["-rdynamic"]].concat();
    let sources = [&C[..], &["stacks/cpp.cc", "stacks/plugins.c"]].concat();
    let program = build(how.compiler, &flags, &sources, &["-lstdc++", "-ldl"]);
    // The first call of each function goes through the dynamic linker.
    let library = ["-shared", "-fPIC", "-Wl,-z,lazy"];
    let flags = [&COMMON, how.flags, &library].concat();
    let plugin = build(how.compiler, &flags, &["stacks/plugin.c"], &[]);
    [program, plugin]
}

/// Linked statically, by these flags: it loads nothing.
#[track_caller]
pub fn inseparable(linkage: &[&str]) -> PathBuf {
    let own = ["-DWITHOUT_PLUGIN"];
    let flags = [&COMMON, &NO_FRAME_POINTERS[..], &own, linkage].concat();
    build(
        "gcc",
        &flags,
        &[&C[..], &["stacks/cpp.cc"]].concat(),
        &["-lstdc++"],
    )
}

/// On musl, linked to its libc or with it inside; it has no unwinder.
#[track_caller]
pub fn musl(linkage: &[&str]) -> PathBuf {
    let own = ["-DWITHOUT_PLUGIN", "-DWITHOUT_CPP", "-DWITHOUT_UNWINDER"];
    let flags = [&COMMON, &NO_FRAME_POINTERS[..], &own, linkage].concat();
    build("musl-gcc", &flags, &C, &[])
}

/// The program with an allocator of its own.
#[track_caller]
pub fn own_allocator() -> PathBuf {
    let flags = [&COMMON, &NO_FRAME_POINTERS[..]].concat();
    let sources = ["stacks/own_allocator.c", "stacks/probe.c"];
    build("gcc", &flags, &sources, &[])
}

/// The Rust program, whose allocator is a probe.
#[track_caller]
pub fn rust() -> PathBuf {
    let flags = [&COMMON, &NO_FRAME_POINTERS[..], &["-c"]].concat();
    let probe = build("gcc", &flags, &["stacks/probe.c"], &[]);
    let link = format!("link-arg={}", probe.display());
    let flags = ["--edition=2024", "-Copt-level=3", "-g", "-C", &link];
    build("rustc", &flags, &["stacks/rust.rs"], &[])
}

/// Two libraries of one layout, whose functions have different names.
#[track_caller]
pub fn twins() -> [PathBuf; 2] {
    ["-DTWIN=one", "-DTWIN=two"].map(|twin| {
        let library = ["-shared", "-fPIC", twin];
        let flags = [&COMMON, &NO_FRAME_POINTERS[..], &library].concat();
        build("gcc", &flags, &["stacks/twin.c"], &[])
    })
}

/// The program that loads them in turn.
#[track_caller]
pub fn turns() -> PathBuf {
    let flags = [&COMMON, &NO_FRAME_POINTERS[..]].concat();
    build("gcc", &flags, &["stacks/turns.c"], &["-ldl"])
}
