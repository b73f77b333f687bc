//! Made-up courses of a process, with the verdict that each must get.

mod device_growth;
mod device_states;
mod held;
mod keeping;
mod kinds;
mod lines;
mod meanwhile;
mod older;
mod passing;
mod rates;
mod shape;

use super::*;
use crate::{
    analysis::{
        account::{Kind, Term},
        fixture::{Course, Freed, MIB, Moment, SiteCourse, record, resident},
        system::SystemSeries,
    },
    event::Layer,
    recording::{MemorySample, Origin},
};

const HEAP: Layer = Layer::Heap;

fn judged(course: &Course) -> Diagnosis {
    let (_folder, recording) = record(course);
    let found = diagnose(
        &recording,
        &SystemSeries::default(),
        &Suppressions::default(),
    )
    .unwrap();
    assert_agrees(&found);
    found
}

/// If a verdict on a process refers to sites, some of them have the same class.
pub(crate) fn assert_agrees(found: &Diagnosis) {
    let (processes, sites): (Vec<_>, Vec<_>) = found
        .verdicts
        .iter()
        .partition(|verdict| verdict.scope == Scope::Process);
    for process in processes {
        let points = process.next.iter().any(|advice| advice.needs_sites());
        let mut evidence = process.evidence.iter().filter(|of| !of.of_runner_up);
        let counts = evidence.any(|of| of.kind.name == "part_of_sites");
        let mut sites = sites.iter();
        let has_sites =
            sites.any(|site| site.process == process.process && site.class == process.class);
        assert!(has_sites || !points && !counts, "{found:#?}");
    }
}

/// A hundred seconds of a launched process.
fn of(at: &dyn Fn(f64) -> Moment) -> Diagnosis {
    judged(&Course {
        origin: Origin::Launched,
        n: 100,
        ends: false,
        lost: 0,
        heap: true,
        at,
    })
}

/// The same of a process that was attached to.
fn attached(at: &dyn Fn(f64) -> Moment) -> Diagnosis {
    judged(&Course {
        origin: Origin::Attached,
        n: 100,
        ends: false,
        lost: 0,
        heap: true,
        at,
    })
}

/// The same of a process that ends.
fn ended(at: &dyn Fn(f64) -> Moment) -> Diagnosis {
    judged(&Course {
        origin: Origin::Launched,
        n: 100,
        ends: true,
        lost: 0,
        heap: true,
        at,
    })
}

#[track_caller]
fn expect(found: &Diagnosis, class: Class) {
    let process = &found.verdicts[0];
    assert_eq!(process.scope, Scope::Process);
    assert_eq!(process.class, class, "{found:#?}");
    assert!(!process.evidence.is_empty());
    for evidence in found.verdicts.iter().flat_map(|of| &of.evidence) {
        assert_whole(evidence);
    }
    for account in found.accounts.iter().flat_map(|process| &process.accounts) {
        let sum: f64 = account.rows.iter().map(|(_, bytes)| bytes).sum();
        assert!((sum - account.growth).abs() < 1.0, "{account:?}");
    }
}

/// Every place in the sentence has its value, and every value its place.
#[track_caller]
fn assert_whole(evidence: &Evidence) {
    let places = evidence.kind.sentence.split('{').skip(1);
    let places: Vec<&str> = places
        .filter_map(|rest| rest.split(['}', ':']).next())
        .collect();
    for place in &places {
        assert!(evidence.amount(place).is_some(), "{place}: {evidence:?}");
    }
    let mut values = evidence.values.iter();
    assert!(
        values.all(|(name, _)| places.contains(name)),
        "{evidence:?}"
    );
}

/// A site of `mib` in blocks of a KiB.
fn site(layer: Layer, name: &'static str, mib: f64) -> SiteCourse {
    (layer, name, false, mib * MIB, (mib * 1024.0) as u64)
}

fn heap(mib: f64, anonymous: f64) -> Moment {
    Moment {
        memory: resident(anonymous, 2.0, 0.0),
        sites: vec![site(HEAP, "work", 1.0), site(HEAP, "grow", mib)],
        ..Moment::default()
    }
}

