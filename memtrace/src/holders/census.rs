//! How many objects of each type there are in CPython's memory for small objects, whether anything reaches them or not.
//! The objects are told from other memory by their headers ([`Finder`]). The process runs meanwhile: the
//! counts of a moment may be off by what changes then.

use super::{
    memory::Live,
    pools,
    python::{Finder, Python},
};
use crate::{
    hash::mix,
    process::{maps, memory},
};
use memtrace_common::python::Interpreter;
use std::{cell::RefCell, collections::HashMap};

/// Least objects of a type that is counted.
const LEAST: u64 = 16;

/// Most objects of a type whose addresses are kept.
const SAMPLE: usize = 128;

/// Most types of a process that are counted: those that take most memory. The addresses of all take 128 KiB.
const MOST_COUNTED: usize = 128;

/// Most types that are found, which take up to 32 MiB, and words that are looked at as types. A program has some thousands
/// of types; other memory may look like any number.
const MOST_TYPES: usize = 1 << 13;
const MOST_WORDS: usize = 1 << 16;

/// The objects of one type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// With its module unless it is a builtin.
    pub(crate) name: String,
    pub(crate) count: u64,
    /// The memory that they take.
    pub(crate) bytes: u64,
    /// Addresses of some of them, those first whose hash is lowest. As long as their number does not fall, one of these
    /// was among those of an earlier count if it was there.
    pub(crate) sample: Vec<u64>,
}

/// Why the objects were not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uncounted {
    /// It would have taken too long.
    TooLarge,
    /// The process has ended, runs no CPython that memtrace can read, or has memory swapped out.
    Unreadable,
}

/// Objects of a type that became more and more, which came and stayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OfType {
    /// With its module unless it is a builtin.
    pub(crate) name: String,
    /// By which all of them together grew.
    pub(crate) bytes: u64,
    pub(crate) addresses: Vec<u64>,
}

/// Counts the objects of a process, until `is_over`. `at`: its interpreter.
///
/// # Errors
/// See [`Uncounted`].
pub(crate) fn count(
    pid: u32,
    at: Interpreter,
    is_over: &dyn Fn() -> bool,
) -> Result<Vec<Counted>, Uncounted> {
    // Reading would bring back what is swapped out.
    let sample = memory::sample(pid, false).map_err(|_| Uncounted::Unreadable)?;
    if sample.swap.is_some_and(|swap| swap > 0) {
        return Err(Uncounted::Unreadable);
    }
    let mappings = maps::read(pid).map_err(|_| Uncounted::Unreadable)?;
    let memory = Live::guarded(pid, &mappings);
    let python = Python::of(at, &memory).map_err(|_| Uncounted::Unreadable)?;
    let minor = python.minor();
    let pools = pools::find(minor, &mappings, &memory, is_over);
    let finder = RefCell::new(Finder::new(&python, &memory));
    let mut kinds: Vec<Kind> = Vec::new();
    let is_late = || {
        let finder = finder.borrow();
        is_over() || finder.found() > MOST_TYPES || finder.looked_at() > MOST_WORDS
    };
    let is_whole = pools::pieces(minor, &pools, &memory, &is_late, &mut |start, piece| {
        if let Some((before, number)) = finder.borrow_mut().object_in(piece) {
            if kinds.len() <= number {
                kinds.resize_with(number + 1, Kind::default);
            }
            let kind = &mut kinds[number];
            kind.count += 1;
            kind.bytes += piece.len() as u64;
            kind.lowest.add(start + before);
        }
    });
    match is_whole && !is_late() {
        true => Ok(named(kinds, &finder.borrow())),
        false => Err(Uncounted::TooLarge),
    }
}

/// The objects of the type at one address.
#[derive(Default)]
struct Kind {
    count: u64,
    bytes: u64,
    lowest: Lowest,
}

/// The addresses with the lowest hashes.
#[derive(Default)]
struct Lowest {
    hashed: Vec<(u64, u64)>,
    /// Above this, none counts any more.
    most: Option<u64>,
}

impl Lowest {
    fn add(&mut self, address: u64) {
        let hash = mix(address);
        if self.most.is_some_and(|most| hash > most) {
            return;
        }
        self.hashed.push((hash, address));
        if self.hashed.len() >= 2 * SAMPLE {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.hashed.sort_unstable();
        self.hashed.truncate(SAMPLE);
        if self.hashed.len() == SAMPLE {
            self.most = self.hashed.last().map(|(hash, _)| *hash);
        }
    }

    fn addresses(mut self) -> Vec<u64> {
        self.cut();
        self.hashed
            .into_iter()
            .map(|(_, address)| address)
            .collect()
    }
}

/// Types of one name are one: a program may make a class again and again.
fn named(kinds: Vec<Kind>, finder: &Finder<'_>) -> Vec<Counted> {
    let mut by_name: HashMap<String, Kind> = HashMap::new();
    for (number, kind) in kinds
        .into_iter()
        .enumerate()
        .filter(|(_, kind)| kind.count > 0)
    {
        let Some(name) = finder.name(number) else {
            continue;
        };
        let known = by_name.entry(name).or_default();
        known.count += kind.count;
        known.bytes += kind.bytes;
        kind.lowest
            .addresses()
            .into_iter()
            .for_each(|it| known.lowest.add(it));
    }
    let many = by_name.into_iter().filter(|(_, kind)| kind.count >= LEAST);
    let counted = many.map(|(name, kind)| Counted {
        name,
        count: kind.count,
        bytes: kind.bytes,
        sample: kind.lowest.addresses(),
    });
    let mut counted: Vec<Counted> = counted.collect();
    counted.sort_unstable_by_key(|of| std::cmp::Reverse(of.bytes));
    counted.truncate(MOST_COUNTED);
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_sample_has_what_an_earlier_one_had() {
        let sample = |addresses: std::ops::Range<u64>| {
            let mut lowest = Lowest::default();
            addresses.for_each(|it| lowest.add(it * 64));
            lowest.addresses()
        };
        assert_eq!(sample(0..20).len(), 20);
        let (early, late) = (sample(0..5000), sample(0..10_000));
        assert_eq!((early.len(), late.len()), (SAMPLE, SAMPLE));
        let older: Vec<&u64> = late.iter().filter(|it| **it < 5000 * 64).collect();
        assert!(older.iter().all(|it| early.contains(it)));
        assert!((45..84).contains(&older.len()), "{}", older.len());
    }
}
