//! The kernel's clocks.

/// The time of a clock that always exists (`CLOCK_*` of clock_gettime(2)), ns.
pub(crate) fn now_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` lives.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// CLOCK_MONOTONIC, as the kernel side's times, ns.
pub(crate) fn monotonic_ns() -> u64 {
    now_ns(libc::CLOCK_MONOTONIC)
}

/// Time since 1970, ns.
pub(crate) fn unix_ns() -> u64 {
    now_ns(libc::CLOCK_REALTIME)
}
