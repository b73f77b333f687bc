//! A process seen from outside: its mappings, the files behind them, their definitions and the
//! order in which the loader searches them, its memory use; and launching one. Attaching probes and
//! following are done elsewhere.

pub(crate) mod choose;
pub(crate) mod elf;
pub(crate) mod execution;
pub(crate) mod files;
pub(crate) mod gpus;
pub(crate) mod inherited;
pub(crate) mod interrupted;
pub(crate) mod job;
pub(crate) mod launch;
pub(crate) mod link_order;
pub(crate) mod maps;
pub(crate) mod memory;
mod mistaken;
mod nvidia_smi;
pub(crate) mod pagemap;
pub(crate) mod ptrace;
mod smaps;
pub(crate) mod target;
pub(crate) mod tasks;
pub(crate) mod terminal;
pub(crate) mod ulimits;
pub(crate) mod weight;

/// Whether process `tgid` is gone, or a zombie without running threads.
pub(crate) fn has_ended(tgid: u32) -> bool {
    let stat = procfs::process::Process::new(tgid.cast_signed()).and_then(|process| process.stat());
    stat.map_or(true, |stat| is_zombie(&stat))
}

/// Whether no thread runs: a leader that has ended while other threads run on is a zombie too.
pub(crate) fn is_zombie(stat: &procfs::process::Stat) -> bool {
    matches!(stat.state, 'Z' | 'X') && stat.num_threads <= 1
}

/// Bytes of a page on this machine.
pub(crate) fn page_size() -> u64 {
    // SAFETY: no memory is involved.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Every process takes descriptors for its probes: take as many as we may.
pub(crate) fn raise_file_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` lives.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: as above. Without it fewer children can be probed, which is counted.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
}
