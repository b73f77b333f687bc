//! Blocks that keep the memory around them, and the holders of blocks.

use super::*;
use crate::recording::{
    Holders, WayKind,
    fixture::{heap_site, history, holders},
};

/// Of 1.1 MiB/s, live blocks account for 0.1; `grow` has the leak, `work` is constant.
fn amplified(grown: fn(f64) -> f64, holder: &'static str) -> Diagnosis {
    of(&|t| Moment {
        memory: resident(20.0 + 1.1 * t, 2.0, 0.0),
        sites: vec![
            site(HEAP, "work", 5.0),
            (
                HEAP,
                "grow",
                false,
                grown(t) * MIB,
                (5000.0 * grown(t)) as u64,
            ),
            (Layer::Vm, "brk", true, (20.0 + 1.1 * t) * MIB, 1),
        ],
        holes: vec![(holder, t)],
        ..Moment::default()
    })
}

#[test]
fn few_blocks_that_hold_holes_open_are_the_cause() {
    let found = amplified(|t| 0.1 * t, "grow");
    expect(&found, Class::Leak);
    assert_eq!(found.verdicts[0].grade, Grade::B);
    let rows = &found.accounts[0].accounts[0].rows;
    let held = rows.iter().find(|(term, _)| matches!(term, Term::Holes(_)));
    assert!(
        held.is_some_and(|(_, bytes)| *bytes > 60.0 * MIB),
        "{rows:?}"
    );
}

#[test]
fn small_blocks_are_judged_by_the_memory_they_hold_open() {
    let found = amplified(|t| 0.0002 * t, "grow");
    expect(&found, Class::Leak);
    assert!(matches!(found.verdicts[1].scope, Scope::Site(_)));
}

#[test]
fn holes_around_blocks_that_are_always_there_are_retention() {
    expect(&amplified(|_| 1.0, "work"), Class::Retention);
    expect(&amplified(|_| 1.0, "grow"), Class::Retention);
    // Another site leaks, but not where the holes are.
    let found = amplified(|t| 0.1 * t, "work");
    assert_ne!(found.verdicts[0].class, Class::Leak);
}

const VECTOR: &str = "void std::vector<int*, A>::_M_realloc_insert<int*>(int*)";

/// The holder of the blocks of `grow`, a KiB each, beside a container's buffer of this many KiB
/// over time.
fn kept_beside(container: &'static str, origin: Origin, buffer: fn(f64) -> f64) -> Option<Keeper> {
    let at = |t: f64| Moment {
        memory: resident(20.0 + t, 2.0, 0.0),
        sites: vec![
            site(HEAP, "grow", t),
            (HEAP, container, false, 1024.0 * buffer(t), 1),
        ],
        ..Moment::default()
    };
    let found = judged(&Course {
        origin,
        n: 100,
        ends: false,
        lost: 0,
        heap: true,
        at: &at,
    });
    expect(&found, Class::Leak);
    kept(found)
}

/// The function that fills the container.
fn function(kept: &Keeper) -> Option<&str> {
    kept.line.as_ref()?.function.as_deref()
}

/// The holder of the blocks of the first site.
fn kept(found: Diagnosis) -> Option<Keeper> {
    let mut sites = found.verdicts.into_iter();
    let grow = sites.find(|verdict| match verdict.scope {
        Scope::Site(key) => key.stack.0 == 1,
        Scope::Process => false,
    });
    let grow = grow.unwrap();
    let asks = grow.next.contains(&Advice::FindKeeper);
    assert!(!asks || grow.keeper.is_none(), "{:?}", grow.next);
    grow.keeper
}

#[test]
fn a_container_that_grows_with_a_leak_probably_keeps_it() {
    let kept = kept_beside(VECTOR, Origin::Launched, |t| 8.0 * t).unwrap();
    assert_eq!(kept.how, How::Container("std::vector"));
    assert_eq!(function(&kept), Some("main"));
}