#[test]
fn steady_growth_of_a_site_is_a_leak() {
    let found = of(&|t| heap(t, 5.0 + t));
    expect(&found, Class::Leak);
    assert_eq!(found.verdicts[0].grade, Grade::B);
    let [site] = &found.verdicts[1..] else {
        panic!("{found:#?}");
    };
    assert_eq!((site.class, site.grade), (Class::Leak, Grade::B));
    let Scope::Site(key) = &site.scope else {
        panic!("{site:?}");
    };
    assert_eq!(
        found
            .stacks
            .get(key.stack)
            .frames()
            .next()
            .unwrap()
            .function
            .as_deref(),
        Some("grow")
    );
    let rate = site.rate.unwrap();
    assert!((rate - MIB).abs() < 0.05 * MIB, "{rate}");
}

#[test]
fn a_leak_too_small_for_resident_memory_is_seen() {
    let found = of(&|t| heap(t * 0.002, 500.0));
    expect(&found, Class::Leak);
    // A total is that of resident memory.
    assert_eq!(found.verdicts[0].rate, None);
    assert!(found.verdicts[1].rate.unwrap() > 1000.0);
    // A small cache may fill by as little; many blocks are more than it has.
    let small = |blocks: f64| {
        of(&|t| Moment {
            memory: resident(500.0, 2.0, 0.0),
            sites: vec![(HEAP, "grow", false, 1000.0 * t, (blocks * t) as u64)],
            ..Moment::default()
        })
    };
    expect(&small(1.0), Class::None);
    expect(&small(10.0), Class::Leak);
}

#[test]
fn nothing_grows() {
    let found = of(&|t| heap(3.0 + 0.2 * (t % 7.0), 20.0 + 0.2 * (t % 7.0)));
    expect(&found, Class::None);
    let evidence = &found.verdicts[0].evidence;
    let visible = evidence
        .iter()
        .find(|of| of.kind.name == "detectable")
        .unwrap();
    let Some(Amount::BytesPerSecond(visible)) = visible.amount("rate") else {
        panic!("{visible:?}");
    };
    assert!((1.0..MIB).contains(visible), "{visible}");
    // Start-up is not growth.
    expect(&of(&|t| heap(t.min(10.0), 5.0 + t.min(10.0))), Class::None);
}

#[test]
fn blocks_that_replace_those_of_another_site_are_not_a_leak() {
    let found = of(&|t| Moment {
        memory: resident(100.0, 2.0, 0.0),
        sites: vec![
            site(HEAP, "first", 50.0 - t / 4.0),
            site(HEAP, "then", t / 4.0),
        ],
        ..Moment::default()
    });
    expect(&found, Class::None);
    assert!(
        found.verdicts[1..]
            .iter()
            .all(|site| site.class == Class::Undetermined)
    );
}

#[test]
fn memory_kept_by_the_allocator_is_retention() {
    let found = of(&|t| Moment {
        memory: resident(10.0 + t, 2.0, 0.0),
        sites: vec![
            site(HEAP, "work", 5.0),
            (Layer::Vm, "arena", true, (20.0 + t) * MIB, 1),
        ],
        ..Moment::default()
    });
    expect(&found, Class::Retention);
    // Freed long ago, and still there.
    let live = |t: f64| if t < 30.0 { 2.0 * t } else { 1.0 };
    expect(
        &of(&|t| heap(live(t), 5.0 + 2.0 * t.min(30.0))),
        Class::Retention,
    );
}

