//! libFuzzer on one of [`memtrace::fuzzing::TARGETS`], named by the variable `MEMTRACE_FUZZ_TARGET`.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    TARGET.get_or_init(|| {
        let wanted = std::env::var("MEMTRACE_FUZZ_TARGET").unwrap_or_default();
        let mut known = memtrace::fuzzing::TARGETS.iter();
        match known.find(|(name, _)| *name == wanted) {
            Some((_, target)) => *target,
            None => panic!("unknown target `{wanted}`: set MEMTRACE_FUZZ_TARGET"),
        }
    })(data);
});
