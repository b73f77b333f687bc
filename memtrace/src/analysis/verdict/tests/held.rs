//! Observations in memory, and the verdicts drawn from them.

use super::*;
use crate::recording::{
    Census, Collector, GrowingType, Holders, Objects, Path, StepKind, Unknown, Way, WayKind,
    fixture::{heap_site, history, holders, step, tree},
};

const APPEND: &str = "std::vector<int*, A>::_M_realloc_insert;Service.log;main";

/// The holder of the blocks of `grow`, 64 of which were sampled. The buffer of a vector that
/// probably keeps them grows beside it.
fn kept(ways: Vec<(u32, WayKind)>) -> Diagnosis {
    of(&|t| Moment {
        memory: resident(20.0 + t, 2.0, 0.0),
        sites: vec![
            site(HEAP, "grow", t),
            (HEAP, APPEND, false, 1024.0 * 8.0 * t, 1),
        ],
        holders: vec![holders(heap_site(1), 64, ways.clone())],
        ..Moment::default()
    })
}

fn kept_by(found: &Diagnosis) -> Option<&Keeper> {
    let mut sites = found.verdicts.iter();
    let grow = sites.find(|verdict| verdict.scope == Scope::Site(heap_site(1)));
    grow?.keeper.as_ref()
}

fn path(ways: Vec<(u32, WayKind)>) -> Option<How> {
    kept_by(&kept(ways)).map(|of| of.how.clone())
}

#[test]
fn observations_outweigh_guesses() {
    let list = history(Some(heap_site(2)));
    let found = kept(vec![
        (60, WayKind::Path(list.clone())),
        (4, WayKind::Path(tree())),
    ]);
    expect(&found, Class::Leak);
    let kept = kept_by(&found).unwrap();
    let share = 60.0 / 64.0;
    assert_eq!(kept.how, How::Path { path: list, share });
    // The line of the memory of the container.
    let function = kept.line.as_ref().and_then(|line| line.function.as_deref());
    assert_eq!(function, Some("Service.log"));
    // The holders of the others are still listed.
    assert_eq!(found.holders[&heap_site(1)].ways.len(), 2);
}

#[test]
fn a_way_of_few_blocks_is_not_that_of_the_site() {
    let list = || {
        let mut list = history(None);
        list.steps[2].growth_per_s = Some(0.0);
        WayKind::Path(list)
    };
    let is_path = |ways| matches!(path(ways), Some(How::Path { .. }));
    // Four of five of those that are known, and half of all.
    assert!(is_path(vec![(32, list())]));
    assert!(is_path(vec![(48, list()), (12, WayKind::Nothing)]));
    assert!(!is_path(vec![(31, list())]));
    assert!(!is_path(vec![(47, list()), (13, WayKind::Nothing)]));
    assert!(!is_path(vec![]));
    // Half of all, if it grows.
    let growing = || WayKind::Path(history(None));
    assert!(is_path(vec![(32, growing()), (32, WayKind::Nothing)]));
    assert!(!is_path(vec![(31, growing()), (33, WayKind::Nothing)]));
}

#[test]
fn a_container_is_named_even_if_the_kind_of_growth_is_open() {
    let course = |growth| {
        let mut list = history(None);
        list.steps[2].growth_per_s = Some(growth);
        let found = of(&|t| Moment {
            memory: resident(20.0 + 5.0 * t.sqrt(), 2.0, 0.0),
            sites: vec![site(HEAP, "work", 1.0), site(HEAP, "grow", 5.0 * t.sqrt())],
            holders: vec![holders(
                heap_site(2),
                64,
                vec![(64, WayKind::Path(list.clone()))],
            )],
            ..Moment::default()
        });
        expect(&found, Class::Undetermined);
        found
            .verdicts
            .iter()
            .any(|verdict| verdict.keeper.is_some())
    };
    assert!(course(27.0));
    assert!(course(0.0));
}

