//! Blocks that keep what is around them, and what keeps them.

use super::*;

/// Of 1.1 MiB/s live blocks have 0.1; `grow` has the leak, `work` is always the same.
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
        held_open: vec![(holder, t)],
        ..Moment::default()
    })
}

#[test]
fn few_blocks_that_hold_holes_open_are_the_cause() {
    let found = amplified(|t| 0.1 * t, "grow");
    expect(&found, Class::Leak);
    assert_eq!(found.verdicts[0].grade, Grade::B);
    let rows = &found.accounts[0].accounts[0].rows;
    let held = rows
        .iter()
        .find(|(term, _)| matches!(term, Term::HeldOpen(_)));
    assert!(
        held.is_some_and(|(_, bytes)| *bytes > 60.0 * MIB),
        "{rows:?}"
    );
}

#[test]
fn blocks_too_small_to_be_looked_at_are_found_by_what_they_hold_open() {
    let found = amplified(|t| 0.0002 * t, "grow");
    expect(&found, Class::Leak);
    assert!(matches!(found.verdicts[1].scope, Scope::Site(_)));
}

#[test]
fn holes_around_blocks_that_are_always_there_are_retention() {
    expect(&amplified(|_| 1.0, "work"), Class::Retention);
    expect(&amplified(|_| 1.0, "grow"), Class::Retention);
    // Somebody leaks, but not where the holes are.
    let found = amplified(|t| 0.1 * t, "work");
    assert_ne!(found.verdicts[0].class, Class::Leak);
}

/// What keeps the blocks of `grow`, a KiB each, beside a vector with room for `capacity` elements by the time.
fn kept_beside_a_vector(capacity: fn(f64) -> f64) -> Option<KeptBy> {
    const VECTOR: &str = "void std::vector<int*>::_M_realloc_insert<int*>(int*)";
    let found = of(&|t| Moment {
        memory: resident(20.0 + t, 2.0, 0.0),
        sites: vec![
            site(HEAP, "grow", t),
            (HEAP, VECTOR, false, 8.0 * 1024.0 * capacity(t), 1),
        ],
        ..Moment::default()
    });
    expect(&found, Class::Leak);
    let mut sites = found.verdicts.into_iter();
    let grow = sites.find(|verdict| match verdict.scope {
        Scope::Site(key) => key.stack.0 == 1,
        Scope::Process => false,
    });
    grow.unwrap().kept_by
}

#[test]
fn a_container_that_grows_with_a_leak_probably_keeps_it() {
    let kept = kept_beside_a_vector(|t| t).unwrap();
    assert_eq!(kept.container, "std::vector");
    assert_eq!(kept.line.function.as_deref(), Some("main"));
}

#[test]
fn a_container_that_grows_otherwise_keeps_nothing() {
    for capacity in [|_| 100.0, |t: f64| t.min(5.0), |t| 0.1 * t, |t| 9.0 * t] {
        assert_eq!(kept_beside_a_vector(capacity), None);
    }
}
