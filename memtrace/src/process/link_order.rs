//! The order in which the dynamic loader searches the loaded files for a symbol, which decides
//! whose `malloc` wins. Read from the loader's own list (`r_debug`, SVR4 debugger interface, the
//! same in glibc and musl) in the memory of a process. Only for labels: the choice of probed
//! functions does not depend on it.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::process_root::Memory;

/// One entry of the loader's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkedFile {
    /// Absolute address of the entry, a `struct link_map`.
    pub entry: u64,
    /// Run-time address minus address in the file.
    pub load_bias: u64,
    /// Absolute address of the dynamic section: in one of the file's mappings.
    pub dynamic: u64,
    /// As the loader opened it; empty for the main program (glibc) and possibly relative.
    pub path: PathBuf,
}

/// Why the loader's list could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkOrderError {
    #[error("cannot read `{path}`: {source}")]
    Read { path: String, source: io::Error },
    /// Changed while it was read, or overwritten.
    #[error("the loader's list of process {pid} does not end within {MAX_FILES} entries")]
    Endless { pid: u32 },
}

/// More entries than any process has loaded files; a cycle ends here.
const MAX_FILES: usize = 16 * 1024;
/// Longest path that is read, bytes (PATH_MAX).
const MAX_PATH: usize = 4096;
/// More program headers and dynamic entries than any linker writes.
const MAX_ENTRIES: u64 = 1024;

const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;
const PT_DYNAMIC: u32 = 2;
const PT_PHDR: u32 = 6;
const DT_NULL: u64 = 0;
const DT_DEBUG: u64 = 21;
/// `size_of::<Elf64_Phdr>()`
const PROGRAM_HEADER: u64 = 56;

/// Reads the list of 64-bit process `pid`: the main program first, then in order of the global
/// lookup. Files loaded by dlopen follow; without RTLD_GLOBAL they are searched only by themselves.
///
/// `Ok(None)`: there is no list (yet): a static program, or the loader has not
/// come that far.
pub(crate) fn read(pid: u32) -> Result<Option<Vec<LinkedFile>>, LinkOrderError> {
    let path = format!("/proc/{pid}/auxv");
    let auxv = std::fs::read(&path).map_err(|source| LinkOrderError::Read { path, source })?;
    let path = format!("/proc/{pid}/mem");
    let list = Memory::of(pid).and_then(|memory| read_list(pid, &auxv, &memory));
    list.map_err(|source| LinkOrderError::Read { path, source })?
        .transpose()
}

type List = Option<Result<Vec<LinkedFile>, LinkOrderError>>;

fn read_list(pid: u32, auxv: &[u8], memory: &Memory) -> io::Result<List> {
    let Some(debug) = find_debug(auxv, memory)? else {
        return Ok(None);
    };
    // struct r_debug { int r_version; struct link_map *r_map; … }
    let mut entry = memory.word(debug.wrapping_add(8))?;
    if entry == 0 {
        return Ok(None);
    }
    let mut files = Vec::new();
    while entry != 0 {
        if files.len() == MAX_FILES {
            return Ok(Some(Err(LinkOrderError::Endless { pid })));
        }
        // struct link_map { l_addr; char *l_name; l_ld; l_next; … }
        let [load_bias, name, dynamic, next] = memory.words(entry)?;
        files.push(LinkedFile {
            entry,
            load_bias,
            dynamic,
            path: memory.path(name)?,
        });
        entry = next;
    }
    Ok(Some(Ok(files)))
}

/// Address of the `r_debug` that the loader left in the main program's dynamic section.
fn find_debug(auxv: &[u8], memory: &Memory) -> io::Result<Option<u64>> {
    let auxiliary = |kind: u64| {
        auxv.chunks_exact(16)
            .map(|pair| (word(pair), word(&pair[8..])))
            .find_map(|(key, value)| (key == kind).then_some(value))
    };
    let (Some(headers), Some(count)) = (auxiliary(AT_PHDR), auxiliary(AT_PHNUM)) else {
        return Ok(None);
    };
    let mut bias = 0;
    let mut dynamic = None;
    for index in 0..count.min(MAX_ENTRIES) {
        let header = headers.wrapping_add(index * PROGRAM_HEADER);
        // Elf64_Phdr: p_type and p_flags, p_offset, p_vaddr.
        let [kind, _, virt] = memory.words(header)?;
        match kind as u32 {
            PT_PHDR => bias = headers.wrapping_sub(virt),
            PT_DYNAMIC => dynamic = Some(virt),
            _ => {}
        }
    }
    let Some(virt) = dynamic else { return Ok(None) };
    for index in 0..MAX_ENTRIES {
        let [tag, value] = memory.words(bias.wrapping_add(virt).wrapping_add(index * 16))?;
        match tag {
            DT_DEBUG => return Ok((value != 0).then_some(value)),
            DT_NULL => break,
            _ => {}
        }
    }
    Ok(None)
}

impl Memory {
    fn words<const N: usize>(&self, abs_addr: u64) -> io::Result<[u64; N]> {
        let mut bytes = [[0; 8]; N];
        self.read_exact_at(bytes.as_flattened_mut(), abs_addr)?;
        Ok(bytes.map(u64::from_le_bytes))
    }

    fn word(&self, abs_addr: u64) -> io::Result<u64> {
        let [word] = self.words(abs_addr)?;
        Ok(word)
    }

    /// A string that ends with 0 or after [`MAX_PATH`] bytes; none at address 0.
    fn path(&self, abs_addr: u64) -> io::Result<PathBuf> {
        let mut path = Vec::new();
        let mut buffer = [0; 256];
        while abs_addr != 0 && path.len() < MAX_PATH {
            let at = abs_addr.wrapping_add(path.len() as u64);
            // Not across a page: the next one may not be mapped.
            let room = (4096 - at as usize % 4096).min(buffer.len());
            let buffer = &mut buffer[..room];
            self.read_exact_at(buffer, at)?;
            let end = buffer.iter().position(|&byte| byte == 0);
            path.extend_from_slice(&buffer[..end.unwrap_or(room)]);
            if end.is_some() {
                break;
            }
        }
        Ok(OsString::from_vec(path).into())
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .take(8)
        .rev()
        .fold(0, |word, &byte| word << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::maps;

    #[test]
    fn this_process_lists_the_program_first_and_libc() {
        let pid = std::process::id();
        let files = read(pid).unwrap().unwrap();
        assert_eq!(files[0].path, PathBuf::new());
        let mappings = maps::read(pid).unwrap();
        let path_of = |file: &LinkedFile| maps::find(&mappings, file.dynamic).unwrap().path.clone();
        assert_eq!(
            path_of(&files[0]),
            Some(std::fs::canonicalize("/proc/self/exe").unwrap())
        );
        let libc = files
            .iter()
            .find(|file| file.path.ends_with("libc.so.6"))
            .unwrap();
        assert!(path_of(libc).unwrap().ends_with("libc.so.6"));
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(matches!(read(0), Err(LinkOrderError::Read { .. })));
    }
}
