//! What grows beside a process that does not.

use super::*;

fn beside(machine: &SystemSeries) -> Diagnosis {
    with(machine, &|_| heap(3.0, 20.0))
}

/// The same of another process.
fn with(machine: &SystemSeries, at: &dyn Fn(f64) -> Moment) -> Diagnosis {
    let (_folder, recording) = record(&Course {
        origin: Origin::Launched,
        n: 100,
        ends: false,
        lost: 0,
        heap: true,
        at,
    });
    diagnose(&recording, machine, &Suppressions::default()).unwrap()
}

fn series(at: impl Fn(f64) -> f64) -> Vec<f64> {
    (0..100).map(|t| at(f64::from(t))).collect()
}

/// Each grows by so many MiB a second.
fn machine(kernel: f64, shared: f64, stalled: f64) -> SystemSeries {
    SystemSeries {
        times: series(|t| t),
        total: 16.0 * 1024.0 * MIB,
        kernel: series(|t| (500.0 + kernel * t) * MIB),
        shared: series(|t| (50.0 + shared * t) * MIB),
        stalled: series(|t| stalled * t),
        swapped_out: series(|t| stalled * t * MIB),
    }
}

#[test]
fn a_flat_process_is_judged_by_the_machine() {
    let mentions_shared = |found: &Diagnosis| {
        let mut evidence = found.verdicts[0].evidence.iter();
        evidence.any(|of| of.kind.name == SHARED_MEANWHILE)
    };
    let quiet = beside(&machine(0.0, 0.0, 0.0));
    expect(&quiet, Class::None);
    assert!(!mentions_shared(&quiet), "{quiet:#?}");
    expect(&beside(&machine(3.0, 0.0, 0.0)), Class::Kernel);
    expect(&beside(&machine(0.0, 3.0, 0.0)), Class::MachineShmem);
    // Less than a hundredth of its memory.
    let little = beside(&machine(1.0, 1.0, 0.0));
    expect(&little, Class::None);
    assert!(mentions_shared(&little), "{little:#?}");
    expect(&beside(&machine(0.0, 0.0, 0.3)), Class::Pressure);
}

#[test]
fn what_maps_as_much_as_shared_memory_grows_is_named() {
    let of = |layer, shared| {
        let found = with(&machine(0.0, shared, 0.0), &|t| {
            let is_mapped = t % 2.0 < 1.0;
            let mapped = if is_mapped { 2.0 } else { 0.0 };
            let site = (layer, "send", false, mapped * MIB, u64::from(is_mapped));
            Moment {
                sites: vec![site],
                ..heap(3.0, 20.0)
            }
        });
        found.accounts[0].named.maps_shared.map(|(_, rate)| rate)
    };
    let rate = of(Layer::Vm, 1.0).unwrap_or(0.0);
    assert!((rate - MIB).abs() < 0.1 * MIB, "{rate}");
    assert_eq!(of(Layer::Vm, 2.0), None, "another rate");
    assert_eq!(of(Layer::Vm, 0.0), None, "nothing grows");
    assert_eq!(of(HEAP, 1.0), None);
}

#[test]
fn an_uneven_rise_is_no_growth_but_is_mentioned() {
    let mentions = |found: &Diagnosis| {
        let mut evidence = found.verdicts[0].evidence.iter();
        evidence.any(|of| of.kind.name == UNEVEN_RISE)
    };
    let rises = |slope: f64| {
        let swings = |t: f64| 3.0 * (t / 3.0).sin() + 5.0 * (t / 11.0).cos();
        of(&|t| heap(3.0, 300.0 + slope * t + swings(t)))
    };
    let found = rises(0.06);
    expect(&found, Class::None);
    assert!(mentions(&found), "{found:#?}");
    assert_eq!(found.verdicts[0].grade, Grade::C);
    let flat = rises(0.0);
    expect(&flat, Class::None);
    assert!(!mentions(&flat), "{flat:#?}");
}

#[test]
fn that_tracing_slows_a_busy_program_down_is_mentioned() {
    let mentions = |blocks: u64| {
        let found = of(&|t| {
            let is_live = t % 2.0 < 1.0;
            let parse = (HEAP, "parse", false, 0.0, if is_live { blocks } else { 0 });
            Moment {
                sites: vec![parse],
                ..heap(3.0, 20.0)
            }
        });
        expect(&found, Class::None);
        let mut evidence = found.verdicts[0].evidence.iter();
        evidence.any(|of| of.kind.name == SLOWED_DOWN)
    };
    // Half as many a second.
    assert!(mentions(120_000));
    assert!(!mentions(80_000));
}

#[test]
fn what_starts_the_children_that_become_more_is_named() {
    let starts = |others: u64| {
        let found = attached(&|t| {
            let jobs = t as u64 / 2;
            let started = |name, blocks| (HEAP, name, false, 10.0 * blocks as f64, blocks);
            let moment = heap(3.0, 20.0);
            Moment {
                sites: vec![
                    started("posix_spawn;python:start_job", jobs),
                    started("posix_spawn;python:restart", jobs * others),
                    started("parse", 2 * jobs),
                ],
                memory: MemorySample {
                    children: Some(jobs),
                    ..moment.memory
                },
                ..moment
            }
        });
        expect(&found, Class::ProcessLeak);
        let site = found.accounts[0].named.starts_processes?;
        let stack = found.stacks.get(site.stack);
        stack.frames().nth(1)?.function.clone()
    };
    assert_eq!(starts(0).as_deref(), Some("start_job"));
    assert_eq!(starts(9).as_deref(), Some("restart"));
    assert_eq!(starts(1), None, "either may be the one");
}
