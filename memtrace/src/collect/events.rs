//! Converts memory records into the ledger's events: allocated, released, mapped and unmapped.

use memtrace_common::{
    event::{Alloc, Free, Kind, Map, Unmap, flags},
    loss::Reason,
};

use super::{collector::Collector, location::ModuleIndex, python};
use crate::{
    event::{Action, Layer, MapKind, StackId},
    process::maps,
};

impl Collector {
    pub(super) fn allocated(&mut self, kind: Kind, alloc: &Alloc) {
        let Ok(layer) = Layer::try_from(alloc.header.layer) else {
            self.accounts.lost(Reason::Undecodable);
            return;
        };
        let Alloc { addr, size, .. } = *alloc;
        // A failed realloc has no stack, and needs none.
        let stack = if addr == 0 {
            StackId::UNKNOWN
        } else {
            self.stack_id(alloc.stack)
        };
        let action = if kind == Kind::Alloc {
            Action::Alloc {
                layer,
                addr,
                size,
                stack,
            }
        } else {
            Action::ReallocEnd {
                layer,
                addr,
                size,
                stack,
            }
        };
        self.accounts.apply(&alloc.header, action);
    }

    pub(super) fn freed(&mut self, kind: Kind, free: &Free) {
        let Ok(layer) = Layer::try_from(free.header.layer) else {
            self.accounts.lost(Reason::Undecodable);
            return;
        };
        let addr = free.addr;
        let action = if kind == Kind::Free {
            Action::Free {
                layer,
                addr,
                repeated: free.header.flags & flags::REPEATED != 0,
            }
        } else {
            Action::ReallocBegin { layer, addr }
        };
        self.accounts.apply(&free.header, action);
    }

    pub(super) fn unmapped(&mut self, kind: Kind, unmap: Unmap) {
        let Unmap { addr, len, .. } = unmap;
        let action = match kind {
            Kind::UnmapBegin => Action::UnmapBegin { addr, len },
            Kind::RemapBegin => Action::RemapBegin { addr, len },
            _ => Action::UnmapEnd {
                failed: unmap.header.flags & flags::FAILED != 0,
            },
        };
        self.accounts.apply(&unmap.header, action);
    }

    pub(super) fn mapped(&mut self, kind: Kind, map: Map) {
        let failed = map.header.flags & flags::FAILED != 0;
        let by_allocator = map.header.flags & flags::BY_ALLOCATOR != 0;
        let stack = if failed {
            StackId::UNKNOWN
        } else {
            self.stack_id(map.stack)
        };
        let Map { addr, mut len, .. } = map;
        let action = match kind {
            Kind::Mmap => {
                self.code_mapped(&map);
                let map_flags = map.map_flags.cast_signed();
                let kind = MapKind {
                    by_allocator,
                    // MAP_SHARED or MAP_SHARED_VALIDATE, which shares its bit.
                    shared: map_flags & libc::MAP_SHARED != 0,
                    file: map_flags & libc::MAP_ANONYMOUS == 0,
                    arena: false,
                };
                let arena = self.is_arena(map.header.tgid, len, stack, kind);
                Action::Mmap {
                    addr,
                    len,
                    stack,
                    kind: MapKind { arena, ..kind },
                }
            }
            Kind::Shmat => {
                let mappings = maps::read(map.header.tgid).unwrap_or_default();
                match maps::find(&mappings, addr) {
                    Some(mapping) if mapping.start == addr => len = mapping.len(),
                    _ => {
                        self.accounts.lost(Reason::SegmentLengthUnknown);
                        return;
                    }
                }
                let kind = MapKind {
                    by_allocator,
                    shared: true,
                    file: true,
                    arena: false,
                };
                Action::Mmap {
                    addr,
                    len,
                    stack,
                    kind,
                }
            }
            Kind::Brk => Action::Brk {
                requested: len,
                now: addr,
                stack,
                by_allocator,
            },
            _ => Action::RemapEnd {
                failed,
                addr,
                len,
                flags: map.map_flags,
                stack,
                by_allocator,
            },
        };
        self.accounts.apply(&map.header, action);
    }

    /// Whether a new mapping is an arena of Python's object allocator: private and anonymous, of
    /// exactly an arena's size, and requested by the interpreter's own code.
    fn is_arena(&self, tgid: u32, len: u64, stack: StackId, kind: MapKind) -> bool {
        self.processes.interpreter(tgid).is_some_and(|interpreter| {
            !kind.shared
                && !kind.file
                && len == python::arena_size(interpreter)
                && self.naming.stacks.caller(stack) == Some(ModuleIndex(interpreter.exec))
        })
    }

    /// Tracks the meaning of addresses when code is mapped. A file that was not seen before stops
    /// the process, and is then inspected.
    fn code_mapped(&mut self, map: &Map) {
        if map.prot.cast_signed() & libc::PROT_EXEC == 0 {
            return;
        }
        let end = map.addr + map.len.next_multiple_of(self.naming.page_size);
        let key = maps::FileId {
            ino: map.ino,
            dev: map.dev,
        };
        let file = if map.ino == 0 {
            None
        } else {
            match self.naming.modules.find(key) {
                Some(index) => {
                    self.uses(map.header.tgid, index);
                    let is_elf = self.naming.modules.get(index).is_elf();
                    is_elf.then_some((index, map.file_offset))
                }
                None => return,
            }
        };
        self.processes
            .addresses_mut(map.header.tgid)
            .insert(map.addr, end, file);
    }
}
