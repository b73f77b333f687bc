//! Devices that run out of memory, or on which much memory is kept unused.

use super::*;
use crate::ledger::{CacheTotals, DeviceTotals};

const BYTES_OF_MIB: u64 = 1 << 20;

/// State of a caching allocator, MiB.
fn cache(allocated: u64, reserved: u64) -> DeviceTotals {
    DeviceTotals {
        cache: Some(CacheTotals {
            allocated: allocated * BYTES_OF_MIB,
            peak_allocated: allocated * BYTES_OF_MIB,
            reserved: Some(reserved * BYTES_OF_MIB),
            peak_reserved: Some(reserved * BYTES_OF_MIB),
            largest_free: None,
        }),
        runtime: reserved * BYTES_OF_MIB,
        runtime_by_cache: reserved * BYTES_OF_MIB,
        ..DeviceTotals::default()
    }
}

/// A process that fails to allocate 700 MiB near its end, when it has `held`.
fn refused(n: u64, origin: Origin, held: DeviceTotals) -> Diagnosis {
    judged(&Course {
        origin,
        n,
        ends: false,
        lost: 0,
        heap: true,
        at: &|t| {
            let asks = t == n as f64 - 1.0;
            let failure = (Layer::TorchCuda, "tensor", 700 * BYTES_OF_MIB, held);
            Moment {
                device: Some(held),
                failures: if asks { vec![failure] } else { vec![] },
                sites: vec![
                    site(Layer::TorchCuda, "tensor", 60.0),
                    site(Layer::TorchCuda, "model", 40.0),
                ],
                ..heap(5.0, 50.0)
            }
        },
    })
}

fn kinds(verdict: &Verdict) -> Vec<&'static str> {
    verdict.evidence.iter().map(|of| of.kind.name).collect()
}

#[test]
fn fragmentation_is_distinguished_from_a_full_device() {
    for (allocated, reserved, kind, grade) in [
        (100, 900, "fragmented", Grade::B),
        (100, 390, "mostly_unused", Grade::C),
        (360, 610, "mostly_unused", Grade::C),
        (900, 1000, "device_likely_full", Grade::C),
    ] {
        let found = refused(100, Origin::Launched, cache(allocated, reserved));
        expect(&found, Class::GpuOutOfMemory);
        let verdict = &found.verdicts[0];
        assert_eq!(verdict.grade, grade, "{kind}");
        assert!(kinds(verdict).contains(&kind), "{verdict:#?}");
        let next = &verdict.next;
        let of_pieces = |advice: &Advice| matches!(advice, Advice::AgainstFragmentation(_));
        let is_full = kind == "device_likely_full";
        assert_eq!(next.iter().any(of_pieces), !is_full, "{next:?}");
        assert_eq!(
            next.contains(&Advice::FreeDeviceMemory),
            is_full,
            "{next:?}"
        );
    }
}

/// The process has 300 MiB and asks for 700 MiB more.
#[test]
fn the_capacity_of_the_device_decides() {
    for (capacity, allocated, kind) in [
        (600, 290, "larger_than_device"),
        (900, 290, "device_full"),
        (900, 150, "mostly_unused"),
        (1100, 290, "held_by_others"),
    ] {
        let held = cache(allocated, 300);
        let found = of(&|t| Moment {
            device: Some(held),
            capacity: Some(capacity),
            failures: match t {
                50.0 => vec![(Layer::TorchCuda, "tensor", 700 * BYTES_OF_MIB, held)],
                _ => vec![],
            },
            ..heap(5.0, 50.0)
        });
        expect(&found, Class::GpuOutOfMemory);
        let kinds = kinds(&found.verdicts[0]);
        assert!(kinds.contains(&kind), "{capacity}: {kinds:?}");
    }
}

