//! End-to-end tests: one file per feature. A file that is not listed here never runs.
#![allow(
    clippy::expect_used,
    clippy::print_stderr,
    reason = "test code: a panic is how a test fails, stderr how it reports"
)]

mod action;
mod allocators;
mod attach;
mod bad_input;
mod bombs;
mod captures;
mod choose;
mod demo;
mod devices;
mod diff;
mod docs;
mod exact;
mod exports;
mod fail_on;
mod fleet;
mod folding;
mod forks;
mod full_disk;
mod generated;
mod harmless;
mod holders;
mod host;
mod hostile;
mod html;
mod imports;
mod inherited;
mod kept_by;
mod killed;
mod launch;
mod mcp;
mod mutants;
mod names;
mod output;
mod overload;
mod push;
mod python;
mod retained;
mod rounds;
mod schemas;
mod stacks;
mod taken;
mod tenant;
mod threads;
mod top;
mod types;
mod undisturbed;
mod verdicts;
mod verify;
mod vm;
