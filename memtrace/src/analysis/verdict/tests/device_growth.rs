//! Growth of device memory and of page-locked memory over time.

use super::*;

/// Whether there is evidence of a kind with this many MiB.
fn has(evidence: &[Evidence], kind: &str, name: &str, mib: f64) -> bool {
    let mut of_kind = evidence.iter().filter(|of| of.kind.name == kind);
    of_kind.any(|of| of.amount(name) == Some(&Amount::Bytes(mib * MIB)))
}
use crate::{
    event::Device,
    ledger::{CacheTotals, DeviceTotals},
};

/// A device whose allocator grows by this many MiB a second.
fn device(allocated: f64, reserved: f64) -> Diagnosis {
    of(&|t| {
        let bytes = |mib: f64| (mib * MIB) as u64;
        let (allocated, reserved) = (bytes(100.0 + allocated * t), bytes(200.0 + reserved * t));
        let cache = CacheTotals {
            allocated,
            peak_allocated: allocated,
            reserved: Some(reserved),
            peak_reserved: Some(reserved),
            largest_free: Some(7 << 20),
        };
        let totals = DeviceTotals {
            cache: Some(cache),
            runtime: reserved,
            runtime_by_cache: reserved,
            ..DeviceTotals::default()
        };
        let blocks = site(Layer::TorchCuda, "tensor", allocated as f64 / MIB);
        let segments = (Layer::CudaRuntime, "segment", true, reserved as f64, 10);
        Moment {
            sites: vec![blocks, segments],
            device: Some(totals),
            ..heap(5.0, 50.0)
        }
    })
}

/// A process with only a caching allocator's memory on device 0, and a steady heap.
fn of_cache(cache: CacheTotals) -> Moment {
    Moment {
        device: Some(DeviceTotals {
            cache: Some(cache),
            ..DeviceTotals::default()
        }),
        ..heap(5.0, 50.0)
    }
}

#[test]
fn a_gpus_memory_leaks_or_is_only_kept() {
    let leak = device(1.0, 1.0);
    expect(&leak, Class::GpuLeak);
    let classes: Vec<_> = leak.verdicts.iter().map(|verdict| verdict.class).collect();
    assert_eq!(
        classes,
        [Class::GpuLeak, Class::GpuLeak],
        "the blocks' site"
    );
    let kept = device(0.0, 2.0);
    expect(&kept, Class::GpuCache);
    let evidence = &kept.verdicts[0].evidence;
    assert!(
        has(evidence, "device_largest_free", "largest", 7.0),
        "{evidence:?}"
    );
    assert_eq!(
        kept.verdicts.len(),
        1,
        "memory taken by the allocator has no site"
    );
    expect(&device(0.0, 0.0), Class::None);
}

#[test]
fn leaks_of_a_device_and_of_the_process_are_both_reported() {
    let found = of(&|t| Moment {
        device: Some(DeviceTotals {
            driver: (t * MIB) as u64,
            ..DeviceTotals::default()
        }),
        ..heap(t, 50.0 + t)
    });
    let processes = found.verdicts.iter().filter(|v| v.scope == Scope::Process);
    let classes: Vec<_> = processes.map(|verdict| verdict.class).collect();
    assert_eq!(classes, [Class::GpuLeak, Class::Leak]);
}

#[test]
fn unrequested_gpu_memory_is_undetermined() {
    let found = |known: f64, total: f64| {
        of(&|t| Moment {
            device: Some(DeviceTotals {
                driver: ((10.0 + known * t) * MIB) as u64,
                ..DeviceTotals::default()
            }),
            device_usage: Some(300.0 + total * t),
            ..heap(5.0, 50.0)
        })
    };
    let context = found(0.0, 1.0);
    expect(&context, Class::Undetermined);
    assert_eq!(context.verdicts[0].runner_up, Some(Class::GpuLeak));
    let [(term, _)] = rows(&context, Kind::Device(Some(0)))[..] else {
        panic!("{context:#?}");
    };
    assert_eq!(term, "unattributed");
    let leak = found(1.0, 1.0);
    expect(&leak, Class::GpuLeak);
    let [(term, _)] = rows(&leak, Kind::Device(Some(0)))[..] else {
        panic!("{leak:#?}");
    };
    assert_eq!(term, "outstanding");
    expect(&found(0.0, 0.0), Class::None);
}

#[test]
fn a_gpu_that_is_first_used_late_had_nothing_before() {
    let found = of(&|t| Moment {
        device: (t > 40.0).then(|| DeviceTotals {
            driver: (200.0 * MIB) as u64,
            ..DeviceTotals::default()
        }),
        device_usage: (t > 40.0).then_some(500.0),
        ..heap(5.0, 50.0)
    });
    let rows = rows(&found, Kind::Device(Some(0)));
    assert_eq!(rows, [("outstanding", 200), ("unattributed", 300)]);
}

