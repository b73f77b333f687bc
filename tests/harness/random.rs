//! How often tests repeat what depends on chance: kills of memtrace, mutants of files.

use std::{env, time::SystemTime};

/// This many times, or as often as the variable says, and random numbers from a seed that is printed; `MEMTRACE_SEED`
/// repeats it.
///
/// # Panics
/// If one of the variables is not a number.
#[allow(
    clippy::print_stderr,
    reason = "the output of a failed test has the seed"
)]
pub fn times(variable: &str, usual: usize) -> (usize, fastrand::Rng) {
    let times = env::var(variable).map_or(usual, |text| text.parse().expect("a number"));
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = env::var("MEMTRACE_SEED").map_or_else(
        |_| since.expect("a time").as_secs(),
        |text| text.parse().expect("a number"),
    );
    eprintln!("MEMTRACE_SEED={seed}");
    (times, fastrand::Rng::with_seed(seed))
}
