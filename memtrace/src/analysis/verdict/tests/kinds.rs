//! Several kinds of growth in one process: none hides another, and each has evidence of its own.

use super::*;
use crate::{
    ledger::SiteKey,
    recording::{
        Holders, WayKind,
        fixture::{heap_site, history, holders},
    },
};

/// Classes of the verdicts on the process.
fn classes(found: &Diagnosis) -> Vec<Class> {
    let of_process = found.verdicts.iter();
    let of_process = of_process.filter(|verdict| verdict.scope == Scope::Process);
    of_process.map(|verdict| verdict.class).collect()
}

fn rising(t: f64) -> Option<u64> {
    Some(100 + (3.0 * t) as u64)
}

/// Stacks of 8 MiB, a tenth of a MiB of each resident, made by `serve` beside `threads` more threads.
fn stacks(count: f64, threads: f64) -> Moment {
    let stack = "mmap;pthread_create;serve";
    Moment {
        memory: MemorySample {
            threads: Some(10 + threads as u64),
            threads_created: Some(10 + count as u64),
            ..resident(50.0 + count / 10.0, 2.0, 0.0)
        },
        sites: vec![
            site(HEAP, "work", 1.0),
            (Layer::Vm, stack, false, count * 8.0 * MIB, count as u64),
        ],
        ..Moment::default()
    }
}

#[test]
fn a_small_leak_is_found_beside_threads_and_descriptors() {
    let found = of(&|t| {
        let mut moment = heap(t * 0.002, 500.0);
        moment.memory.threads_created = rising(t);
        moment.memory.fds = rising(t);
        moment
    });
    expect(&found, Class::Leak);
    let all = [Class::Leak, Class::FdLeak, Class::ThreadChurn];
    assert_eq!(classes(&found), all);
}

#[test]
fn descriptors_leak_whether_or_not_memory_grows() {
    let found = of(&|t| {
        let mut moment = heap(t, 5.0 + t);
        moment.memory.fds = rising(t);
        moment
    });
    assert_eq!(classes(&found), [Class::Leak, Class::FdLeak]);
}

#[test]
fn threads_explain_no_memory_by_their_number_alone() {
    let found = of(&|t| {
        let mut moment = mapped(t, MemorySample::default());
        moment.memory.threads_created = rising(t);
        moment
    });
    assert_eq!(classes(&found), [Class::Undetermined]);
}

#[test]
fn mapped_files_that_pile_up_are_a_leak() {
    let found = of(&|t| Moment {
        memory: resident(10.0, t, 0.0),
        sites: vec![site(HEAP, "work", 5.0), site(Layer::Vm, "map", t)],
        ..Moment::default()
    });
    expect(&found, Class::Leak);
    assert_eq!(classes(&found), [Class::Leak]);
    let site = found.verdicts.last().unwrap();
    assert_eq!(site.next, [Advice::Unmap]);
}

#[test]
fn stacks_that_stay_are_a_leak_of_threads() {
    let next = |found: &Diagnosis| {
        expect(found, Class::ThreadLeak);
        assert_eq!(classes(found), [Class::ThreadLeak]);
        found.verdicts.last().unwrap().next.clone()
    };
    let not_joined = of(&|t| stacks(5.0 * t, 0.0));
    assert_eq!(next(&not_joined), [Advice::JoinThreads]);
    let running = of(&|t| stacks(5.0 * t, 5.0 * t));
    assert_eq!(next(&running), [Advice::LimitThreads]);
    // The C library keeps a few for later.
    let kept = of(&|t| stacks(t / 10.0, 0.0));
    assert!(!classes(&kept).contains(&Class::ThreadLeak), "{kept:#?}");
}

#[test]
fn what_threads_that_do_not_end_keep_leaks_with_them() {
    let kept = |threads: f64, blocks: f64, holders: &[Holders]| {
        of(&|t| {
            let mut moment = stacks(5.0 * t, threads * t);
            moment.memory.rss_anon = Some(((50.0 + 1.5 * t) * MIB) as u64);
            let handled = (HEAP, "handle", false, t * MIB, (blocks * t) as u64);
            moment.sites.push(handled);
            moment.holders = holders.to_vec();
            moment
        })
    };
    let beside = |threads: f64, blocks: f64| kept(threads, blocks, &[]);
    // One or two for each thread.
    for blocks in [5.0, 10.0] {
        let found = beside(5.0, blocks);
        assert_eq!(classes(&found), [Class::ThreadLeak]);
        assert_eq!(found.verdicts[0].grade, Grade::B);
    }
    // Other work, threads that have ended, and a list that keeps them.
    for blocks in [7.0, 36.0, 500.0] {
        assert_eq!(classes(&beside(5.0, blocks)), [Class::Leak]);
    }
    assert_eq!(classes(&beside(0.0, 5.0)), [Class::Leak]);
    let of_list = vec![(64, WayKind::Path(history(None)))];
    let of_list = holders(heap_site(3), 64, of_list);
    assert_eq!(classes(&kept(5.0, 5.0, &[of_list])), [Class::Leak]);
}