#[test]
fn advice_on_retention_is_on_the_allocator_that_is_there() {
    let next = |maps: &'static str| {
        let found = of(&|t| Moment {
            memory: resident(10.0 + t, 2.0, 0.0),
            sites: vec![
                site(HEAP, "work", 5.0),
                (Layer::Vm, maps, true, (20.0 + t) * MIB, 1),
            ],
            ..Moment::default()
        });
        expect(&found, Class::Retention);
        let rows = found.accounts[0].accounts[0].rows.iter();
        let rounding = rows.map(|(term, bytes)| term.basis(*bytes)).nth(1);
        (found.verdicts[0].next.clone(), rounding.unwrap())
    };
    let (jemalloc, rounding) = next("_rjem_je_pages_map");
    let of_jemalloc = |advice: &Advice| {
        matches!(
            advice,
            Advice::SetAllocator {
                name: "jemalloc",
                ..
            }
        )
    };
    assert!(jemalloc.iter().all(of_jemalloc), "{jemalloc:?}");
    assert!(rounding.contains("jemalloc's rounding"), "{rounding}");
    let (unknown, _) = next("arena");
    assert_eq!(unknown, [Advice::FindAllocator]);
}

fn mapped(t: f64, more: MemorySample) -> Moment {
    Moment {
        memory: MemorySample {
            anon_huge_pages: more.anon_huge_pages,
            lazy_free: more.lazy_free,
            ..resident(10.0 + t, 2.0, 0.0)
        },
        sites: vec![site(HEAP, "work", 5.0), site(Layer::Vm, "area", 500.0)],
        ..Moment::default()
    }
}

#[test]
fn pages_without_data_are_named_by_kind() {
    let bytes = |t: f64| Some((t * MIB) as u64);
    let huge = |t: f64| MemorySample {
        anon_huge_pages: bytes(t),
        ..MemorySample::default()
    };
    expect(&of(&|t| mapped(t, huge(t))), Class::Thp);
    let lazy = |t: f64| MemorySample {
        lazy_free: bytes(t),
        ..MemorySample::default()
    };
    expect(&of(&|t| mapped(t, lazy(t))), Class::MadvFree);
    // First touch of older mappings: nothing shows its purpose.
    let found = of(&|t| mapped(t, MemorySample::default()));
    expect(&found, Class::Undetermined);
}

#[test]
fn file_and_shared_memory_are_distinguished() {
    let part = |file: f64, shared: f64| Moment {
        memory: resident(10.0, file, shared),
        sites: vec![site(HEAP, "work", 5.0)],
        ..Moment::default()
    };
    expect(&of(&|t| part(t, 0.0)), Class::PageCache);
    expect(&of(&|t| part(2.0, t)), Class::Shmem);
}

#[test]
fn mappings_leak_memory_or_only_address_space() {
    let area = |t: f64, resident_mib: f64| Moment {
        memory: resident(10.0 + resident_mib, 2.0, 0.0),
        sites: vec![(Layer::Vm, "area", false, t * MIB, t as u64)],
        ..Moment::default()
    };
    expect(&of(&|t| area(t, t)), Class::Leak);
    expect(&of(&|t| area(t, 0.0)), Class::MappingLeak);
}

#[test]
fn a_childs_pages_become_its_own() {
    let at = |t: f64| {
        let own = 50.0 * (1.0 - f64::exp(-t / 20.0));
        let bytes = |mib: f64| Some((mib * MIB) as u64);
        Moment {
            memory: MemorySample {
                private_dirty: bytes(own),
                shared_dirty: bytes(60.0 - own),
                pss: bytes(30.0 + own / 2.0),
                ..resident(60.0, 2.0, 0.0)
            },
            sites: vec![site(HEAP, "work", 0.1)],
            ..Moment::default()
        }
    };
    let course = |origin| Course {
        origin,
        n: 100,
        ends: false,
        lost: 0,
        heap: true,
        at: &at,
    };
    expect(&judged(&course(Origin::Child)), Class::CopyOnWrite);
    expect(&judged(&course(Origin::Attached)), Class::CopyOnWrite);
    expect(&judged(&course(Origin::Launched)), Class::None);
}