#[test]
fn paths_into_one_tree_count_together() {
    let branch = |root: &'static str, place: &'static str, key: &'static str| {
        let mut path = tree();
        path.steps = vec![
            step(StepKind::Frame, root, ""),
            step(StepKind::Object, ": context", "Context"),
            step(StepKind::Object, place, "node"),
            step(StepKind::Object, key, "bytes"),
        ];
        (path.container, path.expression) = (None, None);
        WayKind::Path(path)
    };
    let [one, other, of_another] = [
        branch("run", "+0x10", "[a]"),
        branch("run", "+0x18", "[b]"),
        branch("serve", "+0x18", "[b]"),
    ];
    let is_path = |ways| matches!(path(ways), Some(How::Path { .. }));
    assert!(is_path(vec![(30, one.clone()), (30, other)]));
    assert!(!is_path(vec![(30, one), (30, of_another)]));
}

#[test]
fn the_holders_of_most_blocks_are_several_or_unknown() {
    let absent = |ways| {
        let found = of(&|t| Moment {
            memory: resident(20.0 + t, 2.0, 0.0),
            sites: vec![site(HEAP, "grow", t)],
            holders: vec![Holders {
                unknown: Some(Unknown::Unclear),
                ..holders(heap_site(1), 64, Vec::clone(&ways))
            }],
            ..Moment::default()
        });
        let sites = found.verdicts.iter();
        let mut sites = sites.filter(|of| of.scope == Scope::Site(heap_site(1)));
        sites.next().unwrap().absent.clone()
    };
    let mut list = history(None);
    list.steps[2].growth_per_s = Some(0.0);
    let list = WayKind::Path(list);
    let two = |blocks| vec![(blocks, list.clone()), (20, WayKind::Path(tree()))];
    assert_eq!(absent(two(43)), Some(Absent::Several));
    let unclear = Some(Absent::Unknown(Unknown::Unclear));
    assert_eq!(absent(vec![(20, list.clone())]), unclear);
}

#[test]
fn paths_through_one_container_count_together() {
    let list = history(None);
    let mut graph = list.clone();
    graph
        .steps
        .insert(4, step(StepKind::Block, "", "MeanBackward0"));
    let ways = vec![
        (30, WayKind::Path(list.clone())),
        (30, WayKind::Path(graph.clone())),
    ];
    let share = 60.0 / 64.0;
    assert_eq!(
        path(ways),
        Some(How::Path {
            path: list.clone(),
            share
        })
    );
    // In another container they do not.
    graph.steps[2].name = ".other".into();
    let ways = vec![(30, WayKind::Path(list)), (30, WayKind::Path(graph))];
    assert!(!matches!(path(ways), Some(How::Path { .. })));
}

#[test]
fn cycles_and_lost_blocks_are_named() {
    let share = 1.0;
    let cycle = path(vec![(64, WayKind::Cycle(Collector::On, Path::of(vec![])))]);
    assert_eq!(
        cycle,
        Some(How::Cycle {
            collector: Collector::On,
            path: Path::of(vec![]),
            share
        })
    );
    let with = || WayKind::LostWith(tree());
    let lost = path(vec![(40, with()), (20, WayKind::Nothing)]);
    assert!(matches!(lost, Some(How::LostWith { share, .. }) if share > 0.9));
    let lost = path(vec![(64, WayKind::Nothing)]);
    assert_eq!(lost, Some(How::Nothing { share }));
}

#[test]
fn a_path_without_a_container_has_no_line() {
    let found = kept(vec![(64, WayKind::Path(tree()))]);
    let kept = kept_by(&found).unwrap();
    assert_eq!(kept.line, None);
    assert!(matches!(kept.how, How::Path { .. }));
}

/// A path of words alone, to a block whose own memory is of the site `buffer`.
fn of_words(buffer: u32) -> WayKind {
    let mut path = tree();
    path.steps[1].type_name = None;
    path.steps[1].buffer = Some(heap_site(buffer));
    path.container = Some(1);
    WayKind::Path(path)
}