#[test]
fn a_first_reading_that_comes_late_is_not_growth() {
    let found = of(&|t| Moment {
        device: Some(DeviceTotals {
            // It loads a model, long before the first reading, and drops it later.
            driver: (if t < 50.0 { 200.0 } else { 0.0 } * MIB) as u64,
            ..DeviceTotals::default()
        }),
        device_usage: (t > 30.0).then_some(if t < 50.0 { 500.0 } else { 300.0 }),
        ..heap(5.0, 50.0)
    });
    let rows = rows(&found, Kind::Device(Some(0)));
    assert_eq!(rows, [("outstanding", -200)]);
}

/// A tenth is freed in the last seconds, while the driver is left.
#[test]
fn a_leak_on_a_device_that_is_left_slowly_is_a_leak() {
    let found = ended(&|t| {
        let grown = if t < 89.0 { t / 10.0 } else { 0.0 };
        let allocated = ((70.0 + grown) * MIB) as u64;
        let cache = CacheTotals {
            allocated,
            reserved: Some(100 << 20),
            ..CacheTotals::default()
        };
        Moment {
            sites: vec![
                site(Layer::TorchCuda, "model", 70.0),
                site(Layer::TorchCuda, "loss", grown),
            ],
            ..of_cache(cache)
        }
    });
    expect(&found, Class::GpuLeak);
}

/// Blocks of a training step come and go: at some points the total is higher by more than it grows.
#[test]
fn a_blurred_leak_on_a_device_is_that_of_its_sites() {
    let found = of(&|t| {
        let step = if t % 13.0 < 5.0 { 2.0 } else { 0.0 };
        let kept = t / 20.0;
        Moment {
            device: Some(DeviceTotals {
                driver: ((70.0 + step + kept) * MIB) as u64,
                ..DeviceTotals::default()
            }),
            sites: vec![site(Layer::CudaDriver, "loss", kept)],
            ..heap(5.0, 50.0)
        }
    });
    expect(&found, Class::GpuLeak);
    assert_eq!(found.verdicts[0].grade, Grade::C);
}

#[test]
fn the_largest_free_block_is_that_before_the_end() {
    let found = ended(&|t| {
        let held = if t < 100.0 { 50.0 + t } else { 0.0 };
        let cache = CacheTotals {
            reserved: Some((held * MIB) as u64),
            largest_free: Some(if t < 100.0 { 7 << 20 } else { 0 }),
            ..CacheTotals::default()
        };
        of_cache(cache)
    });
    expect(&found, Class::GpuCache);
    let evidence = &found.verdicts[0].evidence;
    assert!(
        has(evidence, "device_largest_free", "largest", 7.0),
        "{evidence:?}"
    );
}

#[test]
fn a_leak_freed_at_exit_is_a_leak() {
    let found = ended(&|t| {
        // The interpreter frees all blocks at its end, but the caching allocator keeps their
        // memory.
        let held = ((50.0 + t) * MIB) as u64;
        let allocated = if t < 99.0 { held } else { 0 };
        let cache = CacheTotals {
            allocated,
            reserved: Some(held),
            ..CacheTotals::default()
        };
        Moment {
            sites: vec![site(Layer::TorchCuda, "tensor", allocated as f64 / MIB)],
            ..of_cache(cache)
        }
    });
    expect(&found, Class::GpuLeak);
    let sites = found.verdicts.iter().filter(|v| v.scope != Scope::Process);
    let classes: Vec<_> = sites.map(|verdict| verdict.class).collect();
    assert_eq!(classes, [Class::GpuLeak]);
    let rows = rows(&found, Kind::Device(Some(0)));
    let [("outstanding", grown)] = rows[..] else {
        panic!("{rows:?}");
    };
    assert!((60..=100).contains(&grown), "{grown} MiB of a hundred");
}

#[test]
fn a_device_whose_sites_do_not_go_on_does_not_leak_for_sure() {
    // Faster at first: a leak since then, but neither from the start of the window.
    let found = of(&|t| {
        let mib = 2.0 * t.min(40.0) + 1.2 * (t - 40.0).max(0.0);
        Moment {
            sites: vec![site(Layer::CudaRuntime, "fill", mib)],
            device: Some(DeviceTotals {
                runtime: (mib * MIB) as u64,
                ..DeviceTotals::default()
            }),
            ..heap(5.0, 50.0)
        }
    });
    assert_eq!(found.verdicts[1].class, Class::Undetermined, "{found:#?}");
    let verdict = &found.verdicts[0];
    assert_eq!(verdict.class, Class::Undetermined, "{found:#?}");
    let unblamed = |of: &Evidence| of.kind.name == "device_sites_unblamed";
    assert!(verdict.evidence.iter().any(unblamed), "{found:#?}");
    assert_eq!(verdict.runner_up, Some(Class::GpuLeak));
}

/// Some MiB at one site of the runtime's.
fn asked_for(name: &'static str, mib: f64) -> (DeviceTotals, Vec<SiteCourse>) {
    let totals = DeviceTotals {
        runtime: (mib * MIB) as u64,
        ..DeviceTotals::default()
    };
    (totals, vec![site(Layer::CudaRuntime, name, mib)])
}

fn classes(found: &Diagnosis) -> Vec<Class> {
    let verdicts = found.verdicts.iter();
    verdicts.map(|verdict| verdict.class).collect()
}

