//! Every process that a test started, directly or not: those that left their group, their session
//! or their parent too.

use crate::{
    deadline,
    kernel::{processes, state},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// While this lives, orphaned descendants of this process become its children. Those still running
/// at its end are killed.
pub struct Descendants(());

impl Descendants {
    #[allow(clippy::new_without_default, reason = "it changes the process")]
    pub fn new() -> Self {
        adopt_orphans(true);
        Self(())
    }

    /// Waits until none is left.
    #[track_caller]
    pub fn expect_none(&self) {
        let end = Instant::now() + deadline();
        loop {
            reap();
            let left = all();
            if left.is_empty() {
                return;
            }
            let left: Vec<_> = left.into_iter().map(described).collect();
            assert!(Instant::now() < end, "left behind: {left:#?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Descendants {
    fn drop(&mut self) {
        // One that is killed may just have forked, and a killed one's children come to this process.
        while !all().is_empty() {
            for pid in all() {
                // SAFETY: no memory is involved.
                unsafe { libc::kill(pid as i32, libc::SIGKILL) };
            }
            reap();
            std::thread::yield_now();
        }
        adopt_orphans(false);
    }
}

fn adopt_orphans(yes: bool) {
    // SAFETY: takes integers.
    let result = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, libc::c_ulong::from(yes)) };
    assert_eq!(result, 0, "prctl: {}", std::io::Error::last_os_error());
}

/// All that descend from this process.
fn all() -> BTreeSet<u32> {
    let parents: BTreeMap<_, _> = processes()
        .filter_map(|pid| Some((pid, state(pid)?.1)))
        .collect();
    let own = std::process::id();
    let descends = |mut pid: u32| loop {
        match parents.get(&pid) {
            Some(&parent) if parent == own => return true,
            Some(&parent) => pid = parent,
            None => return false,
        }
    };
    let pids = parents.keys().copied();
    pids.filter(|&pid| descends(pid)).collect()
}

/// Takes leave of adopted orphans that have ended.
fn reap() {
    for pid in all() {
        if state(pid) == Some(('Z', std::process::id())) {
            // SAFETY: no status is requested.
            unsafe { libc::waitpid(pid as i32, std::ptr::null_mut(), libc::WNOHANG) };
        }
    }
}

fn described(pid: u32) -> String {
    let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let state = state(pid).map_or('?', |(state, _)| state);
    format!("{pid} {state} {}", command.replace('\0', " "))
}
