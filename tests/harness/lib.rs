//! Harness for the end-to-end tests: real processes, traced by the real
//! program, with counts known to the byte.
//!
//! A test begins with [`Fixture::new`], which holds the machine for it (or [`Fixture::shared`]), and ends by comparing a
//! [`report::Report`] with the target's own output. Every wait has a deadline, nothing sleeps in the hope that something has happened
//! meanwhile, and every process ends with the value that stands for it. A missing prerequisite (root, gcc, an
//! allocator) fails a test with the command that helps; nothing is skipped.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "the whole crate is test code: a panic is how a test fails"
)]

pub mod comparison;
pub mod control_group;
pub mod descendants;
pub mod export;
mod fixture;
pub mod kernel;
pub mod profiles;
pub mod progress;
pub mod python;
pub mod random;
pub mod record;
pub mod report;
pub mod running;
pub mod stack_builds;
pub mod stacks;
pub mod storm;
pub mod targets;
pub mod terminal;
pub mod truth;
pub mod undisturbed;

pub use fixture::Fixture;

use std::time::{Duration, Instant};

/// The longest wait for any one event: a minute, or `MEMTRACE_DEADLINE` seconds (`cargo xtask vm`,
/// for an emulated processor).
pub fn deadline() -> Duration {
    let seconds = std::env::var("MEMTRACE_DEADLINE");
    Duration::from_secs(seconds.map_or(60, |seconds| {
        seconds
            .parse()
            .expect("MEMTRACE_DEADLINE is a number of seconds")
    }))
}

/// Polls until there is an answer, for at most [`deadline`]. Only for conditions that nothing
/// signals; wait for a signal where there is one.
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = deadline();
    let end = Instant::now() + deadline;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "{what}: not within {deadline:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