#[test]
fn figures_that_are_too_few_or_too_uncertain_decide_nothing() {
    let at = |t: f64| heap(t, 5.0 + t);
    let course = |origin, n, lost| Course {
        ends: origin == Origin::Child,
        origin,
        n,
        lost,
        heap: true,
        at: &at,
    };
    let short = judged(&course(Origin::Launched, 12, 0));
    expect(&short, Class::Undetermined);
    let next = &short.verdicts[0].next[0];
    let is_longer = matches!(next, Advice::RecordIntervals { .. });
    assert!(is_longer, "{short:?}");
    let child = judged(&course(Origin::Child, 12, 0));
    assert_eq!((child.verdicts.len(), child.too_short), (0, 1));
    let living = judged(&Course {
        ends: false,
        ..course(Origin::Child, 12, 0)
    });
    expect(&living, Class::Undetermined);
    let lossy = judged(&course(Origin::Launched, 100, 20));
    expect(&lossy, Class::Undetermined);
    assert_eq!(lossy.verdicts[0].next[0], Advice::LoseLess, "{lossy:?}");
    let empty = judged(&course(Origin::Launched, 0, 0));
    expect(&empty, Class::Undetermined);
}

/// The course of a recording with automatic intervals: as many of 100 ms.
fn of_tenths(origin: Origin, n: u64) -> Diagnosis {
    let (folder, recording) = record(&Course {
        origin,
        n,
        ends: origin == Origin::Child,
        lost: 0,
        heap: true,
        at: &|t| heap(t, 5.0 + t),
    });
    let path = folder.path().join("test.mtr");
    let connection = rusqlite::Connection::open(&path).unwrap();
    let started = recording.meta().started_ns;
    connection
        .execute_batch(&format!(
            "UPDATE interval SET time_ns = {started} + (time_ns - {started}) / 10; \
             UPDATE recording SET meta = json_set(meta, '$.interval_is_auto', json('true'))"
        ))
        .unwrap();
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.meta().interval_ns, 100_000_000);
    diagnose(
        &recording,
        &SystemSeries::default(),
        &Suppressions::default(),
    )
    .unwrap()
}

#[test]
fn a_start_up_is_judged_only_on_request() {
    expect(&of_tenths(Origin::Launched, 150), Class::Leak);
    expect(&of_tenths(Origin::Launched, 101), Class::Leak);
    let short = of_tenths(Origin::Launched, 90);
    expect(&short, Class::Undetermined);
    assert_eq!(short.verdicts.len(), 1, "{short:?}");
    let next = &short.verdicts[0].next[0];
    assert_eq!(*next, Advice::OutliveIntervals { seconds: 15.0 });
    let child = of_tenths(Origin::Child, 90);
    assert_eq!((child.verdicts.len(), child.too_short), (0, 1));
}

#[test]
fn suppressed_sites_are_listed_separately() {
    let (_folder, recording) = record(&Course {
        origin: Origin::Launched,
        n: 100,
        ends: false,
        lost: 0,
        heap: true,
        at: &|t| heap(t, 5.0 + t),
    });
    let suppressions = Suppressions::parse("leak:^gro*$\n").unwrap();
    let found = diagnose(&recording, &SystemSeries::default(), &suppressions).unwrap();
    assert_eq!(found.verdicts.len(), 1);
    assert_eq!(found.suppressed[0].0, "^gro*$");
    let next = &found.verdicts[0].next;
    assert!(!next.iter().any(|advice| advice.needs_sites()), "{next:?}");
}

#[test]
fn more_intervals_than_points_are_taken_together() {
    let found = judged(&Course {
        origin: Origin::Launched,
        n: 1000,
        ends: false,
        lost: 0,
        heap: true,
        at: &|t| heap(t / 10.0, 5.0 + t / 10.0),
    });
    expect(&found, Class::Leak);
    let anonymous = &found.accounts[0].accounts[0];
    assert_eq!(anonymous.kind, Kind::Anonymous);
    let rate = found.verdicts[1].rate.unwrap();
    assert!((rate - MIB / 10.0).abs() < 0.005 * MIB, "{rate}");
}

