//! libFuzzer, on the target that the environment names.

#![no_main]

use std::{env, panic, sync::LazyLock};

use libfuzzer_sys::fuzz_target;
use memtrace::fuzz::{self, Target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    // libFuzzer's hook aborts at once, but memtrace catches the panics of blazesym.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let place = panic.location();
        if place.is_none_or(|place| !place.file().contains("/blazesym-")) {
            hook(panic);
        }
    }));
    let name = env::var("MEMTRACE_FUZZ_TARGET").unwrap_or_default();
    let mut targets = fuzz::TARGETS.iter();
    let target = targets.find(|target| target.name == name);
    target.unwrap_or_else(|| panic!("`{name}` is not a target; `cargo xtask fuzz` names one"))
});

fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