#[test]
fn words_that_may_be_left_over_are_to_be_looked_at_first() {
    let found = kept(vec![(64, of_words(3))]);
    let verdict = found
        .verdicts
        .iter()
        .find(|it| it.scope == Scope::Site(heap_site(1)));
    let verdict = verdict.unwrap();
    assert!(verdict.keeper.as_ref().unwrap().is_likely());
    assert!(verdict.next.contains(&Advice::FindKeeper));
    assert!(!verdict.next.contains(&Advice::LimitContainer));
}

#[test]
fn a_block_is_the_container_that_the_code_of_its_site_fills() {
    let found = kept(vec![(64, of_words(2))]);
    let kept = kept_by(&found).unwrap();
    assert!(!kept.is_likely());
    let How::Path { path, .. } = &kept.how else {
        panic!("{:?}", kept.how);
    };
    assert_eq!(path.steps[1].type_name.as_deref(), Some("std::vector"));
}

/// The head of a list of the blocks themselves.
#[test]
fn a_link_is_not_a_container() {
    let mut linked = tree();
    let head = linked.steps.len() - 1;
    linked.steps[head].kind = StepKind::Block;
    linked.steps[head].buffer = Some(heap_site(1));
    linked.container = Some(head);
    let found = kept(vec![(64, WayKind::Path(linked))]);
    let kept = kept_by(&found).unwrap();
    assert_eq!(kept.line, None);
    let container = match &kept.how {
        How::Path { path, .. } => path.container,
        _ => panic!("{:?}", kept.how),
    };
    assert_eq!(container, None);
}

