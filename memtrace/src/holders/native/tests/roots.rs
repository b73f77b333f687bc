//! Where references begin in a real process.

use super::*;
use crate::holders::memory::Memory as _;

/// Descriptions of all places that hold a pointer to the start of a block.
fn holders(target: &Target, roots: &Roots, address: u64) -> Vec<String> {
    let mut scanner = Scanner::new(target.blocks.bounds());
    let mut places = Vec::new();
    for range in roots.ranges(&target.blocks) {
        scanner.scan(&target.memory, range.start..range.end, |at, value| {
            if value == address {
                places.push(at);
            }
        });
    }
    let mut found: Vec<String> = places
        .into_iter()
        .map(|at| roots.describe(&target.memory, &target.modules, at))
        .collect();
    found.extend(
        roots
            .registers()
            .filter(|register| register.value == address)
            .map(|register| roots.describe_register(&target.memory, &target.modules, &register)),
    );
    found
}

#[test]
fn global_variables_have_their_names() {
    for options in [&[] as &[&str], &["-static"], &["-no-pie"]] {
        let target = Target::start(options);
        let roots = target.roots();
        let of = |name: &str| holders(&target, &roots, target.address(name));
        assert!(
            of("global").contains(&"target: cache + 0x10".into()),
            "{:?}",
            of("global")
        );
        assert!(
            of("list").contains(&"target: list".into()),
            "{:?}",
            of("list")
        );
        assert!(of("object").contains(&"target: object".into()));
    }
}

#[test]
fn without_symbols_the_section_is_named() {
    let target = Target::start(&["-s"]);
    let roots = target.roots();
    let found = holders(&target, &roots, target.address("global"));
    let is_section = |place: &String| place.starts_with("target: .bss + 0x");
    assert!(found.iter().any(is_section), "{found:?}");
}

#[test]
fn thread_local_variables_have_their_names() {
    for options in [&[] as &[&str], &["-static"]] {
        let target = Target::start(options);
        let roots = target.roots();
        let found = holders(&target, &roots, target.address("thread_local"));
        let expected = "thread worker-3: target: of_thread + 0x10";
        assert!(found.contains(&expected.into()), "{options:?}: {found:?}");
    }
}

#[test]
fn stacks_are_named_by_their_functions() {
    let target = Target::start(&[]);
    let roots = target.roots();
    let found = holders(&target, &roots, target.address("stack"));
    let is_serve = |place: &String| place.starts_with("thread worker-3: stack of serve(");
    assert!(found.iter().any(is_serve), "{found:?}");
}

/// glibc keeps such a stack for the next thread.
#[test]
fn the_stack_of_an_ended_thread_is_no_root() {
    let target = Target::start(&[]);
    let address = target.address("ended");
    let found = holders(&target, &target.roots(), address);
    assert_eq!(found, [""; 0]);
    let is_stale = |mapping: &Mapping| {
        let mut scanner = Scanner::new(target.blocks.bounds());
        let mut stale = false;
        let top = mapping.end.saturating_sub(64 << 10).max(mapping.start);
        scanner.scan(&target.memory, top..mapping.end, |_, value| {
            stale |= value == address;
        });
        stale && mapping.path.is_none()
    };
    assert!(target.mappings.iter().any(is_stale), "nothing to find");
}

#[test]
fn registers_hold_blocks() {
    let target = Target::start(&[]);
    let roots = target.roots();
    let found = holders(&target, &roots, target.address("register"));
    let register = if cfg!(target_arch = "aarch64") {
        "x19"
    } else {
        "rbx"
    };
    let beginning = format!("thread spinner: register {register} of spinner(");
    let is_held = |place: &String| place.starts_with(&beginning);
    assert!(found.iter().any(is_held), "{found:?}");
}

#[test]
fn a_register_in_the_c_library_is_named_with_the_caller() {
    let target = Target::start(&[]);
    let roots = target.roots();
    let mut named = roots
        .registers()
        .map(|register| roots.describe_register(&target.memory, &target.modules, &register));
    let is_of_serve = |name: String| {
        name.starts_with("thread worker-3: register ") && name.contains(", called by serve(")
    };
    assert!(named.any(is_of_serve));
}

#[test]
fn freed_memory_is_not_a_root() {
    let target = Target::start(&[]);
    let roots = target.roots();
    for range in roots.ranges(&target.blocks) {
        for &address in target.addresses["freed_small"]
            .iter()
            .chain(&target.addresses["freed_large"])
        {
            assert!(!(range.start..range.end).contains(&address), "{range:x?}");
        }
    }
}

#[test]
fn the_lists_of_freed_memory_of_a_thread_are_known() {
    let target = Target::start(&[]);
    // The first chunk of the heap.
    let heap = maps::heap(&target.mappings).unwrap();
    let size = (target.memory.word(heap.start + 8).unwrap() & !0xf) - 8;
    let start = heap.start + 16;
    let mut builder = Builder::default();
    builder.add(Block { start, size }, Origin::Recorded);
    let blocks = builder.finish();
    let pid = target.program.pid();
    let native = Native {
        roots: Roots::new(
            pid,
            &Threads::Running(pid),
            &target.memory,
            &target.mappings,
            &target.modules,
            &blocks,
            &[],
        ),
        modules: Modules::new(pid, &target.mappings),
        types: Types::new(),
        blocks,
        note: None,
    };
    assert_eq!(native.caches(&target.memory), [0]);
    assert!(native.roots.has_stack(&(heap.end..u64::MAX)));
    assert!(!native.roots.has_stack(&heap));
}
