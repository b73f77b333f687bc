//! Runs the decoders on memory that is nearly right: real structures with a few wrong words. Unit tests run this for
//! a moment, `cargo xtask fuzz` for minutes. An execution depends on the seed and its number only.

use super::memory::Memory;
use crate::hash::{FastMap, mix};
use std::{
    cell::Cell,
    env,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

/// Executions, the seed, and the number of the first execution.
const VARIABLES: [(&str, u64); 3] = [
    ("MEMTRACE_FUZZ_EXECUTIONS", 20_000),
    ("MEMTRACE_FUZZ_SEED", 1),
    ("MEMTRACE_FUZZ_FIRST", 0),
];

/// Most that one execution may read: ten times as much as a few MiB of memory can describe.
const MOST_READS: u64 = 1 << 20;
/// Largest piece, bytes. Sizes come from the memory that is read, so this bounds the buffers, too.
const LARGEST_READ: usize = 4 << 20;
/// An execution takes microseconds. One that takes this long never ends.
const ENDLESS: Duration = Duration::from_secs(20);

const PAGE: u64 = 4096;

/// Calls `execute` as often as the environment asks, and prints the count and the rate.
pub(in crate::holders) fn run(mut execute: impl FnMut(&mut Random)) {
    let [executions, seed, first] = VARIABLES.map(|(name, otherwise)| {
        let given = env::var(name).ok();
        given.map_or(otherwise, |text| text.parse().unwrap())
    });
    let current = Current {
        seed,
        number: Arc::new(AtomicU64::new(first)),
    };
    let (running, ended) = mpsc::channel::<()>();
    let watched = current.clone();
    let watch = thread::spawn(move || watch(&watched, &ended));
    let begun = Instant::now();
    for number in first..first + executions {
        current.number.store(number, Ordering::Relaxed);
        execute(&mut Random(mix(seed ^ mix(number))));
    }
    let took = begun.elapsed().as_secs_f64();
    drop(running);
    watch.join().unwrap();
    eprintln!(
        "{executions} executions with seed {seed} in {took:.1} s: {:.0} a second",
        executions as f64 / took
    );
}

/// The running execution. If it panics, its number is printed.
#[derive(Clone)]
struct Current {
    seed: u64,
    number: Arc<AtomicU64>,
}

impl Current {
    fn print(&self) {
        let number = self.number.load(Ordering::Relaxed);
        let [executions, seed, first] = VARIABLES.map(|(name, _)| name);
        eprintln!(
            "to repeat it: {seed}={} {first}={number} {executions}=1",
            self.seed
        );
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if thread::panicking() {
            self.print();
        }
    }
}

/// Ends the test when an execution does not end: a loop that reads nothing meets no bound.
fn watch(current: &Current, ended: &mpsc::Receiver<()>) {
    let mut last = u64::MAX;
    while ended.recv_timeout(ENDLESS) == Err(RecvTimeoutError::Timeout) {
        let number = current.number.load(Ordering::Relaxed);
        if number == last {
            eprintln!("an execution does not end");
            current.print();
            std::process::abort();
        }
        last = number;
    }
}

/// xorshift64.
pub(in crate::holders) struct Random(u64);

impl Random {
    pub(in crate::holders) fn next(&mut self) -> u64 {
        self.0 = self.0.max(1);
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(in crate::holders) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }

    pub(in crate::holders) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    pub(in crate::holders) fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.index(values.len())]
    }
}

/// Memory with some mapped pages, whose words are changed and restored.
pub(in crate::holders) struct Mutable {
    pages: FastMap<u64, Box<[u8; PAGE as usize]>>,
    /// Addresses of the words that it was made of.
    places: Vec<u64>,
    /// Addresses and former words.
    changed: Vec<(u64, u64)>,
    reads: Cell<u64>,
}