/// A stack, and the bytes of its block by the time in seconds.
type Buffer = (&'static str, fn(f64) -> f64);

/// The function that fills a vector of 1,648 items whose memory has moved since the recording, beside
/// memory of vectors of these sizes in bytes, by the time in seconds. None of them grows as the blocks do.
fn filler(growth_per_s: f64, buffers: &'static [Buffer]) -> Option<String> {
    let mut vector = history(None);
    vector.steps[2].type_name = Some("std::vector".into());
    vector.steps[2].growth_per_s = Some(growth_per_s);
    let found = of(&|t| {
        let buffers = buffers
            .iter()
            .map(|&(stack, bytes)| (HEAP, stack, false, bytes(t), 1));
        Moment {
            memory: resident(20.0 + t, 2.0, 0.0),
            sites: [site(HEAP, "grow", t)].into_iter().chain(buffers).collect(),
            holders: vec![holders(
                heap_site(1),
                64,
                vec![(64, WayKind::Path(vector.clone()))],
            )],
            ..Moment::default()
        }
    });
    kept_by(&found)?.line.as_ref()?.function.clone()
}

#[test]
fn a_container_that_moved_is_recognised_by_its_size() {
    const LOG: &str = "std::vector<int*, A>::_M_realloc_insert;Service.log;main";
    const OTHER: &str = "std::vector<int*, A>::_M_realloc_insert;other;main";
    const VEC: &str = "alloc::raw_vec::RawVec<T,A>::grow_one;other;main";
    const GROWN: fn(f64) -> f64 = |t| if t < 50.0 { 10_000.0 } else { 12_000.0 };
    assert_eq!(
        filler(27.0, &[(LOG, GROWN)]).as_deref(),
        Some("Service.log")
    );
    let beside = filler(27.0, &[(LOG, GROWN), (OTHER, |_| 800.0), (VEC, GROWN)]);
    assert_eq!(beside.as_deref(), Some("Service.log"));
    assert_eq!(filler(27.0, &[(LOG, GROWN), (OTHER, |_| 13_000.0)]), None);
    // The search may have taken long.
    assert_eq!(filler(27.0, &[(LOG, GROWN), (OTHER, |_| 2_000.0)]), None);
    assert_eq!(filler(27.0, &[(LOG, |t| 4.0 * GROWN(t))]), None);
    assert_eq!(filler(27.0, &[(VEC, GROWN)]), None);
    // A vector that does not grow, or is made again and again, is another one.
    assert_eq!(filler(27.0, &[(LOG, |_| 12_000.0)]), None);
    assert_eq!(filler(27.0, &[(LOG, |t| 12_000.0 + t % 2.0)]), None);
    // A vector that hardly grew may have its memory from before the recording.
    assert_eq!(filler(2.0, &[(LOG, GROWN)]), None);
}

/// Two sites that grow one after the other, whose blocks these containers keep.
fn in_turn(containers: [Option<u32>; 2]) -> Diagnosis {
    of(&|t| Moment {
        memory: resident(20.0 + t, 2.0, 0.0),
        sites: vec![
            site(HEAP, "early", t.min(60.0)),
            site(HEAP, "late", (t - 60.0).max(0.0)),
        ],
        holders: [1, 2]
            .into_iter()
            .zip(containers)
            .map(|(stack, container)| {
                let mut path = history(None);
                path.container_number = container;
                holders(heap_site(stack), 64, vec![(64, WayKind::Path(path))])
            })
            .collect(),
        ..Moment::default()
    })
}

#[test]
fn sites_of_one_container_are_judged_by_their_sum() {
    let classes = |containers| {
        let found = in_turn(containers);
        let sites = found
            .verdicts
            .iter()
            .filter(|of| of.scope != Scope::Process);
        sites.map(|of| of.class).collect::<Vec<_>>()
    };
    let together = classes([Some(1), Some(1)]);
    assert!(!together.is_empty());
    assert!(
        together.iter().all(|class| *class == Class::Leak),
        "{together:?}"
    );
    // Without the number, equal names do not prove one container.
    for apart in [[Some(1), Some(2)], [None, None]] {
        let apart = classes(apart);
        assert!(apart.iter().any(|class| *class != Class::Leak), "{apart:?}");
    }
    let found = in_turn([Some(1), Some(1)]);
    let mut evidence = found.verdicts.iter().flat_map(|of| &of.evidence);
    assert!(evidence.any(|of| of.kind.name == "sites_of_container"));
}

#[test]
fn a_recording_of_a_running_process_is_not_advised_to_attach() {
    let at = |t: f64| Moment {
        memory: resident(20.0 + t, 2.0, 0.0),
        sites: vec![site(HEAP, "grow", t)],
        ..Moment::default()
    };
    let next = |found: &Diagnosis| found.verdicts[1].next.clone();
    assert_eq!(next(&of(&at)), [Advice::Attach]);
    assert_eq!(next(&attached(&at)), [Advice::FindKeeper]);
    let unknown = |unknown| {
        let found = of(&|t| Moment {
            holders: vec![Holders {
                unknown,
                ..holders(heap_site(1), 64, vec![])
            }],
            ..at(t)
        });
        (found.verdicts[1].absent.clone(), next(&found))
    };
    assert_eq!(
        unknown(Some(Unknown::Changing)),
        (
            Some(Absent::Unknown(Unknown::Changing)),
            vec![Advice::FindUnseenKeeper]
        )
    );
    assert_eq!(absent(&ended(&at)), Some(Absent::Ended));
}

fn absent(found: &Diagnosis) -> Option<Absent> {
    found.verdicts[1].absent.clone()
}

/// A type of which 1,000 objects a second came, of 512 bytes each; 64 of them were examined.
fn growing_type(name: &str, held: WayKind) -> GrowingType {
    let objects = |count| Objects {
        time_ns: count * 1_000_000,
        count,
        bytes: 512 * count,
    };
    GrowingType {
        name: name.into(),
        first: objects(20_000),
        last: objects(100_000),
        examined: 64,
        unreached: 0,
        ways: vec![Way { blocks: 64, held }],
    }
}

/// Of a process that grows by 0.5 MiB/s, or more and more slowly, in memory that Python had.
fn with_objects(held: &WayKind, course: fn(f64) -> f64) -> Diagnosis {
    of(&|t| Moment {
        memory: resident(20.0 + course(t), 2.0, 0.0),
        sites: vec![site(HEAP, "work", 5.0)],
        types: vec![growing_type("dict", held.clone())],
        ..Moment::default()
    })
}

#[test]
fn objects_that_a_growing_container_keeps_are_a_leak() {
    let steady = |t| 0.5 * t;
    let kept = WayKind::Path(history(None));
    let found = with_objects(&kept, steady);
    expect(&found, Class::Leak);
    assert_eq!(found.verdicts[0].grade, Grade::C);
    assert_eq!(found.verdicts[0].next, [Advice::LimitList]);
    let types = found.types.values().next().unwrap();
    let keeper = types.keeper.as_ref().unwrap();
    assert!(matches!(keeper.how, How::Path { .. }));
    let full = |list: &mut Path| list.steps[2].limit = Some(5000);
    let still = |list: &mut Path| list.steps[2].growth_per_s = Some(0.0);
    for change in [full, still] {
        let mut list = history(None);
        change(&mut list);
        let found = with_objects(&WayKind::Path(list), steady);
        expect(&found, Class::Undetermined);
    }
    expect(
        &with_objects(&WayKind::Cycle(Collector::On, Path::of(vec![])), steady),
        Class::Undetermined,
    );
    expect(
        &with_objects(&kept, |t| 5.0 * t.sqrt()),
        Class::Undetermined,
    );
}

#[test]
fn the_keeper_of_types_keeps_half_of_what_came() {
    let types = |ways: &[WayKind]| {
        let growing = ways.iter().map(|way| growing_type("T", way.clone()));
        let types = Types::new(Census::default(), growing.collect(), &Stacks::default());
        types.keeper.is_some()
    };
    let list = WayKind::Path(history(None));
    let cycle = WayKind::Cycle(Collector::On, Path::of(vec![]));
    let nothing = WayKind::Nothing;
    assert!(types(&[list.clone(), nothing.clone()]));
    assert!(types(&[
        list.clone(),
        nothing.clone(),
        list.clone(),
        nothing.clone()
    ]));
    assert!(!types(&[list, cycle.clone(), nothing.clone()]));
    assert!(types(&[cycle.clone(), cycle, nothing.clone()]));
    assert!(!types(&[nothing]));
}

#[test]
fn what_a_container_with_a_limit_keeps_is_a_cache() {
    let with_limit = |limit| {
        let mut list = history(None);
        list.steps[2].limit = limit;
        kept(vec![(64, WayKind::Path(list))])
    };
    expect(&with_limit(None), Class::Leak);
    expect(&with_limit(Some(5000)), Class::Cache);
}

#[test]
fn what_a_container_keeps_that_is_copied_to_add_to_it_is_no_leaked_reference() {
    let kept = |size: fn(f64) -> f64| {
        let mut of_type = growing_type("method", WayKind::Surplus(history(None)));
        // One every two seconds.
        let objects = |count| Objects {
            time_ns: count * 2_000_000_000,
            count,
            bytes: 64 * count,
        };
        (of_type.first, of_type.last) = (objects(0), objects(50));
        let found = attached(&|t| {
            let blocks = 1 + t as u64 % 2;
            let copies = size(t) * blocks as f64;
            Moment {
                memory: resident(20.0 + t, 2.0, 0.0),
                sites: vec![
                    (HEAP, "tuple_concat;python:subscribe", false, copies, blocks),
                    site(Layer::Python, "python:handle", t),
                ],
                types: vec![of_type.clone()],
                ..Moment::default()
            }
        });
        let types = found.types.values().next();
        let keeper = types.and_then(|types| types.keeper.clone()).unwrap();
        let arenas = found.verdicts.iter().find_map(|of| of.keeper.clone());
        assert!(arenas.is_none_or(|of| of.how.name() == keeper.how.name()));
        let line = keeper.line.and_then(|line| line.function);
        (keeper.how.name(), line.unwrap_or_default())
    };
    let copied = ("container", "subscribe".to_owned());
    assert_eq!(kept(|t| 100_000.0 + 4_000.0 * t), copied);
    let leaked = ("surplus-reference", String::new());
    assert_eq!(kept(|_| 100_000.0), leaked, "a block of one size");
    assert_eq!(kept(|t| 200_000.0 - 1_000.0 * t), leaked);
}
