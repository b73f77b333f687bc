//! `/proc/PID/maps`: the mappings of a process. Text in, data out; the files behind the mappings
//! are opened elsewhere ([`super::files`]).

use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::process_root;

/// The `rwxp` column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Permissions {
    pub read: bool,
    pub write: bool,
    pub execute: bool,
    pub shared: bool,
}

/// A file, as `/proc/PID/maps` and the kernel side name it. Not comparable to
/// stat's `st_dev` on file systems with anonymous devices (btrfs subvolumes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FileId {
    /// `MAJOR << 20 | MINOR`.
    pub dev: u32,
    pub ino: u64,
}

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// First address, absolute in the process.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    pub permissions: Permissions,
    /// Offset into the file of `start`, bytes.
    pub file_offset: u64,
    /// Device of the file as the kernel holds it (`MAJOR << 20 | MINOR`), 0 for none.
    pub dev: u32,
    /// 0 for no file.
    pub ino: u64,
    /// The path as the process sees it, or a pseudo name such as `[heap]`; `None` for anonymous memory.
    /// A file outside the process's root appears as the kernel prints it.
    pub path: Option<PathBuf>,
    /// The kernel appended ` (deleted)`, which a file can also carry in its own name.
    pub deleted: bool,
}

impl Mapping {
    /// Bytes of address space, a multiple of the page size.
    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Whether the mapping contains `abs_addr`.
    pub(crate) fn contains(&self, abs_addr: u64) -> bool {
        (self.start..self.end).contains(&abs_addr)
    }

    /// The file behind the mapping, `None` for anonymous memory and pseudo names.
    pub(crate) fn file(&self) -> Option<FileId> {
        (self.ino != 0).then_some(FileId {
            dev: self.dev,
            ino: self.ino,
        })
    }
}

/// A line that is not of the documented form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected `START-END PERMS OFFSET MAJOR:MINOR INODE [PATH]`, got `{line}`")]
pub(crate) struct MalformedLine {
    pub line: String,
}

/// Why the mappings of a process could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MapsError {
    #[error("cannot read `/proc/{pid}/maps`: {source}")]
    Read { pid: u32, source: io::Error },
    #[error("cannot parse `/proc/{pid}/maps`: {source}")]
    Parse { pid: u32, source: MalformedLine },
}

/// Reads the mappings of process `pid`, by address. A kernel thread and a
/// process that has just exited have none.
pub(crate) fn read(pid: u32) -> Result<Vec<Mapping>, MapsError> {
    let text = process_root::read_mappings(pid, "maps")
        .map_err(|source| MapsError::Read { pid, source })?;
    parse(&text).map_err(|source| MapsError::Parse { pid, source })
}

/// Parses the text of a maps file. Bytes, not UTF-8: paths are arbitrary.
pub(crate) fn parse(text: &[u8]) -> Result<Vec<Mapping>, MalformedLine> {
    text.split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            parse_line(line).ok_or_else(|| MalformedLine {
                line: String::from_utf8_lossy(line).into_owned(),
            })
        })
        .collect()
}

/// The `[heap]` range: from the first to the last mapping of that name (there are several if the
/// protection was changed in part). `None` without a brk heap.
pub(crate) fn heap(mappings: &[Mapping]) -> Option<Range<u64>> {
    let mut heaps = mappings
        .iter()
        .filter(|mapping| mapping.path.as_deref() == Some(Path::new("[heap]")));
    let first = heaps.next()?;
    Some(first.start..heaps.next_back().unwrap_or(first).end)
}

/// The mapping that holds `abs_addr`; `mappings` must be sorted, as the kernel prints them.
pub(crate) fn find(mappings: &[Mapping], abs_addr: u64) -> Option<&Mapping> {
    let after = mappings.partition_point(|mapping| mapping.start <= abs_addr);
    mappings[..after]
        .last()
        .filter(|mapping| mapping.contains(abs_addr))
}

