//! Reads the memory of a running process. Values may be torn, freed or reused, so each is only a
//! claim, and every read may fail.

use super::absent;
use crate::{
    hash::mix,
    process::maps::{self, Mapping},
    process_root,
};
use std::{cell::RefCell, fs::File, ops::Range, os::unix::fs::FileExt, sync::Arc};

/// The memory of a process.
pub(super) trait Memory {
    /// Fills `buffer` from an absolute address on; returns whether all of it could be read.
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool;

    /// The 8 bytes at `address`, which need not be aligned.
    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)
            .then(|| u64::from_le_bytes(bytes))
    }

    /// The 4 bytes at `address`.
    fn half(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)
            .then(|| u32::from_le_bytes(bytes))
    }

    /// The byte at `address`.
    fn byte(&self, address: u64) -> Option<u8> {
        let mut byte = [0];
        self.read(address, &mut byte).then_some(byte[0])
    }
}

/// Notices when a chain of addresses is a circle, which torn memory may have.
#[derive(Default)]
pub(super) struct Circle {
    steps: u64,
    /// The address of the last step whose number was a power of two: a circle comes to it again.
    met: Option<u64>,
}

impl Circle {
    /// Takes the next address of the chain; whether it was met before.
    pub(super) fn closes(&mut self, address: u64) -> bool {
        if self.met == Some(address) {
            return true;
        }
        self.steps += 1;
        if self.steps.is_power_of_two() {
            self.met = Some(address);
        }
        false
    }
}

/// A process's memory as it is now, a system call a read.
#[derive(Clone, Debug)]
pub(super) struct Live {
    pid: u32,
    /// `/proc/PID/mem`, if it can be opened.
    file: Option<Arc<File>>,
    /// Private memory without a file, in the order of addresses: it is read by that. `process_vm_readv` would copy each
    /// page that forked processes share (`gup_must_unshare`, mm/internal.h), and so take as much memory as it reads. All
    /// other memory is not read by `/proc/PID/mem`: it may wait for a file system, and the process cannot change its
    /// mappings meanwhile, or belong to a device.
    own: Arc<[Range<u64>]>,
    /// Ranges that are not read, in the order of addresses.
    absent: Arc<[Range<u64>]>,
}

impl Live {
    pub(super) fn new(pid: u32) -> Self {
        let mappings = maps::read(pid).unwrap_or_default();
        Self::of(pid, &mappings)
    }

    fn of(pid: u32, mappings: &[Mapping]) -> Self {
        let own = mappings.iter().filter(|mapping| {
            let permissions = mapping.permissions;
            mapping.ino == 0 && permissions.read && permissions.write && !permissions.shared
        });
        let mut own: Vec<Range<u64>> = own.map(|mapping| mapping.start..mapping.end).collect();
        own.sort_unstable_by_key(|range| range.start);
        let file = File::open(format!("/proc/{pid}/mem"));
        Self {
            pid,
            file: file.ok().map(Arc::new),
            own: own.into(),
            absent: Arc::default(),
        }
    }

    /// Leaves out what only a process could supply that may never answer: a user may mount a file system of their own.
    pub(super) fn guarded(pid: u32, mappings: &[Mapping]) -> Self {
        Self {
            absent: absent::ranges(pid, mappings).into(),
            ..Self::of(pid, mappings)
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    fn is_absent(&self, address: u64, bytes: u64) -> bool {
        let end = address.saturating_add(bytes);
        let after = self.absent.partition_point(|range| range.end <= address);
        self.absent
            .get(after)
            .is_some_and(|range| range.start < end)
    }

    fn is_own(&self, address: u64, bytes: u64) -> bool {
        let after = self.own.partition_point(|range| range.end <= address);
        let range = self.own.get(after);
        range.is_some_and(|range| {
            range.start <= address && range.end - address.min(range.end) >= bytes
        })
    }
}

impl Live {
    /// Reads the words at `addresses` into `values`, which has the same length; `None` if unreadable.
    pub(super) fn words(&self, addresses: &[u64], values: &mut [Option<u64>]) {
        for (address, value) in addresses.iter().zip(values) {
            *value = self.word(*address);
        }
    }
}

impl Memory for Live {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        let bytes = buffer.len() as u64;
        if self.is_absent(address, bytes) {
            return false;
        }
        match self.file.as_ref().filter(|_| self.is_own(address, bytes)) {
            Some(file) => file.read_exact_at(buffer, address).is_ok(),
            None => process_root::copy_memory(self.pid, address, buffer).is_ok(),
        }
    }
}

/// Bytes that are read at once.
const LINE: u64 = 4 << 10;

/// Number of lines that are kept: 32 MiB.
const LINES: usize = 1 << 13;

/// The same for memory that is read in the order of addresses.
const LINES_IN_ORDER: usize = 1 << 6;

/// The most that a cache takes, bytes.
pub(super) const MOST_CACHED: u64 = LINE * LINES as u64;

/// Memory with a cache of recent reads, which may be out of date.
pub(super) struct Cached<M> {
    memory: M,
    lines: RefCell<Vec<Line>>,
}

#[derive(Clone, Default)]
struct Line {
    /// Address of the first byte plus one: 0 is a line that holds nothing.
    tag: u64,
    /// Empty until it is first used.
    bytes: Box<[u8]>,
}

impl<M: Memory> Cached<M> {
    pub(super) fn new(memory: M) -> Self {
        Self::with_lines(memory, LINES)
    }

