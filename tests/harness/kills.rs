//! Random moments at which tests kill memtrace.

use std::{env, time::SystemTime};

/// This many kills or `MEMTRACE_KILLS`, and random numbers from a seed that is printed; `MEMTRACE_SEED` repeats it.
///
/// # Panics
/// If one of the variables is not a number.
#[allow(
    clippy::print_stderr,
    reason = "the output of a failed test has the seed"
)]
pub fn kills(usual: usize) -> (usize, fastrand::Rng) {
    let kills = env::var("MEMTRACE_KILLS").map_or(usual, |text| text.parse().expect("a number"));
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = env::var("MEMTRACE_SEED").map_or_else(
        |_| since.expect("a time").as_secs(),
        |text| text.parse().expect("a number"),
    );
    eprintln!("MEMTRACE_SEED={seed}");
    (kills, fastrand::Rng::with_seed(seed))
}
