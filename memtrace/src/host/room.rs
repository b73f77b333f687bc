//! The memory that is left for memtrace.

use super::{Source, cgroup, system};

/// Bytes that this process may still take: the least that is left of the machine's memory and of the limits of its
/// control groups; `None`: unknown. Swap counts as memory, and what the kernel can drop as free.
pub(crate) fn room() -> Option<u64> {
    let source = Source::host();
    let (machine, swap_free) = system::level(&source)?;
    let groups = cgroup::levels(&source, std::process::id(), swap_free);
    let levels = groups.into_iter().chain([machine]);
    levels.map(|level| level.room()).min()
}

#[cfg(test)]
mod tests {
    #[test]
    fn there_is_room_for_the_tests() {
        assert!(super::room().is_some_and(|room| room > 1 << 20));
    }
}