/// The rows of the table of a kind, MiB, without those of nothing.
fn rows(found: &Diagnosis, kind: Kind) -> Vec<(&'static str, i64)> {
    let accounts = &found.accounts[0].accounts;
    let account = accounts.iter().find(|account| account.kind == kind);
    let rows = account.expect("a table").rows.iter();
    // Leaked, to be matched with literals.
    let name = |term: &Term| &*term.name().into_owned().leak();
    rows.map(|(term, bytes)| (name(term), (bytes / MIB).round() as i64))
        .filter(|(_, mib)| *mib != 0)
        .collect()
}

#[test]
fn mappings_explain_each_kind_of_memory_once() {
    let found = of(&|t| Moment {
        memory: resident(50.0 + t, 10.0 + t, 10.0 + t),
        // Two thirds are explained by mappings, the third by libraries.
        sites: vec![
            site(Layer::Vm, "map", 2.0 * t),
            site(Layer::Vm, "_dl_map_segments", 5.0 * t),
        ],
        ..Moment::default()
    });
    let names = |kind| -> Vec<_> { rows(&found, kind).iter().map(|(term, _)| *term).collect() };
    assert_eq!(names(Kind::Anonymous), ["live mappings of the program"]);
    assert_eq!(names(Kind::Shared), ["live mappings of the program"]);
    assert_eq!(names(Kind::File), ["libraries loaded"]);
}

#[test]
fn small_leaking_blocks_can_hold_much_more_memory() {
    let grown = |blocks: f64| {
        of(&|t| {
            let small = (HEAP, "node", false, t * 0.2 * MIB, (t * blocks) as u64);
            Moment {
                memory: resident(50.0 + t, 2.0, 0.0),
                sites: vec![small, (Layer::Vm, "brk", true, (50.0 + t) * MIB, 1)],
                ..Moment::default()
            }
        })
    };
    expect(&grown(1000.0), Class::Leak);
    // These are on too few pages.
    expect(&grown(10.0), Class::Retention);
    let first_use = of(&|t| Moment {
        memory: resident(50.0 + t, 2.0, 0.0),
        sites: vec![(HEAP, "node", false, t * 0.2 * MIB, (t * 1000.0) as u64)],
        ..Moment::default()
    });
    expect(&first_use, Class::Undetermined);
}

#[test]
fn sites_that_never_change_do_not_hide_one_that_grows() {
    let names: Vec<&'static str> = (0..150).map(|n| &*format!("constant {n}").leak()).collect();
    let found = of(&|t| {
        let steps = 50.0 + (t / 20.0).floor();
        let constant = names.iter().map(|name| site(HEAP, name, 0.1));
        Moment {
            memory: resident(steps, 2.0, 0.0),
            sites: constant.chain([site(HEAP, "steps", steps)]).collect(),
            ..Moment::default()
        }
    });
    let sites = found.verdicts.iter().filter(|v| v.scope != Scope::Process);
    assert_eq!(sites.count(), 1, "{found:#?}");
}

#[test]
fn holes_between_leaking_blocks_are_not_retention() {
    let found = of(&|t| Moment {
        memory: resident(50.0 + 2.2 * t, 2.0, 0.0),
        sites: vec![
            (HEAP, "grow", false, t * MIB, 4 * t as u64),
            (Layer::Vm, "brk", true, (50.0 + 2.2 * t) * MIB, 1),
        ],
        ..Moment::default()
    });
    expect(&found, Class::Leak);
    assert_eq!(found.verdicts[0].runner_up, Some(Class::Retention));
    assert_eq!(found.verdicts[0].grade, Grade::C);
}

#[test]
fn the_end_of_a_process_is_left_out() {
    let found = ended(&|t| match t {
        ..97.0 => heap(t, 50.0 + t),
        // It has begun to end.
        97.0 => heap(60.0, 50.0 + t),
        _ => heap(0.0, 50.0 + t),
    });
    expect(&found, Class::Leak);
    assert_eq!(found.verdicts.len(), 2, "{found:#?}");
    let last = found.accounts[0].to;
    assert!((90.0..97.0).contains(&last), "{last}");
}