    /// For memory that is read in the order of addresses, in pieces that lie next to each other: not a system call each.
    pub(super) fn in_order(memory: M) -> Self {
        Self::with_lines(memory, LINES_IN_ORDER)
    }

    fn with_lines(memory: M, lines: usize) -> Self {
        Self {
            memory,
            lines: RefCell::new(vec![Line::default(); lines]),
        }
    }

    fn line(lines: &mut [Line], start: u64) -> &mut Line {
        let number = mix(start) as usize % lines.len();
        &mut lines[number]
    }

    /// The memory behind it, as it is now.
    pub(super) fn now(&self) -> &M {
        &self.memory
    }

    /// Drops everything read so far.
    pub(super) fn forget(&self) {
        self.lines.borrow_mut().fill(Line::default());
    }

    /// Drops what was read around an address.
    pub(super) fn forget_at(&self, address: u64) {
        let start = address & !(LINE - 1);
        let mut lines = self.lines.borrow_mut();
        let line = Self::line(&mut lines, start);
        if line.tag == start + 1 {
            line.tag = 0;
        }
    }

    /// Reads a line again. One at the edge of a mapping is not cached, so its words are read one by one.
    fn fill(&self, line: &mut Line, start: u64) {
        if line.bytes.is_empty() {
            line.bytes = vec![0; LINE as usize].into_boxed_slice();
        }
        let is_whole = self.memory.read(start, &mut line.bytes);
        line.tag = if is_whole { start + 1 } else { 0 };
    }
}

impl<M: Memory> Memory for Cached<M> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        let start = address & !(LINE - 1);
        let from = (address - start) as usize;
        if from + buffer.len() > LINE as usize {
            return self.memory.read(address, buffer);
        }
        let mut lines = self.lines.borrow_mut();
        let line = Self::line(&mut lines, start);
        if line.tag != start + 1 {
            self.fill(line, start);
        }
        match line.tag {
            0 => self.memory.read(address, buffer),
            _ => {
                buffer.copy_from_slice(&line.bytes[from..from + buffer.len()]);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_of_every_length_are_noticed_and_chains_are_not() {
        for before in 0..20 {
            for length in 1..20 {
                let mut circle = Circle::default();
                let mut chain = (0..before).chain((before..before + length).cycle());
                let steps = chain.position(|address| circle.closes(address));
                assert!(steps.is_some_and(|steps| steps < 100));
            }
        }
        let mut circle = Circle::default();
        assert!(!(0..10_000).any(|address| circle.closes(address)));
    }

    #[test]
    fn words_that_cannot_be_read_leave_the_others_alone() {
        let values: Vec<u64> = (0..3000).collect();
        let mut addresses: Vec<u64> = values
            .iter()
            .map(|value| (&raw const *value) as u64)
            .collect();
        // Nothing is ever mapped there.
        for index in [0, 1023, 1024, 2999] {
            addresses[index] = 8;
        }
        let mut read = vec![None; addresses.len()];
        Live::new(std::process::id()).words(&addresses, &mut read);
        for (index, (value, read)) in values.iter().zip(&read).enumerate() {
            let is_missing = [0, 1023, 1024, 2999].contains(&index);
            assert_eq!(*read, (!is_missing).then_some(*value), "{index}");
        }
    }

    #[test]
    fn cached_memory_is_that_of_the_first_read() {
        let mut bytes = vec![1_u8; 4 * LINE as usize];
        let inside = (&raw const bytes[LINE as usize]) as u64;
        let memory = Cached::new(Live::new(std::process::id()));
        assert_eq!(memory.byte(inside), Some(1));
        bytes[LINE as usize] = 2;
        assert_eq!(memory.now().byte(inside), Some(2));
        assert_eq!(memory.byte(inside), Some(1));
        memory.forget_at(inside + 8);
        assert_eq!(memory.byte(inside), Some(2));
        assert_eq!(memory.word(8), None);
        // From one line to the next.
        let end = (inside | (LINE - 1)) - 3;
        assert_eq!(memory.word(end), Some(0x0101_0101_0101_0101));
    }
}
