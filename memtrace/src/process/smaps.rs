//! Sums of `/proc/PID/smaps`: the figures of `smaps_rollup`, the number of mappings, and the
//! anonymous memory by place. Text in, figures out.

use std::str;

use super::maps::{self, Mapping};
use crate::process_root;

/// Beyond this many mappings only the kernel's own sums are read: formatting one mapping's text
/// takes it about 1 µs for each of some 25 lines.
const AREAS_AT_MOST: u64 = 4096;

/// Bytes of address space of one of the heaps of glibc's further arenas, and their alignment:
/// HEAP_MAX_SIZE of malloc/arena.c on 64-bit machines (unless huge pages are requested by
/// glibc.malloc.hugetlb).
const ARENA: u64 = 64 << 20;

/// Guards are a page by default; an arena's rest that is not yet accessible is nearly always more.
const GUARD_AT_MOST: u64 = 64 << 10;

/// Bytes, except counts. `None`: not available.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mapped {
    pub(super) pss: Option<u64>,
    pub(super) private_dirty: Option<u64>,
    pub(super) shared_dirty: Option<u64>,
    pub(super) anon_huge_pages: Option<u64>,
    pub(super) lazy_free: Option<u64>,
    /// Count.
    pub(super) maps: Option<u64>,
    pub(super) areas: Option<Areas>,
}

/// Resident anonymous memory by place, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Areas {
    pub(super) heap: u64,
    pub(super) arena: u64,
    pub(super) stack: u64,
    /// Copies of pages of files.
    pub(super) file: u64,
    pub(super) other: u64,
    /// Count of the arenas' heaps.
    pub(super) arenas: u64,
}

/// One mapping and its resident anonymous memory, bytes.
struct Area {
    mapping: Mapping,
    anonymous: u64,
}

impl Mapped {
    /// Reads the cheapest source: a process with very many mappings has no [`Areas`].
    pub(super) fn read(tgid: u32) -> Self {
        let read = |file: &str| process_root::read_mappings(tgid, file).ok();
        let maps =
            read("maps").map(|text| text.iter().filter(|&&byte| byte == b'\n').count() as u64);
        let file = match maps {
            Some(count) if count <= AREAS_AT_MOST => "smaps",
            _ => "smaps_rollup",
        };
        let mut mapped = read(file).map_or_else(Self::default, |text| Self::parse(&text));
        mapped.maps = maps;
        mapped
    }

    /// The text of either file.
    fn parse(text: &[u8]) -> Self {
        let mut sums = Self::default();
        let mut areas: Vec<Area> = Vec::new();
        for line in text.split(|&byte| byte == b'\n') {
            let Some((key, bytes)) = figure(line) else {
                // A mapping's first line; other lines without a figure (`VmFlags: …`) do not parse.
                if let Ok(mapping) = maps::parse(line)
                    && let Some(mapping) = mapping.into_iter().next()
                {
                    areas.push(Area {
                        mapping,
                        anonymous: 0,
                    });
                }
                continue;
            };
            let sum = match key {
                "Pss" => &mut sums.pss,
                "Private_Dirty" => &mut sums.private_dirty,
                "Shared_Dirty" => &mut sums.shared_dirty,
                "AnonHugePages" => &mut sums.anon_huge_pages,
                "LazyFree" => &mut sums.lazy_free,
                "Anonymous" => {
                    if let Some(area) = areas.last_mut() {
                        area.anonymous = bytes;
                    }
                    continue;
                }
                _ => continue,
            };
            *sum = Some(sum.unwrap_or(0).saturating_add(bytes));
        }
        let is_rollup = |area: &Area| name(&area.mapping) == "[rollup]";
        if !areas.is_empty() && !areas.iter().any(is_rollup) {
            sums.areas = Some(Areas::of(&areas));
        }
        sums
    }
}

impl Areas {
    fn of(areas: &[Area]) -> Self {
        let mut sums = Self::default();
        for (index, area) in areas.iter().enumerate() {
            let before = index.checked_sub(1).and_then(|index| areas.get(index));
            let after = areas.get(index + 1);
            let name = name(&area.mapping);
            let sum = if area.mapping.ino != 0 {
                &mut sums.file
            } else if name == "[heap]" {
                &mut sums.heap
            } else if is_arena(&area.mapping, after.map(|area| &area.mapping)) {
                sums.arenas += 1;
                &mut sums.arena
            } else if name == "[stack]"
                || name.starts_with("[anon: glibc: pthread stack")
                || is_above_guard(before.map(|area| &area.mapping), &area.mapping)
            {
                &mut sums.stack
            } else {
                &mut sums.other
            };
            *sum = sum.saturating_add(area.anonymous);
        }
        sums
    }
}

/// Whether a mapping is the accessible part of an arena's heap: it begins at a multiple of its
/// size, and the inaccessible part follows, up to that size.
fn is_arena(mapping: &Mapping, after: Option<&Mapping>) -> bool {
    let rest = after
        .filter(|after| after.start == mapping.end && is_inaccessible(after))
        .map_or(0, Mapping::len);
    mapping.permissions.write
        && mapping.start.is_multiple_of(ARENA)
        // An inaccessible mapping that another arena's follows is longer than the rest.
        && (mapping.len() == ARENA || mapping.len() < ARENA && mapping.len() + rest >= ARENA)
}

