//! Against the interpreters of this machine: the one of the distribution, which has to be there,
//! and those of pyenv.

mod decode;
mod detect;
mod lines;
mod offsets;
mod walk;

use super::{Candidate, Read, Unsupported, find};
use crate::process::{elf::Elf, maps};
use std::{
    collections::HashSet,
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

const DISTRIBUTION: &str = "/usr/bin/python3";

/// Programs that run Python scripts.
fn interpreters() -> Vec<PathBuf> {
    let pyenv = std::env::home_dir().map(|home| home.join(".pyenv/versions"));
    let versions = pyenv.and_then(|path| fs::read_dir(path).ok());
    let mut found: Vec<PathBuf> = versions
        .into_iter()
        .flatten()
        .filter_map(|version| Some(version.ok()?.path().join("bin/python3")))
        .filter(|path| path.exists())
        .collect();
    found.push(DISTRIBUTION.into());
    found
}

/// Whether a program is of a version that is read here, by its name.
fn is_supported(program: &Path) -> bool {
    let program = program.canonicalize().unwrap();
    let minor = program.to_str().unwrap().rsplit_once("python3.").unwrap().1;
    (9..15).contains(&minor.parse().unwrap())
}

/// The known facts about the interpreter's file.
fn candidate(path: &Path) -> Result<Option<Candidate>, Unsupported> {
    let bytes = std::fs::read(path).unwrap();
    find(&Elf::parse(&bytes).unwrap(), path)
}

/// A script that runs until it is dropped.
struct Script {
    child: Child,
    /// Its output.
    said: Vec<u8>,
}

impl Script {
    /// Runs a script until it has written `ready` bytes.
    fn start(interpreter: &Path, script: &Path, ready: usize) -> Script {
        let mut child = Command::new(interpreter)
            .args([OsStr::new("-I"), script.as_os_str()])
            // Otherwise 3.9 uses the locale's encoding for file names.
            .env("PYTHONUTF8", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = vec![0; ready];
        let read = child.stdout.as_mut().unwrap().read_exact(&mut said);
        let script = Script { child, said };
        read.unwrap_or_else(|error| panic!("{}: {error}", interpreter.display()));
        script
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The file that contains the interpreter, its known facts, and the difference between
    /// addresses in the process and in the file.
    fn interpreter(&self) -> Result<Option<(PathBuf, Candidate, u64)>, Unsupported> {
        let mappings = maps::read(self.pid()).unwrap();
        for mapping in maps::executable_files(&mappings) {
            let path = mapping.path.clone().unwrap();
            let Some(candidate) = candidate(&path)? else {
                continue;
            };
            let bytes = std::fs::read(&path).unwrap();
            let elf = Elf::parse(&bytes).unwrap();
            let code = elf
                .segments()
                .iter()
                .find(|segment| segment.execute)
                .unwrap();
            let start = code.virt - (code.file_offset - mapping.file_offset);
            return Ok(Some((path, candidate, mapping.start - start)));
        }
        Ok(None)
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> io::Result<()> {
        let local = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let remote = libc::iovec {
            iov_base: address as *mut libc::c_void,
            iov_len: bytes.len(),
        };
        let pid = self.pid().cast_signed();
        // SAFETY: the kernel writes to `local` only, which is `bytes`.
        let read = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
        match usize::try_from(read) {
            Ok(read) if read == bytes.len() => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write(path: &Path, text: &str) {
    File::create(path)
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
}

/// Memory that cannot be read.
fn unreadable() -> &'static Read<'static> {
    &|_, _| Err(io::ErrorKind::PermissionDenied.into())
}

/// xorshift64: the same numbers on every run.
fn random() -> impl FnMut() -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}
