//! Memory from before the recording.

use super::*;
use crate::recording::{
    Holders, WayKind,
    fixture::{heap_site, history, holders},
};

/// A ring of 40 blocks of 16 KiB a second; `freed`: blocks from before that were freed, a second.
fn ring(resident_mib: &dyn Fn(f64) -> f64, freed: f64) -> Diagnosis {
    kept_ring(resident_mib, freed, &[])
}

/// The same with these holders.
fn kept_ring(resident_mib: &dyn Fn(f64) -> f64, freed: f64, kept: &[Holders]) -> Diagnosis {
    attached(&|t| Moment {
        memory: resident(resident_mib(t), 2.0, 0.0),
        sites: vec![(HEAP, "push", false, t * 40.0 * 16384.0, (t * 40.0) as u64)],
        unknown_frees: (t * freed) as u64,
        holders: kept.to_vec(),
        ..Moment::default()
    })
}

#[test]
fn blocks_that_take_the_place_of_older_ones_are_no_leak() {
    let full = ring(&|_| 90.0, 40.0);
    expect(&full, Class::None);
    let of_site = &full.verdicts[1];
    assert_eq!(of_site.class, Class::Undetermined);
    assert_eq!(of_site.evidence[1].kind.name, "blocks_replace_older_ones");
    // They use memory that was free: nothing else was freed.
    expect(&ring(&|_| 90.0, 1.0), Class::Leak);
    // Others were freed, but these come on top.
    expect(&ring(&|t| 90.0 + t * 0.625, 40.0), Class::Leak);
}

#[test]
fn blocks_whose_container_grows_with_them_take_no_place() {
    // Half of each block is not written to.
    let kept = |growth: f64, limit| {
        let mut path = history(None);
        (path.steps[2].growth_per_s, path.steps[2].limit) = (Some(growth), limit);
        let held = holders(heap_site(1), 64, vec![(64, WayKind::Path(path))]);
        let found = kept_ring(&|t| 90.0 + t * 0.25, 40.0, &[held]);
        found.verdicts[1].class
    };
    assert_eq!(kept(38.0, None), Class::Leak);
    assert_eq!(kept(0.5, None), Class::Undetermined);
    assert_eq!(kept(38.0, Some(4096)), Class::Undetermined);
}

#[test]
fn older_memory_is_not_retained() {
    let given_back = |older: f64, resident_mib: &dyn Fn(f64) -> f64| {
        attached(&|t| {
            let buffer = if (20.0..30.0).contains(&t) {
                400.0
            } else {
                1.0
            };
            Moment {
                memory: resident(older + resident_mib(buffer), 2.0, 0.0),
                sites: vec![site(HEAP, "buffer", buffer)],
                ..Moment::default()
            }
        })
    };
    expect(&given_back(200.0, &|buffer| buffer), Class::None);
    let kept = attached(&|t| {
        let buffer = if (20.0..30.0).contains(&t) {
            400.0
        } else {
            1.0
        };
        let resident_mib = if t < 20.0 { 201.0 } else { 600.0 };
        Moment {
            memory: resident(resident_mib, 2.0, 0.0),
            sites: vec![site(HEAP, "buffer", buffer)],
            ..Moment::default()
        }
    });
    expect(&kept, Class::Retention);
}

/// A queue that gets 10 MiB a second and gives back 6: at first blocks from before the recording, later more and more of
/// its own.
fn queue(resident_mib: &dyn Fn(f64, f64) -> f64) -> Diagnosis {
    attached(&|t| {
        let own = 6.0 * t * t / 200.0;
        Moment {
            memory: resident(resident_mib(t, own), 2.0, 0.0),
            sites: vec![site(HEAP, "push", 10.0 * t - own)],
            unknown_frees: ((6.0 * t - own) * 1024.0) as u64,
            ..Moment::default()
        }
    })
}

#[test]
fn a_queue_that_is_filled_faster_than_emptied_is_a_leak() {
    let found = queue(&|t, _| 700.0 + 4.0 * t);
    expect(&found, Class::Leak);
    assert_eq!(found.verdicts[0].grade, Grade::C);
    // Without a straight line, it is not known to go on.
    expect(
        &queue(&|t, own| 700.0 + 10.0 * t - own),
        Class::Undetermined,
    );
}

/// A site that gets 2 MiB in a second, and frees blocks in the next until `live` MiB are left.
fn emptied(freed: Freed, live: &dyn Fn(f64) -> f64) -> Diagnosis {
    of(&|t| {
        let (pairs, rest) = ((t / 2.0).floor(), t % 2.0);
        let live = live(pairs) + 2.0 * rest;
        Moment {
            memory: resident(100.0 + live, 2.0, 0.0),
            sites: vec![site(HEAP, "push", live)],
            freed,
            ..Moment::default()
        }
    })
}

#[test]
fn a_queue_that_is_recorded_from_its_beginning_on_is_a_leak_too() {
    let found = emptied(Freed::Oldest, &|pairs| pairs);
    expect(&found, Class::Leak);
    let of_site = &found.verdicts[1];
    assert_eq!(of_site.grade, Grade::C);
    let mut evidence = of_site.evidence.iter();
    assert!(evidence.any(|of| of.kind.name == "steady_backlog"));
    // It was emptied once: that may happen again.
    let once = |pairs: f64| pairs - if pairs > 35.0 { 6.0 } else { 0.0 };
    expect(&emptied(Freed::Oldest, &once), Class::Undetermined);
}

/// A table whose entries replace each other at random: it will be full.
#[test]
fn a_table_that_still_fills_is_no_queue() {
    let full = 198.0;
    let table = |pairs: f64| full * (1.0 - 0.99_f64.powf(pairs));
    expect(&emptied(Freed::Any, &table), Class::Undetermined);
}

#[test]
fn a_queue_whose_container_grows_is_a_leak_however_its_blocks_come_and_go() {
    // Its load comes and goes, and each block goes sooner or later.
    let kept = |growth: f64, rate: f64| {
        let mut path = history(None);
        path.steps[2].growth_per_s = Some(growth);
        let held = holders(heap_site(1), 64, vec![(64, WayKind::Path(path))]);
        let found = of(&|t| {
            let blocks = 1000.0 + 10.0 * t + 60.0 * f64::from((t as u32 / 12) % 2);
            Moment {
                memory: resident(90.0 + rate * t, 2.0, 0.0),
                sites: vec![(HEAP, "push", false, blocks * 16384.0, blocks as u64)],
                freed: Freed::Oldest,
                holders: vec![held.clone()],
                ..Moment::default()
            }
        });
        found.verdicts[0].class
    };
    assert_eq!(kept(10.0, 0.16), Class::Leak);
    assert_ne!(kept(0.0, 0.16), Class::Leak);
    // It is a small part of what grows.
    assert_ne!(kept(10.0, 2.0), Class::Leak);
}