/// The first executable mapping of each file: the candidates for probing.
pub(crate) fn executable_files(mappings: &[Mapping]) -> Vec<&Mapping> {
    let mut seen = std::collections::HashSet::new();
    mappings
        .iter()
        .filter(|mapping| mapping.permissions.execute)
        .filter(|mapping| mapping.file().is_some_and(|key| seen.insert(key)))
        .collect()
}

fn parse_line(line: &[u8]) -> Option<Mapping> {
    // Five fields separated by one space each; the path is padded and may itself hold spaces.
    let mut fields = line.splitn(6, |&byte| byte == b' ');
    let mut field = || std::str::from_utf8(fields.next()?).ok();
    let (start, end) = field()?.split_once('-')?;
    let permissions = parse_permissions(field()?)?;
    let file_offset = hex(field()?)?;
    let (major, minor) = field()?.split_once(':')?;
    let ino = field()?.parse().ok()?;
    let (start, end) = (hex(start)?, hex(end)?);
    let (major, minor) = (
        u32::try_from(hex(major)?).ok()?,
        u32::try_from(hex(minor)?).ok()?,
    );
    // 12 and 20 bits, include/linux/kdev_t.h.
    if start > end || major >= 1 << 12 || minor >= 1 << 20 {
        return None;
    }
    let (path, deleted) = parse_path(fields.next().unwrap_or_default());
    Some(Mapping {
        start,
        end,
        permissions,
        file_offset,
        dev: major << 20 | minor,
        ino,
        path,
        deleted,
    })
}

fn parse_permissions(text: &str) -> Option<Permissions> {
    let &[read, write, execute, shared] = text.as_bytes() else {
        return None;
    };
    Some(Permissions {
        read: flag(read, b'r', b'-')?,
        write: flag(write, b'w', b'-')?,
        execute: flag(execute, b'x', b'-')?,
        shared: flag(shared, b's', b'p')?,
    })
}

fn flag(byte: u8, yes: u8, no: u8) -> Option<bool> {
    (byte == yes || byte == no).then_some(byte == yes)
}

fn hex(text: &str) -> Option<u64> {
    // `from_str_radix` alone would accept a sign.
    text.bytes()
        .all(|byte| byte.is_ascii_hexdigit())
        .then_some(())?;
    u64::from_str_radix(text, 16).ok()
}

fn parse_path(field: &[u8]) -> (Option<PathBuf>, bool) {
    let start = field.iter().position(|&byte| byte != b' ');
    let Some(name) = start.and_then(|start| field.get(start..)) else {
        return (None, false);
    };
    match name.strip_suffix(b" (deleted)") {
        Some(name) => (Some(unescape(name)), true),
        None => (Some(unescape(name)), false),
    }
}

