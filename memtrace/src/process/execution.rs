//! Identifies the execve(2) that a process runs since, even if the next one executes the same file.

use std::fs;

use crate::process_root::Memory;

/// The kernel's data for the program at its start, with random bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Execution {
    auxv: Vec<u8>,
    /// `None`: they could not be read.
    random: Option<[u8; RANDOM]>,
}

/// Bytes at `AT_RANDOM` (getauxval(3)): without them, a program at fixed addresses would look the same each time.
const RANDOM: usize = 16;

impl Execution {
    /// `None`: the process has ended, or may not be read.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let auxv = fs::read(format!("/proc/{pid}/auxv")).ok()?;
        if auxv.is_empty() {
            return None;
        }
        let random = entry(&auxv, libc::AT_RANDOM).and_then(|address| {
            let mut random = [0; RANDOM];
            let read = Memory::of(pid).and_then(|it| it.read_exact_at(&mut random, address));
            read.ok().map(|()| random)
        });
        Some(Self { auxv, random })
    }

    /// Whether another one is certainly not this one. Without the random bytes, the addresses remain.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        let random = self.random.zip(other.random);
        self.auxv != other.auxv || random.is_some_and(|(own, others)| own != others)
    }
}

/// The value of an entry of the auxiliary vector of a program of 64 bits.
fn entry(auxv: &[u8], key: u64) -> Option<u64> {
    let (words, _) = auxv.as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    let pairs = pairs.iter().map(|pair| pair.map(u64::from_ne_bytes));
    pairs
        .into_iter()
        .find_map(|[of, value]| (of == key).then_some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{BufRead, BufReader, Write},
        process::{Command, Stdio},
    };

    /// At fixed addresses, where only the random bytes differ.
    #[test]
    fn a_program_that_executes_itself_is_another_execution() {
        let script = "echo ready; read line; exec \"$0\" -c 'echo ready; read line' \"$0\"";
        let mut shell = Command::new("setarch")
            .args(["-R", "sh", "-c", script, "sh"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = shell.stdin.take().unwrap();
        let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        let first = Execution::of(shell.id()).unwrap();
        assert_eq!(Execution::of(shell.id()).unwrap(), first);
        input.write_all(b"\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        assert_ne!(Execution::of(shell.id()).unwrap(), first);
        drop(input);
        shell.wait().unwrap();
        assert_eq!(Execution::of(shell.id()), None);
    }
}