/// Whether a mapping is directly above a guard, as glibc and musl lay out threads' stacks.
fn is_above_guard(before: Option<&Mapping>, mapping: &Mapping) -> bool {
    before.is_some_and(|guard| {
        mapping.permissions.write
            && guard.end == mapping.start
            && is_inaccessible(guard)
            && guard.len() <= GUARD_AT_MOST
    })
}

fn is_inaccessible(mapping: &Mapping) -> bool {
    let permissions = mapping.permissions;
    mapping.ino == 0 && !permissions.read && !permissions.write && !permissions.execute
}

fn name(mapping: &Mapping) -> &str {
    let path = mapping.path.as_deref().and_then(|path| path.to_str());
    path.unwrap_or_default()
}

/// A line `Key:   N kB` as key and bytes.
fn figure(line: &[u8]) -> Option<(&str, u64)> {
    let line = str::from_utf8(line).ok()?.strip_suffix(" kB")?;
    let (key, value) = line.split_once(':')?;
    let kilobytes: u64 = value.trim_start().parse().ok()?;
    Some((key, kilobytes.checked_mul(1024)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines as printed by Linux 6.18, most of each mapping's left out.
    fn smaps(areas: &[(&str, u64)]) -> Vec<u8> {
        areas
            .iter()
            .map(|(line, kilobytes)| {
                format!(
                    "{line}\nSize: 9 kB\nPss:                {kilobytes} kB\n\
                     Pss_Dirty:            1 kB\nPrivate_Dirty:        2 kB\n\
                     Anonymous:            {kilobytes} kB\nLazyFree:             3 kB\n\
                     THPeligible:           0\nVmFlags: rd wr mr mw me ac \n"
                )
            })
            .collect::<String>()
            .into_bytes()
    }

    #[test]
    fn anonymous_memory_is_split_by_place() {
        let text = smaps(&[
            (
                "55d0c0a00000-55d0c0a21000 rw-p 00002000 fe:01 1311 /usr/bin/a",
                5,
            ),
            (
                "55d0c1000000-55d0c1021000 rw-p 00000000 00:00 0 [heap]",
                100,
            ),
            // An arena's heap, and one that is used up to its end.
            ("7f0000000000-7f0000100000 rw-p 00000000 00:00 0 ", 1000),
            ("7f0000100000-7f0004000000 ---p 00000000 00:00 0 ", 0),
            ("7f0004000000-7f0008000000 rw-p 00000000 00:00 0 ", 60000),
            // A thread's stack above its guard.
            ("7f0010001000-7f0010002000 ---p 00000000 00:00 0 ", 0),
            ("7f0010002000-7f0010802000 rw-p 00000000 00:00 0 ", 16),
            // At a multiple of an arena's size, but neither its length nor a rest.
            ("7f0020000000-7f0021000000 rw-p 00000000 00:00 0 ", 7),
            (
                "7ffd0b1fe000-7ffd0b200000 rw-p 00000000 00:00 0 [stack]",
                32,
            ),
        ]);
        let mapped = Mapped::parse(&text);
        let kib = |n: u64| n * 1024;
        assert_eq!(
            mapped.areas,
            Some(Areas {
                heap: kib(100),
                arena: kib(61000),
                stack: kib(48),
                file: kib(5),
                other: kib(7),
                arenas: 2,
            })
        );
        assert_eq!(mapped.pss, Some(kib(5 + 100 + 61000 + 16 + 7 + 32)));
        assert_eq!(mapped.private_dirty, Some(kib(18)));
        assert_eq!(mapped.lazy_free, Some(kib(27)));
        assert_eq!(mapped.shared_dirty, None);
    }

    #[test]
    fn the_kernels_own_sums_have_no_areas() {
        let text = smaps(&[(
            "55d0c0a00000-7ffd0b200000 ---p 00000000 00:00 0 [rollup]",
            4,
        )]);
        let mapped = Mapped::parse(&text);
        assert_eq!((mapped.pss, mapped.areas), (Some(4096), None));
    }

    #[test]
    fn unreadable_figures_are_skipped() {
        for text in [
            "",
            "Pss: x kB",
            "Pss: 99999999999999999 kB",
            "\u{fffd}\n: kB",
        ] {
            assert_eq!(Mapped::parse(text.as_bytes()), Mapped::default(), "{text}");
        }
        assert_eq!(Mapped::parse(b"\xff\xfe kB\nPss: 1 kB").pss, Some(1024));
    }

    #[test]
    fn the_areas_of_this_process_are_its_anonymous_memory() {
        let block = std::hint::black_box(vec![1u8; 32 << 20]);
        let mapped = Mapped::read(std::process::id());
        let areas = mapped.areas.unwrap();
        assert!(areas.other >= block.len() as u64, "{areas:?}");
        assert!(areas.stack > 0, "{areas:?}");
        assert!(mapped.maps.unwrap() > 10);
    }
}
