//! One ELF file: where its code lies and which files can name it.

use blazesym::{helper::read_elf_build_id, symbolize::source::Elf};
use object::{
    Endianness, ReadCache, ReadRef,
    elf::{FileHeader32, FileHeader64, PF_X, PT_LOAD},
    read::elf::{FileHeader, ProgramHeader},
};
use std::{
    fs::File,
    io::{self, Write},
    os::{
        fd::{AsRawFd, FromRawFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

/// A file to ask for symbols.
pub(super) struct SymbolSource {
    pub(super) elf: Elf,
    /// It could be parsed at least once.
    pub(super) works: bool,
}

pub(super) struct Module {
    pub(super) display_path: String,
    pub(super) build_id: Option<String>,
    /// In the order in which they are asked.
    pub(super) sources: Vec<SymbolSource>,
    /// Open as long as blazesym may use `/proc/self/fd/N`.
    file: File,
    version: Option<Version>,
    segments: Vec<Segment>,
}

/// Changes when the content of an inode does.
type Version = (u64, i64, i64);

/// A loadable segment. Bytes.
struct Segment {
    file_offset: u64,
    file_size: u64,
    virt_offset: u64,
    executable: bool,
}

impl Module {
    pub(super) fn new(
        display_path: &str,
        file: File,
        build_id: Option<String>,
        debug_file: Option<PathBuf>,
    ) -> Self {
        // The inode itself, whatever its name means here: works for deleted files, for other
        // mount namespaces and after the process ended.
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));

        let mut sources = Vec::new();
        // The debug file holds `.symtab` too, so it goes first.
        sources.extend(debug_file.map(Elf::new));
        sources.push(Elf::new(&path));
        // Asked when its debug information is broken or its debug link leads to a file that is
        // not its own.
        let mut symbols_only = Elf::new(path);
        symbols_only.debug_syms = false;
        sources.push(symbols_only);

        Self {
            display_path: display_path.to_owned(),
            build_id,
            sources: sources
                .into_iter()
                .map(|elf| SymbolSource { elf, works: false })
                .collect(),
            version: version(&file).ok(),
            segments: segments(&file),
            file,
        }
    }

    /// Whether the inode was written to since the module was added: its bytes no longer tell what
    /// the process ran, and a shorter file would end blazesym's mapping of it with SIGBUS.
    pub(super) fn is_changed(&self) -> bool {
        version(&self.file).ok() != self.version
    }

    pub(super) fn is_elf(&self) -> bool {
        !self.segments.is_empty()
    }

    /// Address as the ELF file (and its debug file, whose offsets differ) means it.
    pub(super) fn virt_offset(&self, file_offset: u64) -> Option<u64> {
        // Linkers may map the page where two segments meet into both; code is in the executable.
        self.segments
            .iter()
            .filter_map(|segment| {
                let distance = file_offset.checked_sub(segment.file_offset)?;
                (distance < segment.file_size).then_some((segment, distance))
            })
            .max_by_key(|(segment, _)| segment.executable)
            .and_then(|(segment, distance)| segment.virt_offset.checked_add(distance))
    }
}

/// An anonymous file with these bytes.
pub(super) fn file_of_bytes(bytes: &[u8]) -> io::Result<File> {
    // SAFETY: the name is a string literal with a terminating zero.
    let fd = unsafe { libc::memfd_create(c"memtrace-module".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open and nobody else's.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(bytes)?;
    Ok(file)
}

fn version(file: &File) -> io::Result<Version> {
    let metadata = file.metadata()?;
    Ok((metadata.size(), metadata.mtime(), metadata.mtime_nsec()))
}

/// The debug file of a build id (lower-case hex) in `dir`, if it says of itself that it is.
pub(super) fn debug_file(dir: &Path, build_id: &str) -> Option<PathBuf> {
    let is_hex = build_id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (first, rest) = build_id.split_at_checked(2)?;
    if !is_hex || rest.is_empty() {
        return None;
    }
    let path = dir.join(format!("{first}/{rest}.debug"));
    let found = read_elf_build_id(&path).ok()??;
    let found: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
    (found == build_id).then_some(path)
}

/// Loadable segments; empty where the file is no ELF file.
fn segments(file: &File) -> Vec<Segment> {
    let data = ReadCache::new(file);
    let of_64_bits = || load_segments::<FileHeader64<Endianness>, _>(&data);
    let of_32_bits = || load_segments::<FileHeader32<Endianness>, _>(&data);
    of_64_bits().or_else(|_| of_32_bits()).unwrap_or_default()
}

fn load_segments<'data, Header, Data>(data: Data) -> object::Result<Vec<Segment>>
where
    Header: FileHeader<Endian = Endianness>,
    Data: ReadRef<'data>,
{
    let header = Header::parse(data)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, data)?.iter();
    Ok(segments
        .filter(|segment| segment.p_type(endian) == PT_LOAD)
        .map(|segment| Segment {
            file_offset: segment.p_offset(endian).into(),
            file_size: segment.p_filesz(endian).into(),
            virt_offset: segment.p_vaddr(endian).into(),
            executable: segment.p_flags(endian) & PF_X == PF_X,
        })
        .collect())
}
