//! Objects of real interpreters of every version, as `recorded/3.*.zst` have them: the words that the decoders read.

use super::{walk::Walk, *};
use crate::holders::{fuzz::Mutable, python::layout::OB_TYPE};
use std::{cell::RefCell, collections::BTreeMap, path::Path};
use zerocopy::{FromBytes as _, IntoBytes as _};

/// Memory whose words are kept as they are read.
struct Recorder {
    memory: Live,
    words: RefCell<BTreeMap<u64, u64>>,
}

impl Memory for Recorder {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        if !self.memory.read(address, buffer) {
            return false;
        }
        let end = address + buffer.len() as u64;
        for at in (address & !7..end).step_by(8) {
            if let Some(word) = self.memory.word(at) {
                self.words.borrow_mut().insert(at, word);
            }
        }
        true
    }
}

/// See the module.
pub(super) struct Recorded {
    pub(super) memory: Mutable,
    /// Addresses of objects of all kinds.
    pub(super) objects: Vec<u64>,
    at: Interpreter,
    layout: Layout,
    meta: u64,
}

impl Recorded {
    fn read(compressed: &[u8]) -> Recorded {
        let bytes = zstd::decode_all(compressed).unwrap();
        let (at, rest) = Interpreter::read_from_prefix(&bytes).unwrap();
        let mut words = rest.as_chunks().0.iter().copied().map(u64::from_le_bytes);
        let count = words.next().unwrap() as usize;
        let objects: Vec<u64> = words.by_ref().take(count).collect();
        let mut last = 0;
        let mut pairs = Vec::new();
        while let (Some(distance), Some(word)) = (words.next(), words.next()) {
            last += distance;
            pairs.push((last, word));
        }
        let memory = Mutable::new(&pairs);
        let class_of = |object: u64| memory.word(object + OB_TYPE).unwrap();
        Recorded {
            meta: class_of(class_of(class_of(objects[0]))),
            layout: Layout::of(&at, &memory).unwrap(),
            memory,
            objects,
            at,
        }
    }

    /// An interpreter that knows no types yet.
    pub(super) fn python(&self) -> Python {
        Python {
            at: self.at,
            types: Types::new(self.layout.clone(), self.meta),
            layout: self.layout.clone(),
        }
    }
}

/// One for each version.
pub(super) fn recorded() -> [Recorded; 6] {
    [
        &include_bytes!("recorded/3.9.zst")[..],
        include_bytes!("recorded/3.10.zst"),
        include_bytes!("recorded/3.11.zst"),
        include_bytes!("recorded/3.12.zst"),
        include_bytes!("recorded/3.13.zst"),
        include_bytes!("recorded/3.14.zst"),
    ]
    .map(Recorded::read)
}

/// All that decoders do with one object.
pub(super) fn decode(python: &Python, memory: &dyn Memory, object: u64) -> usize {
    let mut references = 0;
    python.type_name(memory, object);
    python.length(memory, object);
    if let Some(it) = python.object(memory, object) {
        it.least_size(memory);
    }
    python.references(memory, object, &mut |reference| {
        references += 1;
        if references < 16 {
            python.show(memory, &[reference.label], false);
        }
    });
    references
}

pub(super) fn decode_roots(python: &Python, memory: &dyn Memory) -> usize {
    let mut roots = 0;
    python.roots(memory, &mut |root, _| {
        roots += 1;
        if roots % 16 == 0 {
            python.show_root(memory, root, false);
        }
    });
    roots
}

/// Writes the files, of the newest interpreter of each version that is here: see [`interpreters`].
#[test]
#[ignore = "writes to the sources"]
fn record() {
    for interpreter in interpreters() {
        let mut script = Script::start(&interpreter, KINDS);
        let marks = script.lines();
        script.lines();
        let cached = script.memory();
        let python = script.python(&cached);
        let walk = Walk::new(&python, &cached);
        let mut objects = Vec::new();
        for mark in &marks {
            let mut object = mark.split_once('=').unwrap().1.parse().ok();
            while let Some(at) = object.filter(|at| walk.reached.contains_key(at)) {
                objects.push(at);
                object = walk.reached[&at].from;
            }
        }
        let first = objects[0];
        objects.sort_unstable();
        objects.dedup();
        objects.retain(|&object| object != first);
        objects.insert(0, first);
        let recorder = Recorder {
            memory: Live::new(script.child.id()),
            words: RefCell::default(),
        };
        let again = script.python(&recorder);
        for &object in &objects {
            decode(&again, &recorder, object);
        }
        decode_roots(&again, &recorder);
        let mut bytes = again.at.as_bytes().to_vec();
        let mut put = |word: u64| bytes.extend(word.to_le_bytes());
        put(objects.len() as u64);
        objects.iter().for_each(|&object| put(object));
        let mut last = 0;
        for (&address, &word) in &*recorder.words.borrow() {
            put(address - last);
            put(word);
            last = address;
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/holders/python/tests");
        let file = format!("recorded/3.{}.zst", again.minor());
        let compressed = zstd::encode_all(&bytes[..], 19).unwrap();
        eprintln!(
            "{file}: {} objects, {} bytes",
            objects.len(),
            compressed.len()
        );
        fs::write(folder.join(file), compressed).unwrap();
    }
}