#[test]
fn threads_created_by_code_that_is_replaced_leak_together() {
    let found = of(&|t| {
        let mut moment = stacks(5.0 * t, 5.0 * t);
        let tiers = [
            ("mmap;pthread_create;interpreted", t.min(50.0)),
            ("mmap;pthread_create;compiled", (t - 50.0).max(0.0)),
        ];
        let tiers =
            tiers.map(|(stack, t)| (Layer::Vm, stack, false, 40.0 * t * MIB, (5.0 * t) as u64));
        moment.sites.truncate(1);
        moment.sites.extend(tiers);
        moment
    });
    expect(&found, Class::ThreadLeak);
    let sites = || found.verdicts.iter().skip(1);
    assert_eq!(sites().count(), 2, "{found:#?}");
    assert!(sites().all(|site| site.class == Class::ThreadLeak));
}

#[test]
fn a_keeper_of_mappings_says_what_to_do_about_shared_memory() {
    let kept = |ways: Vec<(u32, WayKind)>| {
        of(&|t| Moment {
            memory: resident(50.0, 2.0, t),
            sites: vec![site(HEAP, "work", 1.0), site(Layer::Vm, "open", 3.0 * t)],
            holders: vec![holders(
                SiteKey {
                    layer: Layer::Vm,
                    ..heap_site(2)
                },
                64,
                ways.clone(),
            )],
            ..Moment::default()
        })
    };
    let by_list = kept(vec![(64, WayKind::Path(history(None)))]);
    expect(&by_list, Class::Shmem);
    assert_eq!(by_list.verdicts[0].next[0], Advice::LimitList);
    assert_eq!(by_list.verdicts[1].next[0], Advice::LimitList);
    let lost = kept(vec![(64, WayKind::Nothing)]);
    assert_eq!(lost.verdicts[0].next[0], Advice::ListShared);
    assert_eq!(lost.verdicts[1].next[0], Advice::ListMappings);
}

#[test]
fn operations_that_leak_show_that_a_graph_keeps_tensors() {
    let next = |beside: &'static str| {
        let found = of(&|t| Moment {
            memory: resident(5.0 + 1.1 * t, 2.0, 0.0),
            sites: vec![
                site(HEAP, "c10::alloc_cpu;forward", t),
                site(HEAP, beside, 0.1 * t),
            ],
            ..Moment::default()
        });
        found.verdicts[1].next[0]
    };
    let records = "std::make_shared;torch::autograd::SavedVariable::SavedVariable;forward";
    assert_eq!(next(records), Advice::DropLikelyGraph);
    assert_ne!(
        next("torch::autograd::Engine::execute;backward"),
        Advice::DropLikelyGraph
    );
}

#[test]
fn the_line_that_creates_threads_is_known() {
    let found = of(&|t| {
        let mut moment = stacks(3.0, 0.0);
        moment.memory = MemorySample {
            threads_created: rising(t),
            ..resident(50.0, 2.0, 0.0)
        };
        // One of them is made anew each second.
        moment.sites[1].4 = 3 + (t as u64) % 2;
        moment
    });
    expect(&found, Class::ThreadChurn);
    let site = found.accounts[0].named.creates_threads.expect("a site");
    let mut frames = found.stacks.get(site.stack).frames();
    assert!(frames.any(|frame| frame.function.as_deref() == Some("serve")));
}

#[test]
fn arenas_are_the_allocators_wherever_it_maps_them() {
    let found = of(&|t| Moment {
        // Each arena is two mappings.
        memory: MemorySample {
            maps: Some(30 + 2 * t as u64),
            ..resident(50.0, 2.0, 0.0)
        },
        sites: vec![
            site(HEAP, "work", 1.0),
            (
                Layer::Vm,
                "mmap;alloc_new_heap;free;job",
                false,
                64.0 * t * MIB,
                t as u64,
            ),
        ],
        ..Moment::default()
    });
    assert_eq!(classes(&found), [Class::None]);
}