/// The kernel escapes only the line feed in paths.
fn unescape(name: &[u8]) -> PathBuf {
    const ESCAPED: &[u8] = b"\\012";
    let mut path = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&byte, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(ESCAPED) {
            path.push(b'\n');
            rest = tail;
        } else {
            path.push(byte);
            rest = tail;
        }
    }
    if path.len() == name.len() {
        return PathBuf::from(OsStr::from_bytes(name));
    }
    PathBuf::from(OsString::from_vec(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "\
55d0c0a00000-55d0c0a21000 r-xp 00002000 fe:01 1311 /usr/bin/a b  c
55d0c1000000-55d0c1021000 rw-p 00000000 00:00 0                          [heap]
55d0c1021000-55d0c1030000 ---p 00000000 00:00 0                          [heap]
7f0000000000-7f0000001000 rw-s 00000000 00:01 3072                       /memfd:x y (deleted) (deleted)
7f0000001000-7f0000002000 rw-p 00000000 00:00 0 
7f0000002000-7f0000003000 rw-p 00000000 00:00 0
7f0000003000-7f0000004000 r-xp 00001000 103:00002 18446744073709551615   /tmp/new\\012line\\011
7f0000004000-7f0000005000 r--p 00000000 fe:01 1311                       /usr/bin/a b  c
7ffd0b1fe000-7ffd0b200000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    fn mappings() -> Vec<Mapping> {
        parse(LINES.as_bytes()).unwrap()
    }

    #[test]
    fn fields_are_read_as_the_kernel_prints_them() {
        let mappings = mappings();
        assert_eq!(
            mappings[0],
            Mapping {
                start: 0x55d0_c0a0_0000,
                end: 0x55d0_c0a2_1000,
                permissions: Permissions {
                    read: true,
                    write: false,
                    execute: true,
                    shared: false
                },
                file_offset: 0x2000,
                dev: 0xfe << 20 | 1,
                ino: 1311,
                path: Some("/usr/bin/a b  c".into()),
                deleted: false,
            }
        );
        assert_eq!(mappings[0].len(), 0x21000);
    }

    #[test]
    fn only_one_deleted_suffix_is_the_kernels() {
        let memfd = &mappings()[3];
        assert!(memfd.deleted && memfd.permissions.shared);
        assert_eq!(
            memfd.path.as_deref(),
            Some(Path::new("/memfd:x y (deleted)"))
        );
    }

    #[test]
    fn anonymous_memory_has_neither_path_nor_file() {
        let mappings = mappings();
        for anonymous in &mappings[4..6] {
            assert_eq!(anonymous.path, None);
            assert_eq!(anonymous.file(), None);
        }
        assert_eq!(mappings[8].path.as_deref(), Some(Path::new("[vdso]")));
        assert_eq!(mappings[8].file(), None);
    }

    #[test]
    fn a_line_feed_is_unescaped_and_nothing_else() {
        let odd = &mappings()[6];
        assert_eq!(odd.path.as_deref(), Some(Path::new("/tmp/new\nline\\011")));
        assert_eq!((odd.dev, odd.ino), (0x103 << 20 | 2, u64::MAX));
    }

    #[test]
    fn the_heap_spans_all_mappings_of_its_name() {
        assert_eq!(heap(&mappings()), Some(0x55d0_c100_0000..0x55d0_c103_0000));
        assert_eq!(heap(&mappings()[..1]), None);
        assert_eq!(
            heap(&mappings()[..2]),
            Some(0x55d0_c100_0000..0x55d0_c102_1000)
        );
    }

    #[test]
    fn addresses_are_found_by_their_mapping() {
        let mappings = mappings();
        assert_eq!(find(&mappings, 0x55d0_c101_0000), Some(&mappings[1]));
        assert_eq!(find(&mappings, 0x55d0_c0a2_1000), None);
        assert_eq!(find(&mappings, 0), None);
        assert_eq!(find(&mappings, u64::MAX), None);
    }

    #[test]
    fn each_executable_file_is_listed_once() {
        let paths: Vec<_> = executable_files(&mappings())
            .iter()
            .map(|mapping| mapping.ino)
            .collect();
        assert_eq!(paths, [1311, u64::MAX]);
    }

    #[test]
    fn malformed_lines_are_errors() {
        for line in [
            "x",
            "1000 r-xp 0 0:0 0",
            "2000-1000 r-xp 0 0:0 0",
            "1000-2000 r-x 0 0:0 0",
            "1000-2000 rqxp 0 0:0 0",
            "1000-2000 r-xp 0 0 0",
            "1000-2000 r-xp 0 0:0 x",
            "1000-2000 r-xp +1 0:0 0",
            "1000-2000 r-xp 0 1000:0 0",
            "1000-2000 r-xp 0 0:100000 0",
            "10000000000000000-2 r-xp 0 0:0 0",
        ] {
            assert_eq!(parse(line.as_bytes()).unwrap_err().line, line);
        }
        assert_eq!(parse(b""), Ok(vec![]));
    }

    #[test]
    fn this_process_has_its_own_file_and_a_heap_or_not() {
        let mappings = read(std::process::id()).unwrap();
        let exe = std::fs::canonicalize("/proc/self/exe").unwrap();
        assert!(
            executable_files(&mappings)
                .iter()
                .any(|mapping| mapping.path.as_deref() == Some(&exe))
        );
        assert!(mappings.is_sorted_by_key(|mapping| mapping.start));
        assert!(matches!(read(0), Err(MapsError::Read { pid: 0, .. })));
    }
}