#[test]
fn the_line_that_asked_and_the_largest_holders_are_named() {
    let found = refused(100, Origin::Launched, cache(900, 1000));
    let verdict = &found.verdicts[0];
    let asked = &verdict.evidence[0];
    assert_eq!(asked.amount("requested"), Some(&Amount::Bytes(700.0 * MIB)));
    assert_eq!(asked.amount("line"), Some(&Amount::Text("tensor".into())));
    assert_eq!(asked.amount("time"), Some(&Amount::Seconds(99.0)));
    let held = verdict.evidence.iter();
    let held: Vec<_> = held
        .filter(|of| of.kind.name == "out_of_memory_holder")
        .map(|of| (of.amount("line").unwrap(), of.amount("bytes").unwrap()))
        .collect();
    let line = |name: &str| Amount::Text(name.into());
    let expected = [
        (&line("tensor"), &Amount::Bytes(60.0 * MIB)),
        (&line("model"), &Amount::Bytes(40.0 * MIB)),
    ];
    assert_eq!(held, expected);
}

#[test]
fn an_event_needs_no_statistics() {
    let short = refused(3, Origin::Launched, cache(900, 1000));
    expect(&short, Class::GpuOutOfMemory);
    assert_eq!(short.verdicts[1].class, Class::Undetermined);
    let child = refused(3, Origin::Child, cache(900, 1000));
    expect(&child, Class::GpuOutOfMemory);
    assert_eq!(child.verdicts[1].class, Class::Undetermined);
}

#[test]
fn without_a_caching_allocator_the_known_figures_are_reported() {
    let held = DeviceTotals {
        runtime: 300 * BYTES_OF_MIB,
        ..DeviceTotals::default()
    };
    let found = refused(100, Origin::Launched, held);
    expect(&found, Class::GpuOutOfMemory);
    let verdict = &found.verdicts[0];
    assert_eq!(verdict.grade, Grade::C);
    let kinds = kinds(verdict);
    assert!(kinds.contains(&"out_of_memory_known"), "{kinds:?}");
}

/// A process with this many MiB in use on its device over time, and its allocator's reserve.
fn used(at: &dyn Fn(f64) -> (u64, u64)) -> Diagnosis {
    of(&|t| {
        let (allocated, reserved) = at(t);
        Moment {
            device: Some(cache(allocated, reserved)),
            ..heap(5.0, 50.0)
        }
    })
}

fn classes(found: &Diagnosis) -> Vec<Class> {
    found.verdicts.iter().map(|verdict| verdict.class).collect()
}

#[test]
fn memory_kept_after_deleting_a_model_is_a_state() {
    let deleted = used(&|t| (if t < 30.0 { 2048 } else { 0 }, 2048));
    assert_eq!(classes(&deleted), [Class::GpuUnused, Class::None]);
    expect(&deleted, Class::GpuUnused);
    assert_eq!(deleted.verdicts[0].grade, Grade::B);
    // The program continues with less: short peaks are not seen.
    let goes_on = of(&|t| {
        let (allocated, blocks) = (if t < 30.0 { 2048 } else { 10 }, t as u64);
        Moment {
            device: Some(cache(allocated, 2048)),
            sites: vec![(Layer::TorchCuda, "step", false, MIB, blocks)],
            ..heap(5.0, 50.0)
        }
    });
    assert_eq!(goes_on.verdicts[0].class, Class::GpuUnused);
    assert_eq!(goes_on.verdicts[0].grade, Grade::C);
    let next = &deleted.verdicts[0].next;
    assert!(matches!(next[0], Advice::GiveUnusedBack(_)), "{next:?}");
    // Given back, in use again, little, or freed this moment.
    let none = [Class::None];
    let emptied = used(&|t| if t < 30.0 { (2048, 2048) } else { (0, 0) });
    assert_eq!(classes(&emptied), none);
    let epochs = used(&|t| (if t % 20.0 < 10.0 { 2048 } else { 0 }, 2048));
    assert_eq!(classes(&epochs), none);
    let little = used(&|t| (if t < 30.0 { 40 } else { 0 }, 40));
    assert_eq!(classes(&little), none);
    let now = used(&|t| (if t < 95.0 { 2048 } else { 0 }, 2048));
    assert_eq!(classes(&now), none);
    // In use, with a reserve for the peaks.
    let trains = used(&|_| (100, 2048));
    assert_eq!(classes(&trains), none);
}

#[test]
fn a_leak_is_not_a_state() {
    let found = used(&|t| {
        let fell = if t < 10.0 { 4000 } else { 0 };
        (fell + 10 * t as u64, 4096)
    });
    assert!(!classes(&found).contains(&Class::GpuUnused), "{found:#?}");
}
