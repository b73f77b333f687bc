//! Blocks of real heaps.

use super::*;
use crate::{arch, holders::memory::Memory as _};

/// With the libraries, and all in one file.
const BUILDS: [&[&str]; 2] = [&[], &["-static"]];

#[test]
fn blocks_are_known_without_a_recording() {
    for options in BUILDS {
        let target = Target::start(options);
        for (name, size) in [
            ("global", 100),
            ("list", 16),
            ("tree", 70),
            ("table", 80),
            ("object", 48),
            ("both", 24),
            ("mapped", 1 << 20),
            ("stack", 300),
            ("thread_local", 301),
            ("arena_live", 40),
            ("register", 777),
        ] {
            let address = target.address(name);
            let index = target.blocks.containing(address);
            let index = index.unwrap_or_else(|| panic!("{name} at {address:#x} {options:?}"));
            let block = target.blocks.block(index);
            assert_eq!(block.start, address, "{name}");
            // The requested size, rounded up to that of a chunk.
            let room = if size >= 1 << 20 { 8192 } else { 32 };
            assert!(
                (size..size + room).contains(&block.size),
                "{name}: {block:?}"
            );
            assert_eq!(target.blocks.origin(index), Origin::Older, "{name}");
        }
        for name in ["shared", "aligned", "between"] {
            for &address in &target.addresses[name] {
                assert!(target.blocks.containing(address).is_some(), "{name}");
            }
        }
    }
}

#[test]
fn free_chunks_are_not_blocks() {
    for options in BUILDS {
        let target = Target::start(options);
        for name in ["freed_small", "freed_large", "freed_arena"] {
            for &address in &target.addresses[name] {
                let found = target.blocks.containing(address);
                let found = found.map(|index| target.blocks.block(index));
                assert_eq!(found, None, "{name} at {address:#x} {options:?}");
            }
        }
    }
}

#[test]
fn a_list_of_a_million_is_a_million_blocks() {
    let target = Target::start(&[]);
    let mut node = target.address("list");
    let mut count = 0;
    let mut scanner = Scanner::new(target.blocks.bounds());
    let memory = crate::holders::memory::Cached::new(target.memory);
    while node != 0 {
        let index = target.blocks.containing(node).unwrap();
        let block = target.blocks.block(index);
        assert_eq!(block.start, node);
        let mut found = Vec::new();
        scanner.scan(&memory, block.start..block.start + 16, |_, value| {
            found.push(value)
        });
        let next = memory.word(node).unwrap();
        assert_eq!(found, if next == 0 { vec![] } else { vec![next] });
        node = next;
        count += 1;
    }
    assert_eq!(count, 1_000_000);
}

#[test]
fn classes_have_names() {
    for options in [&[] as &[&str], &["-static"], &["-s"]] {
        let target = Target::start(options);
        let types = Types::new();
        let of = |name: &str| {
            let index = target.blocks.containing(target.address(name)).unwrap();
            let start = target.blocks.block(index).start;
            types.type_of(&target.memory, &target.modules, start)
        };
        let class = types.class_of(&target.memory, &target.modules, target.address("object"));
        assert_eq!(class.as_deref(), Some("N3app6WidgetE"));
        assert_eq!(of("object").as_deref(), Some("app::Widget"));
        assert_eq!(of("both").as_deref(), Some("app::Both"));
        assert_eq!(of("shared").as_deref(), Some("app::Widget (make_shared)"));
        for plain in ["global", "list", "tree", "mapped"] {
            assert_eq!(of(plain), None, "{plain}");
        }
    }
}

#[test]
fn nodes_of_a_map_are_known_as_such() {
    let target = Target::start(&[]);
    let value = target.address("tree");
    let mut scanner = Scanner::new(target.blocks.bounds());
    let holder = target.blocks.iter().find(|block| {
        let mut holds = false;
        let range = block.start..block.start + block.size.min(64);
        scanner.scan(&target.memory, range, |_, word| holds |= word == value);
        holds
    });
    let node = node_of(&target.memory, holder.unwrap());
    assert_eq!(node, Some("node of a std::map or std::set"));
}

#[test]
fn classes_without_type_information_are_named_by_their_symbol() {
    let target = Target::start(&["-fno-rtti", "-Ddynamic_cast=reinterpret_cast"]);
    let start = target.address("object");
    let name = Types::new().type_of(&target.memory, &target.modules, start);
    assert_eq!(name.as_deref(), Some("app::Widget"));
}

#[test]
fn memory_without_sense_has_no_classes_and_no_threads() {
    let target = Target::start(&[]);
    let types = Types::new();
    for seed in 0..100 {
        let noise = fixture::Noise(seed);
        for name in ["object", "global"] {
            types.type_of(&noise, &target.modules, target.address(name));
        }
        let mut builder = Builder::default();
        find_in_glibc(&noise, &target.mappings, &target.modules, &[], &mut builder);
        let pid = target.program.pid();
        Roots::new(
            pid,
            &Threads::Running(pid),
            &noise,
            &target.mappings,
            &target.modules,
            &builder.finish(),
            &[],
        );
    }
}

#[test]
fn another_allocator_is_named() {
    let preload = format!("{}/libjemalloc.so.2", arch::LIBRARIES);
    let target = Target::start_with(&[], &[("LD_PRELOAD", &preload)]);
    let pid = target.program.pid();
    let threads = Threads::Running(pid);
    let native = Native::read(pid, &threads, &target.memory, [], &[]).unwrap();
    let note = native.note.unwrap();
    assert!(
        note.starts_with("malloc is that of `libjemalloc.so.2`: "),
        "{note}"
    );
    assert_eq!(native.blocks.len(), 0);

    // Recorded blocks replace unrecorded memory, and are not roots.
    let size = 100;
    let start = target.address("global");
    let recorded = [Block { start, size }];
    let native = Native::read(pid, &threads, &target.memory, recorded, &[]).unwrap();
    assert_eq!(native.blocks.containing(start + 99), Some(0));
    let mut ranges = native.roots.ranges(&native.blocks);
    assert!(ranges.all(|range| !(range.start..range.end).contains(&start)));
}
