//! memtrace's user side. `frames`, `ledger`, `recording`, `analysis`, `diff`,
//! `view` and `render` know neither aya nor tokio.

pub mod analysis;
pub mod bpf;
pub mod check;
pub mod cli;
pub mod collect;
pub mod diff;
mod escape;
pub mod event;
pub mod file;
pub mod frames;
mod hash;
pub mod hold;
pub mod host;
pub mod ledger;
pub mod probes;
pub mod process;
pub mod python;
pub mod recording;
pub mod render;
mod rooted;
mod sigbus;
pub mod symbolize;
pub mod units;
pub mod unwind;
pub mod view;
