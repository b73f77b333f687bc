//! The collector's share of the processor: it must keep up with the programs that it watches, and must not starve them.

use std::{io, mem};

use crate::process::weight::NICE;

/// In each period, this long at most: the kernel gives the rest to others even if the collector falls behind
/// (sched(7), "SCHED_DEADLINE"). Others wait for less than a stop may take.
const RUNTIME_NS: u64 = 4_000_000;
const PERIOD_NS: u64 = 5_000_000;

/// `sched_attr` of the kernel (include/uapi/linux/sched/types.h), its first version. Not in libc for musl.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const SCHED_OTHER: u32 = libc::SCHED_OTHER.cast_unsigned();
const SCHED_DEADLINE: u32 = libc::SCHED_DEADLINE.cast_unsigned();
/// Threads and processes that this thread starts are ordinary ones.
const RESET_ON_FORK: u64 = 1;

/// While it lives, this thread runs before ordinary processes, for a bounded share of the time.
pub(super) struct Priority {
    before: Option<Attributes>,
}

impl Priority {
    /// Raises it as far as the kernel allows.
    pub(super) fn raise() -> Self {
        let Ok(before) = current() else {
            return Self { before: None };
        };
        // Whoever started memtrace with another policy, or with `nice`, wants that.
        if before.policy != SCHED_OTHER || before.nice > 0 {
            return Self { before: None };
        }
        let deadline = Attributes {
            policy: SCHED_DEADLINE,
            flags: RESET_ON_FORK,
            runtime: RUNTIME_NS,
            deadline: PERIOD_NS,
            period: PERIOD_NS,
            ..Attributes::default()
        };
        // The kernel allows no deadline to a process that may not run on every processor, or if the others have been given
        // away.
        let nice = Attributes {
            policy: SCHED_OTHER,
            flags: RESET_ON_FORK,
            nice: NICE.min(before.nice),
            ..Attributes::default()
        };
        let raised = set(deadline).or_else(|error| {
            tracing::info!("the collector has no deadline, only a higher weight: {error}");
            set(nice)
        });
        if let Err(error) = &raised {
            tracing::warn!(
                "cannot raise the collector's priority ({error}): a busy machine may cost events; \
                 CAP_SYS_NICE is needed"
            );
        }
        Self {
            before: raised.is_ok().then_some(before),
        }
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        let Some(before) = self.before else { return };
        let kept = Attributes {
            flags: before.flags | RESET_ON_FORK,
            ..before
        };
        // Only with CAP_SYS_NICE may the flag be taken back.
        if let Err(error) = set(before).or_else(|_| set(kept)) {
            tracing::info!("the collector's priority stays raised: {error}");
        }
    }
}

/// Those of this thread.
fn current() -> io::Result<Attributes> {
    let mut attributes = Attributes::default();
    let size = mem::size_of::<Attributes>();
    // SAFETY: `attributes` lives and has this size; 0 is this thread.
    let failed = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    match failed {
        // Of a policy without deadline, the kernel tells its time slice in the same field.
        0 if attributes.policy != SCHED_DEADLINE => Ok(Attributes {
            runtime: 0,
            ..attributes
        }),
        0 => Ok(attributes),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set(mut attributes: Attributes) -> io::Result<()> {
    attributes.size = mem::size_of::<Attributes>() as u32;
    // SAFETY: `attributes` lives and tells its size; 0 is this thread.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_raised_priority_is_bounded_and_given_back() {
        let before = current().unwrap();
        let priority = Priority::raise();
        let raised = current().unwrap();
        // SAFETY: no memory is involved.
        let is_root = unsafe { libc::geteuid() } == 0;
        if is_root && before.policy == SCHED_OTHER && before.nice == 0 {
            assert!(priority.before.is_some());
        }
        if priority.before.is_some() {
            let is_bounded = raised.policy == SCHED_DEADLINE && raised.runtime < raised.period;
            let is_heavier = raised.policy == SCHED_OTHER && raised.nice < before.nice;
            assert!(is_bounded || is_heavier, "policy {}", raised.policy);
            // Those that it starts are not raised.
            let started = thread::spawn(|| current().unwrap()).join().unwrap();
            let ordinary = before.nice.max(0);
            assert_eq!((started.policy, started.nice), (before.policy, ordinary));
        }
        drop(priority);
        let after = current().unwrap();
        assert_eq!((after.policy, after.nice), (before.policy, before.nice));
    }
}
