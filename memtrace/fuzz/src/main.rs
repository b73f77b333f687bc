//! libFuzzer, on the target that the environment names.

#![no_main]

use std::{env, sync::LazyLock};

use libfuzzer_sys::fuzz_target;
use memtrace::fuzz::{self, Target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = env::var("MEMTRACE_FUZZ_TARGET").unwrap_or_default();
    let mut targets = fuzz::TARGETS.iter();
    let target = targets.find(|target| target.name == name);
    target.unwrap_or_else(|| panic!("`{name}` is not a target; `cargo xtask fuzz` names one"))
});

fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