impl Mutable {
    /// Pages with these words, and with similar words around them.
    pub(in crate::holders) fn new(words: &[(u64, u64)]) -> Self {
        let mut memory = Self {
            pages: FastMap::default(),
            places: words.iter().map(|&(address, _)| address).collect(),
            changed: Vec::new(),
            reads: Cell::new(0),
        };
        let mut random = Random(words.len() as u64);
        for &(address, _) in words {
            let page = address & !(PAGE - 1);
            memory.pages.entry(page).or_insert_with(|| {
                let mut bytes = Box::new([0; PAGE as usize]);
                for word in bytes.as_chunks_mut::<8>().0 {
                    *word = random.pick(words).1.to_le_bytes();
                }
                bytes
            });
        }
        for &(address, word) in words {
            memory.put(address, word);
        }
        memory
    }

    pub(in crate::holders) fn put(&mut self, address: u64, word: u64) {
        let at = (address % PAGE) as usize;
        if let Some(page) = self.pages.get_mut(&(address & !(PAGE - 1)))
            && let Some(bytes) = page.get_mut(at..at + 8)
        {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Changes a few words, half of them near `start` or near an address found there.
    pub(in crate::holders) fn mutate(&mut self, random: &mut Random, start: u64) {
        self.reads.set(0);
        for _ in 0..1 + random.below(4) {
            let place = match random.below(2) {
                0 => random.pick(&self.places),
                _ => self.near(random, start),
            };
            if let Some(word) = self.word(place) {
                let changed = self.another(random, place, word);
                self.changed.push((place, word));
                self.put(place, changed);
            }
        }
        self.reads.set(0);
    }

    /// Restores the words that [`Mutable::mutate`] changed.
    pub(in crate::holders) fn restore(&mut self) {
        while let Some((address, word)) = self.changed.pop() {
            self.put(address, word);
        }
    }

    /// The address of a word that some links lead to.
    fn near(&self, random: &mut Random, start: u64) -> u64 {
        const NEAR: u64 = 48;
        let step = |random: &mut Random, from: u64| from.wrapping_add(8 * random.below(NEAR));
        let mut at = start & !7;
        for _ in 0..random.below(4) {
            let to = self.word(step(random, at)).unwrap_or(0) & !7;
            if self.pages.contains_key(&(to & !(PAGE - 1))) {
                at = to;
            }
        }
        match random.below(4) {
            // Some structures have words before the address that points to them.
            0 => at.wrapping_sub(8 * random.below(5)),
            _ => step(random, at),
        }
    }

    fn another(&self, random: &mut Random, place: u64, word: u64) -> u64 {
        let known = random.pick(&self.places);
        match random.below(12) {
            0 => 0,
            1 => u64::MAX - random.below(16),
            2 => random.below(64),
            3 => 1 << random.below(64),
            4 => word ^ 1 << random.below(64),
            5 => word.wrapping_add(random.pick(&[1, 8, 16, !0, !7, !15])),
            6 => self.word(known).unwrap_or(0),
            7 => known,
            8 => place.wrapping_sub(8 * random.below(8)),
            9 => (word & !(0xff << (8 * random.below(8)))) | (random.next() & 0xff),
            10 => word.rotate_right(32),
            _ => random.next(),
        }
    }
}

impl Memory for Mutable {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        self.reads.set(self.reads.get() + 1);
        assert!(self.reads.get() <= MOST_READS, "too many reads");
        assert!(buffer.len() <= LARGEST_READ, "{} bytes", buffer.len());
        let mut at = address;
        let mut rest = buffer;
        while !rest.is_empty() {
            let from = (at % PAGE) as usize;
            let Some(page) = self.pages.get(&(at & !(PAGE - 1))) else {
                return false;
            };
            let (now, later) = rest.split_at_mut(rest.len().min(PAGE as usize - from));
            now.copy_from_slice(&page[from..from + now.len()]);
            at = at.wrapping_add(now.len() as u64);
            rest = later;
        }
        true
    }
}