#[test]
fn a_container_that_grows_otherwise_keeps_nothing() {
    for buffer in [
        |_| 800.0,
        |t: f64| 8.0 * t.min(5.0),
        |t| 0.8 * t,
        |t| 72.0 * t,
    ] {
        assert_eq!(kept_beside(VECTOR, Origin::Launched, buffer), None);
    }
}

#[test]
fn many_containers_are_no_keeper() {
    let beside = |vectors: fn(f64) -> u64| {
        kept(of(&|t| Moment {
            memory: resident(20.0 + t, 2.0, 0.0),
            sites: vec![
                site(HEAP, "grow", t),
                (HEAP, VECTOR, false, 8192.0 * t, vectors(t)),
            ],
            ..Moment::default()
        }))
    };
    assert!(beside(|_| 1).is_some());
    assert_eq!(beside(|t| (100.0 * t) as u64), None);
}

#[test]
fn an_element_of_unknown_size_may_be_large() {
    const VEC: &str = "alloc::raw_vec::RawVec<T,A>::grow_one";
    for buffer in [|t| 24.0 * t, |t| 72.0 * t] {
        let kept = kept_beside(VEC, Origin::Launched, buffer);
        assert_eq!(kept.map(|of| of.how), Some(How::Container("Vec")));
    }
    for buffer in [|t| 1.0 * t, |t| 250.0 * t] {
        assert_eq!(kept_beside(VEC, Origin::Launched, buffer), None);
    }
}

#[test]
fn an_older_container_that_grew_once_may_keep_the_blocks() {
    let once: fn(f64) -> f64 = |t| if t < 60.0 { 0.0 } else { 1600.0 };
    let kept = kept_beside(VECTOR, Origin::Attached, once);
    assert_eq!(kept.map(|of| of.how), Some(How::Container("std::vector")));
    let small: fn(f64) -> f64 = |t| if t < 60.0 { 0.0 } else { 100.0 };
    let at_the_start: fn(f64) -> f64 = |_| 1600.0;
    for buffer in [small, at_the_start] {
        assert_eq!(kept_beside(VECTOR, Origin::Attached, buffer), None);
    }
}

/// The holder of the blocks of `grow`, a KiB each, beside vectors that another thread fills with
/// their addresses.
fn kept_by_another_thread(vectors: &'static [&'static str]) -> Option<Keeper> {
    kept(of(&|t| {
        let buffers = vectors
            .iter()
            .map(|name| (HEAP, *name, false, 8192.0 * t, 1));
        Moment {
            memory: resident(20.0 + t, 2.0, 0.0),
            sites: [site(HEAP, "grow", t)].into_iter().chain(buffers).collect(),
            ..Moment::default()
        }
    }))
}

#[test]
fn another_thread_keeps_the_blocks_only_if_nothing_else_can() {
    const KEEP: &str = "std::vector<int*, A>::_M_realloc_insert;keep;worker";
    const OTHER: &str = "std::vector<int*, A>::_M_realloc_insert;other;worker";
    const UNKNOWN: &str = "alloc::raw_vec::RawVec<T,A>::grow_one;keep;worker";
    let kept = kept_by_another_thread(&[KEEP]).unwrap();
    assert_eq!(function(&kept), Some("keep"));
    assert_eq!(kept_by_another_thread(&[KEEP, OTHER]), None);
    assert_eq!(kept_by_another_thread(&[UNKNOWN]), None);
}

/// Python arenas grow by a MiB/s, beside a vector that grows by this many bytes per byte of them.
fn kept_in_arenas(buffer: f64) -> Option<Keeper> {
    kept(of(&|t| Moment {
        memory: resident(20.0 + t, 2.0, 0.0),
        sites: vec![
            (Layer::Python, "grow", false, t.floor() * MIB, t as u64),
            (HEAP, VECTOR, false, buffer * t * MIB, 1),
        ],
        ..Moment::default()
    }))
}