#[test]
fn the_largest_growth_is_named_without_a_class() {
    let largest = |found: &Diagnosis| found.accounts[0].named.largest;
    let found = of(&|t| heap((t / 30.0).floor(), 20.0 + t));
    expect(&found, Class::Undetermined);
    let (site, rate) = largest(&found).expect("a site");
    let mut frames = found.stacks.get(site.stack).frames();
    assert!(frames.any(|frame| frame.function.as_deref() == Some("grow")));
    assert!((0.0..0.1 * MIB).contains(&rate), "{rate}");
    assert_eq!(largest(&of(&|_| heap(3.0, 20.0))), None);
}

#[test]
fn the_heap_of_a_runtime_is_judged_as_one() {
    let chunks = |first: &'static str, second: &'static str| {
        of(&|t| Moment {
            memory: resident(50.0 + t, 2.0, 0.0),
            // Which of them needs the next chunk is chance: the first, and then the second.
            sites: vec![
                site(HEAP, "work", 1.0),
                site(Layer::Vm, first, 10.0 + t.min(60.0)),
                site(Layer::Vm, second, 10.0 + (t - 60.0).max(0.0)),
            ],
            ..Moment::default()
        })
    };
    let zend = chunks("zend_mm_chunk_alloc;rows", "zend_mm_chunk_alloc;names");
    assert_eq!(classes(&zend), [Class::Leak]);
    let site = zend.verdicts.last().unwrap();
    assert_eq!(site.grade, Grade::C);
    assert!(matches!(site.next[0], Advice::LookInside(_)), "{site:?}");
    let v8 = chunks("v8::Allocate;rows", "v8::Allocate;names");
    assert_eq!(classes(&v8), [Class::Undetermined]);
}

#[test]
fn huge_pages_below_freed_memory_are_retention() {
    let found = of(&|t| Moment {
        memory: MemorySample {
            anon_huge_pages: Some((t * MIB) as u64),
            ..resident(10.0 + t, 2.0, 0.0)
        },
        sites: vec![
            site(HEAP, "work", 5.0),
            (Layer::Vm, "arena", true, (20.0 + t) * MIB, 1),
        ],
        ..Moment::default()
    });
    assert_eq!(classes(&found), [Class::Retention]);
}

#[test]
fn stacks_have_the_memory_that_was_read_of_them() {
    // Eight threads with an arena of their own, which each fill and free it.
    let found = of(&|t| {
        let mut moment = stacks((t / 12.0).floor(), (t / 12.0).floor());
        moment.memory = MemorySample {
            anon_stack: Some((0.01 * t * MIB) as u64),
            ..resident(50.0 + t, 2.0, 0.0)
        };
        let arena = "mmap;arena_get2;tcache_init;free;serve";
        moment
            .sites
            .push((Layer::Vm, arena, false, t * 5.0 * MIB, t as u64));
        moment
    });
    assert_eq!(classes(&found), [Class::Retention]);
    let rows = rows(&found, Kind::Anonymous);
    assert!(rows.contains(&("thread stacks", 1)), "{rows:?}");
}

#[test]
fn rising_counts_are_named() {
    let counted = |count: &dyn Fn(f64, &mut MemorySample)| {
        of(&|t| {
            let mut moment = heap(3.0, 20.0);
            count(t, &mut moment.memory);
            moment
        })
    };
    let rising = |t: f64| Some(100 + (3.0 * t) as u64);
    let descriptors = counted(&|t, memory| memory.fds = rising(t));
    expect(&descriptors, Class::FdLeak);
    let slope = descriptors.verdicts[0].evidence[0].amount("rate");
    let Some(Amount::CountRate(rate)) = slope else {
        panic!("{descriptors:#?}");
    };
    assert!((rate.slope - 3.0).abs() < 0.1, "{rate:?}");
    expect(
        &counted(&|t, memory| memory.maps = rising(t)),
        Class::MappingLeak,
    );
    // One child every four seconds; a pool that has reached its size; jobs that end.
    let children =
        |count: &dyn Fn(f64) -> f64| counted(&|t, memory| memory.children = Some(count(t) as u64));
    expect(&children(&|t| t / 4.0), Class::ProcessLeak);
    let few = children(&|t| t / 10.0);
    expect(&few, Class::ProcessLeak);
    assert_eq!(few.verdicts[0].grade, Grade::C);
    expect(&children(&|t| t.min(8.0)), Class::None);
    expect(&children(&|t| 8.0 + 4.0 * (t / 4.0).sin()), Class::None);
    // A load that comes and goes, whose tops get higher.
    let teeth = |t: f64| Some(100 + (t * 10.0 % 4.0 * t) as u64);
    expect(&counted(&|t, memory| memory.maps = teeth(t)), Class::None);
    let threads = counted(&|t, memory| memory.threads_created = rising(t));
    expect(&threads, Class::ThreadChurn);
    assert_eq!(threads.verdicts[0].grade, Grade::C);
}
