//! The description of a caching allocator: a row of the table.

use memtrace_common::Layer;

use super::super::device_functions::Library;

/// Description of a caching allocator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachingAllocator {
    /// Its owner, for people.
    pub name: &'static str,
    /// The layer of its blocks.
    pub layer: Layer,
    /// The library that calls the runtime for its segments. It may have functions of its own.
    pub caller: Library,
    /// Other libraries with functions of its blocks.
    pub others: &'static [Library],
    /// Advice for making it cache less.
    pub advice: &'static str,
    /// Way to make it release unused cached memory.
    pub gives_back: &'static str,
    /// Advice against fragmentation.
    pub against_fragmentation: &'static [&'static str],
    /// Substring of the functions that retry after freeing cached memory.
    pub asks_again: &'static str,
    /// Variables of the environment that set it; a trailing `*` matches any suffix.
    pub settings: &'static [&'static str],
}
