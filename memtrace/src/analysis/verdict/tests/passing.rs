//! Workers that end and are replaced.

use super::*;
use crate::recording::fixture::heap_site;

/// A worker that ends after 100 s beside these others, and grows by the memory at a site and by memory of unknown use.
fn worker(siblings: &[(u64, Option<(u64, u32)>)], at_site: f64, unknown: f64) -> Diagnosis {
    judged(&Course {
        origin: Origin::Child,
        n: 100,
        ends: true,
        lost: 0,
        heap: true,
        at: &|t| Moment {
            siblings: siblings.to_vec(),
            ..heap(at_site * t, 20.0 + (at_site + unknown) * t)
        },
    })
}

/// Two workers at a time, which end with this status.
fn replaced(status: u32) -> [(u64, Option<(u64, u32)>); 4] {
    let ends = |at| Some((at, status));
    [(0, ends(40)), (41, ends(90)), (100, None), (100, None)]
}

#[test]
fn what_a_worker_holds_goes_with_it() {
    let found = worker(&replaced(0), 0.0, 1.0);
    expect(&found, Class::None);
    let evidence = &found.verdicts[0].evidence[0];
    assert_eq!(evidence.kind.name, "comes_and_goes");
    assert_eq!(evidence.amount("ended"), Some(&Amount::Count(3.0)));
    assert_eq!(found.accounts[0].replaced, Some(3));
    // Those that run have hardly begun.
    assert_eq!(found.too_short, 2);
}

#[test]
fn a_line_that_leaks_is_one_to_mend_however_often_its_worker_is_replaced() {
    let found = worker(&replaced(0), 1.0, 0.0);
    expect(&found, Class::Leak);
    assert_eq!(found.accounts[0].replaced, Some(3));
    assert_eq!(found.verdicts[1].scope, Scope::Site(heap_site(2)));
}

#[test]
fn a_worker_that_is_started_again_after_a_crash_is_judged() {
    let crashed = worker(&replaced(11), 0.0, 1.0);
    expect(&crashed, Class::Undetermined);
    assert_eq!(crashed.accounts[0].replaced, None);
}

#[test]
fn workers_that_end_with_the_program_are_judged() {
    let all_end = [(0, Some((100, 0))), (1, Some((100, 0)))];
    expect(&worker(&all_end, 0.0, 1.0), Class::Undetermined);
}