#[test]
fn memory_freed_on_one_device_does_not_hide_a_leak_on_another() {
    let found = |other: Device| {
        of(&|t| {
            let (totals, leaking) = asked_for("leak", t);
            let (model, its_site) = asked_for("model", (150.0 - 2.0 * t).max(0.0));
            Moment {
                device: Some(totals),
                other: Some((other, model, its_site)),
                sites: leaking,
                ..heap(5.0, 50.0)
            }
        })
    };
    let leak = found(Some(1));
    assert_eq!(classes(&leak), [Class::GpuLeak; 2], "{leak:#?}");
    // Memory freed on an unknown device may have been on this one.
    let either = found(None);
    assert_eq!(classes(&either), [Class::Undetermined; 2], "{either:#?}");
}

#[test]
fn memory_freed_during_start_up_does_not_hide_a_leak() {
    // The device's, then the process's.
    for (own, process) in [(40.0, 0.0), (20.0, 40.0)] {
        let found = of(&|t| {
            let leak = 5.0 * (t - own).max(0.0);
            let model = match t {
                t if t < own => 5000.0,
                t if t < process => 300.0,
                _ => 0.0,
            };
            let (totals, model) = asked_for("model", model);
            let host = if t < process {
                10.0 * t
            } else {
                10.0 * process
            };
            Moment {
                sites: [model, vec![site(Layer::CudaRuntime, "leak", leak)]].concat(),
                device: Some(DeviceTotals {
                    runtime: totals.runtime + (leak * MIB) as u64,
                    ..totals
                }),
                memory: resident(50.0 + host, 2.0, 0.0),
                ..Moment::default()
            }
        });
        let site = found.verdicts.iter().find(|v| v.scope != Scope::Process);
        assert_eq!(site.unwrap().class, Class::GpuLeak, "{found:#?}");
    }
}

#[test]
fn kept_memory_is_exact_only_if_the_allocator_reported_it() {
    let gib = |reserved: Option<u64>| reserved.map(|gib| gib << 30);
    let found = |[first, then, last]: [Option<u64>; 3]| {
        judged(&Course {
            origin: Origin::Attached,
            n: 100,
            ends: false,
            lost: 0,
            heap: true,
            at: &|t| {
                let cache = CacheTotals {
                    allocated: 1 << 30,
                    reserved: gib(match t {
                        t if t < 50.0 => first,
                        t if t < 90.0 => then,
                        _ => last,
                    }),
                    ..CacheTotals::default()
                };
                of_cache(cache)
            },
        })
    };
    for (reserved, basis, kept) in [
        ([Some(10), Some(10), Some(2)], "exact", -8),
        ([Some(10), None, Some(2)], "estimated", -8),
        ([Some(10), Some(10), None], "estimated", 0),
        ([None, None, Some(2)], "estimated", 1),
    ] {
        let found = found(reserved);
        let mut accounts = found.accounts[0].accounts.iter();
        let device = accounts.find(|account| account.kind == Kind::Device(Some(0)));
        let rows = &device.unwrap().rows;
        let [_, (term, bytes), _] = rows[..] else {
            panic!("{rows:?}");
        };
        assert_eq!(term.name(), "kept by PyTorch's allocator");
        assert!(
            term.basis(bytes).starts_with(basis),
            "{reserved:?}: {term:?}"
        );
        assert_eq!(bytes, f64::from(kept) * 1024.0 * MIB, "{reserved:?}");
    }
}

#[test]
fn page_locked_memory_has_a_class_of_its_own() {
    let seen = of(&|t| Moment {
        memory: resident(50.0, 2.0, t),
        sites: vec![site(Layer::Pinned, "buffer", t)],
        ..Moment::default()
    });
    expect(&seen, Class::Pinned);
    let [("page-locked memory", grown)] = rows(&seen, Kind::Shared)[..] else {
        panic!("{:?}", seen.accounts);
    };
    assert!((70..=100).contains(&grown), "{grown} MiB of a hundred");
    let unseen = of(&|t| Moment {
        sites: vec![site(Layer::Pinned, "buffer", t)],
        ..heap(5.0, 50.0)
    });
    expect(&unseen, Class::Pinned);
    let beside_a_leak = of(&|t| {
        let leak = heap(t, 50.0 + t);
        Moment {
            sites: [leak.sites, vec![site(Layer::Pinned, "buffer", t)]].concat(),
            ..leak
        }
    });
    expect(&beside_a_leak, Class::Leak);
}

#[test]
fn earlier_memory_of_a_caching_allocator_is_not_growth() {
    let cache = CacheTotals {
        allocated: 10 << 30,
        peak_allocated: 10 << 30,
        reserved: Some(12 << 30),
        peak_reserved: Some(12 << 30),
        largest_free: None,
    };
    let totals = DeviceTotals {
        cache: Some(cache),
        ..DeviceTotals::default()
    };
    let found = judged(&Course {
        origin: Origin::Attached,
        n: 100,
        ends: false,
        lost: 0,
        heap: true,
        at: &|t| Moment {
            device: (t > 60.0).then_some(totals),
            ..heap(5.0, 50.0)
        },
    });
    expect(&found, Class::None);
}
