//! Native memory from outside: live blocks, the roots that may refer to them (global variables, thread-local
//! storage, stacks, registers), their C++ classes, and a short stop of the process to verify findings. Nothing
//! here follows references.

mod blocks;
mod frames;
mod glibc;
mod modules;
mod roots;
mod scan;
mod shapes;
mod shared;
mod stop;
#[cfg(test)]
mod tests;
mod threads;
mod types;

use super::memory::Memory;
use crate::{
    host::malloc,
    process::maps::{self, MapsError},
};
use std::ops::Range;

pub(in crate::holders) use blocks::{Block, Blocks, Builder, Origin};
pub(in crate::holders) use glibc::is_allocated;
use glibc::{find as find_in_glibc, may_be_cache};
pub(in crate::holders) use modules::Modules;
pub(in crate::holders) use roots::{RegisterRoot, RootKind, RootRange, Roots};
pub(in crate::holders) use scan::Scanner;
pub(in crate::holders) use shapes::node_of;
pub(in crate::holders) use shared::weak_references;
pub(in crate::holders) use stop::{Stop, StopError, Stopped, Threads, Urgent};
pub(in crate::holders) use types::Types;

/// Everything, read within a short time.
pub(in crate::holders) struct Native {
    pub(in crate::holders) modules: Modules,
    pub(in crate::holders) types: Types,
    pub(in crate::holders) blocks: Blocks,
    pub(in crate::holders) roots: Roots,
    /// A note on missing information.
    pub(in crate::holders) note: Option<String>,
}

impl Native {
    /// Whether the memory of a recorded block is not another block's by now, as far as the allocator shows that.
    pub(in crate::holders) fn is_current(
        &self,
        memory: &(impl Memory + ?Sized),
        block: Block,
    ) -> bool {
        self.note.is_some() || glibc::has_its_size(memory, block)
    }

    /// `pid` is the process whose memory it is, and `threads` are those that use it; `recorded` are the live blocks of a recording, `python` the memory that the interpreter gives to its objects
    /// by itself.
    ///
    /// # Errors
    /// The process is gone, or reading it is not permitted.
    pub(in crate::holders) fn read(
        pid: u32,
        threads: &Threads,
        memory: &(impl Memory + ?Sized),
        recorded: impl IntoIterator<Item = Block>,
        python: &[Range<u64>],
    ) -> Result<Self, MapsError> {
        let mappings = maps::read(pid)?;
        let modules = Modules::new(pid, &mappings);
        let mut builder = Builder::default();
        for block in recorded {
            builder.add(block, Origin::Recorded);
        }
        let mut known = find_in_glibc(memory, &mappings, &modules, python, &mut builder);
        let note = missing(
            malloc::provider(pid, &mappings).as_deref(),
            known.is_empty(),
        );
        let blocks = builder.finish();
        known.extend_from_slice(python);
        let roots = Roots::new(pid, threads, memory, &mappings, &modules, &blocks, &known);
        Ok(Self {
            modules,
            types: Types::new(),
            blocks,
            roots,
            note,
        })
    }

    /// The blocks, by number, in which glibc's malloc keeps a list of what each thread has freed. A variable of the
    /// library leads there.
    pub(in crate::holders) fn caches(&self, memory: &(impl Memory + ?Sized)) -> Vec<usize> {
        let is_libc = |name: &str| name.starts_with("libc.so") || name.starts_with("libc-2");
        let variables = self.roots.thread_local(&self.modules, is_libc);
        let words = variables.flat_map(|range| range.step_by(8));
        let blocks = words.filter_map(|at| {
            let value = memory.word(at)?;
            let number = self.blocks.containing(value)?;
            let Block { start, size } = self.blocks.block(number);
            (start == value && may_be_cache(size)).then_some(number)
        });
        blocks.collect()
    }

    /// Blocks of glibc's malloc that were allocated since, at unknown addresses.
    ///
    /// # Errors
    /// As [`Native::read`].
    pub(in crate::holders) fn younger(
        &self,
        pid: u32,
        memory: &(impl Memory + ?Sized),
        python: &[Range<u64>],
    ) -> Result<Vec<Block>, MapsError> {
        let mappings = maps::read(pid)?;
        let mut builder = Builder::default();
        find_in_glibc(memory, &mappings, &self.modules, python, &mut builder);
        let blocks = builder.finish();
        let blocks = (0..blocks.len()).map(|index| blocks.block(index));
        let is_new = |block: &Block| self.blocks.containing(block.start).is_none();
        Ok(blocks.filter(is_new).collect())
    }
}

/// Notes the limits for an allocator other than glibc's.
fn missing(provider: Option<&std::path::Path>, found_none: bool) -> Option<String> {
    let name = provider.and_then(|path| path.file_name()?.to_str());
    let is_glibc =
        name.is_none_or(|name| name.starts_with("libc.so") || name.starts_with("libc-2"));
    if is_glibc && !found_none {
        return None;
    }
    let whose = name.map_or("not glibc's".to_owned(), |name| format!("that of `{name}`"));
    Some(format!(
        "malloc is {whose}: memory older than the recording is searched as a whole, not by block"
    ))
}
