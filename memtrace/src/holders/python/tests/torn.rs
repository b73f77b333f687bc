//! Memory that makes no sense: everything returns, with finite results.

use super::{
    super::{
        layout::{OB_TYPE, flag, tp},
        types::Types,
    },
    *,
};

/// Absolute addresses of the readable memory.
const START: u64 = 0x10_0000;
const SIZE: u64 = 0x9000;
const TYPES: u64 = START + 0x1000;
const TYPE_SIZE: u64 = 1024;
const NAMES: u64 = START + 0x8000;
/// Types of each kind, `type` first.
const KINDS: [&str; 14] = [
    "type",
    "list",
    "tuple",
    "dict",
    "set",
    "collections.deque",
    "module",
    "function",
    "frame",
    "generator",
    "str",
    "int",
    "hamt_bitmap_node",
    "Unknown",
];

struct Made(Vec<u8>);

impl Memory for Made {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        let place = address.checked_sub(START).map(|it| it as usize);
        let found = place.and_then(|place| self.0.get(place..place.checked_add(buffer.len())?));
        found.is_some_and(|found| {
            buffer.copy_from_slice(found);
            true
        })
    }
}

impl Made {
    fn put(&mut self, address: u64, word: u64) {
        let place = (address - START) as usize;
        self.0[place..place + 8].copy_from_slice(&word.to_le_bytes());
    }

    /// Random words that look plausible, and correct types where they are needed.
    fn new(random: &mut impl FnMut() -> u64) -> Made {
        let mut made = Made(vec![0; SIZE as usize]);
        for address in (START..START + SIZE).step_by(8) {
            let number = random();
            let word = match number % 16 {
                0..=5 => (START + (number >> 8) % SIZE) & !7,
                6..=9 => TYPES + (number >> 8) % KINDS.len() as u64 * TYPE_SIZE,
                10..=12 => (number >> 8) % 64,
                13 => 1 << ((number >> 8) % 64),
                14 => u64::MAX - (number >> 8) % 4,
                _ => number,
            };
            made.put(address, word);
        }
        for (index, name) in KINDS.iter().enumerate() {
            let ty = TYPES + index as u64 * TYPE_SIZE;
            let text = NAMES + index as u64 * 64;
            let place = (text - START) as usize;
            made.0[place..place + name.len()].copy_from_slice(name.as_bytes());
            made.0[place + name.len()] = 0;
            made.put(ty, 1);
            made.put(ty + OB_TYPE, TYPES);
            made.put(ty + tp::NAME, text);
            made.put(ty + tp::BASICSIZE, 16 + random() % 16 * 8);
            made.put(ty + tp::ITEMSIZE, [0, 8, 1 << 40][random() as usize % 3]);
            let flags = random() & !(flag::HEAP_TYPE) | random() & flag::HEAP_TYPE;
            made.put(ty + tp::FLAGS, flags | flag::READY | flag::TYPE);
        }
        made
    }
}

fn layouts() -> Vec<(Interpreter, Layout)> {
    let nothing = Made(vec![0; SIZE as usize]);
    (9..15)
        .map(|minor| {
            let at = Interpreter {
                runtime: START,
                minor,
                cframe_frame: 8,
                str_ascii_data: 40,
                str_compact_data: 56,
                ..Interpreter::default()
            };
            let mut described = nothing.0.clone();
            // Sizes that a description must have.
            described[6 * 8..][..8].copy_from_slice(&8000_u64.to_le_bytes());
            described[10 * 8..][..8].copy_from_slice(&7400_u64.to_le_bytes());
            described[12 * 8..][..8].copy_from_slice(&7688_u64.to_le_bytes());
            described[11 * 8..][..8].copy_from_slice(&7688_u64.to_le_bytes());
            let layout = Layout::of(&at, &Made(described)).unwrap();
            (at, layout)
        })
        .collect()
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

#[test]
fn any_memory_is_accepted() {
    let mut random = random();
    for (at, layout) in layouts() {
        let (mut objects, mut references) = (0, 0);
        for _ in 0..2 {
            let memory = Made::new(&mut random);
            let python = Python {
                types: Types::new(layout.clone(), TYPES),
                at,
                layout: layout.clone(),
            };
            for address in (START - 64..START + SIZE + 64).step_by(8) {
                objects += usize::from(python.is_object(&memory, address));
                python.type_name(&memory, address);
                python.length(&memory, address);
                python.references(&memory, address, &mut |reference| {
                    references += 1;
                    if references % 64 == 0 {
                        python.show(&memory, &[reference.label], false);
                    }
                });
            }
            python.tracked(&memory, &mut |_, _| {});
            python.roots(&memory, &mut |root, _| {
                python.show_root(&memory, root, false);
            });
        }
        // The test would prove nothing if it reached no objects.
        assert!(objects > 1000 && references > 10_000);
    }
    for address in [0, 1, 8, 0xfff, u64::MAX, u64::MAX - 7, 1 << 47, !7 - 8] {
        let (at, layout) = layouts().remove(0);
        let memory = Made::new(&mut random);
        let types = Types::new(layout.clone(), TYPES);
        let python = Python { at, layout, types };
        assert!(!python.is_object(&memory, address));
        python.references(&memory, address, &mut |_| panic!("{address:#x}"));
    }
}

/// A running interpreter's memory with some words replaced.
struct Torn<M>(M);

impl<M: Memory> Memory for Torn<M> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        let is_read = self.0.read(address, buffer);
        for (at, word) in (address..).step_by(8).zip(buffer.chunks_exact_mut(8)) {
            let hash = crate::hash::mix(at);
            if hash.is_multiple_of(500) {
                let wrong = [0, u64::MAX, hash, at, at & !0xfff, 1 << 40];
                word.copy_from_slice(&wrong[(hash >> 32) as usize % 6].to_le_bytes());
            }
        }
        is_read
    }
}

#[test]
fn torn_memory_is_walked_to_an_end() {
    let mut script = Script::start(
        &DISTRIBUTION.into(),
        "import json, asyncio, sys; print(1); print(flush=True); sys.stdin.read()",
    );
    script.lines();
    let memory = script.memory();
    let python = script.python(&memory);
    let whole = super::walk::Walk::new(&python, &memory).reached.len();
    let torn = Torn(script.memory());
    let partly = super::walk::Walk::new(&python, &torn).reached.len();
    assert!(partly > whole / 100, "{partly} of {whole}");
}