#[test]
fn a_container_of_objects_in_arenas_grows_with_the_arenas() {
    let kept = kept_in_arenas(8.0 / 100.0);
    assert_eq!(kept.map(|of| of.how), Some(How::Container("std::vector")));
    assert_eq!(kept_in_arenas(8.0 / 4096.0), None);
    assert_eq!(kept_in_arenas(1.0), None);
}

#[test]
fn the_buffer_of_the_container_has_no_verdict_of_its_own() {
    let classes = |name: &'static str| {
        let found = of(&|t| Moment {
            memory: resident(20.0 + t, 2.0, 0.0),
            sites: vec![
                site(HEAP, "grow", t),
                (
                    HEAP,
                    name,
                    false,
                    8192.0 * 90.0 * (1.0 - f64::exp(-t / 25.0)),
                    1,
                ),
            ],
            ..Moment::default()
        });
        let sites = &found.verdicts[1..];
        sites.iter().map(|site| site.class).collect::<Vec<_>>()
    };
    assert_eq!(classes("buffer"), [Class::Leak, Class::Cache]);
    assert_eq!(classes(VECTOR), [Class::Leak]);
}

/// A block that is enlarged once, after 30 s, in a process that grows by this many MiB a second.
fn enlarged(name: &'static str, rate: f64, holders: &[Holders]) -> Diagnosis {
    of(&|t| Moment {
        memory: resident(20.0 + rate * t, 2.0, 0.0),
        sites: vec![
            site(HEAP, "work", 1.0),
            (HEAP, name, false, if t < 30.0 { 4.0 } else { 8.0 } * MIB, 1),
        ],
        holders: holders.to_vec(),
        ..Moment::default()
    })
}

#[test]
fn the_table_of_a_container_fills_as_the_container_does() {
    let kept = |growth: f64| {
        let mut path = history(None);
        path.steps[2].growth_per_s = Some(growth);
        enlarged(
            "table",
            0.05,
            &[holders(heap_site(2), 1, vec![(1, WayKind::Path(path))])],
        )
    };
    let filled = kept(20.0);
    expect(&filled, Class::Leak);
    assert_eq!(filled.verdicts[1].evidence[0].kind.name, "table_fills");
    assert_ne!(kept(0.5).verdicts[0].class, Class::Leak);
}

#[test]
fn a_string_that_was_enlarged_when_it_was_full_fills_again() {
    let string = "std::__cxx11::basic_string<char, A>::_M_append(char const*, unsigned long)";
    let filled = enlarged(string, 0.04, &[]);
    expect(&filled, Class::Leak);
    assert_eq!(filled.verdicts[0].grade, Grade::C);
    let names = |found: &Diagnosis| {
        let evidence = found.verdicts.iter().flat_map(|of| &of.evidence);
        evidence.map(|of| of.kind.name).collect::<Vec<_>>()
    };
    assert!(names(&filled).contains(&"buffers_enlarged_once"));
    // It has no room for that, and any other block may be used or not.
    assert_ne!(enlarged(string, 0.5, &[]).verdicts[0].class, Class::Leak);
    assert_ne!(enlarged("grow", 0.04, &[]).verdicts[0].class, Class::Leak);
}

/// The allocator has mapped more, for blocks that are not recorded.
#[test]
fn nothing_is_retained_if_the_blocks_are_not_known() {
    let found = |heap| {
        judged(&Course {
            origin: Origin::Launched,
            n: 100,
            ends: false,
            lost: 0,
            heap,
            at: &|t| Moment {
                memory: resident(50.0 + t, 2.0, 0.0),
                sites: vec![(Layer::Vm, "brk", true, (50.0 + t) * MIB, 1)],
                ..Moment::default()
            },
        })
    };
    expect(&found(true), Class::Retention);
    let without = found(false);
    expect(&without, Class::Undetermined);
    assert_eq!(without.verdicts[0].next[0], Advice::RecordHeap);
}
