//! Paths as people and scripts read them.

use super::{
    path::{figures, place},
    *,
};
use crate::{
    frames::fixture::{native, python},
    recording::{
        Collector, PERHAPS_IN_USE, PERHAPS_WEAK, STRUCTURE, Step, StepKind, Unknown,
        fixture::{heap_site, history, holders, step, tree},
    },
};
use memtrace_common::unwind::End;

fn kept(path: Path) -> Keeper {
    Keeper {
        how: How::Path { path, share: 1.0 },
        line: None,
        package: None,
    }
}

#[test]
fn a_container_has_its_name_and_its_figures() {
    let text = sentence(&kept(history(None)), None);
    assert_eq!(
        text,
        "kept by __main__.service.history (list, 1,648 items, +27/s)"
    );
    // Without an expression the names of the steps are one.
    let mut path = history(None);
    path.expression = None;
    assert_eq!(sentence(&kept(path.clone()), None), text);
    path.steps[0] = step(StepKind::Frame, "serve (server.py)", "");
    path.steps[1].name = ": service".into();
    assert_eq!(
        sentence(&kept(path), None),
        "kept by service.history in serve (server.py) (list, 1,648 items, +27/s)"
    );
}

#[test]
fn a_path_without_a_container_has_its_root_and_its_last_name() {
    assert_eq!(
        sentence(&kept(tree()), None),
        "kept by libfoo.so: g_cache + 0x10"
    );
    let mut path = history(None);
    (path.container, path.expression) = (None, None);
    assert_eq!(
        sentence(&kept(path), None),
        "kept by __main__.service.history[i]"
    );
}

#[test]
fn a_linked_list_is_a_chain_from_its_head() {
    let mut path = history(None);
    path.steps.truncate(3);
    path.steps[2] = step(StepKind::Object, ".head", "Node");
    let mut link = step(StepKind::Object, ".link", "Node");
    link.repeated = 1199;
    path.steps.push(link);
    path.steps
        .push(step(StepKind::Object, ".payload", "bytearray"));
    assert_eq!(
        sentence(&kept(path.clone()), None),
        "kept by a chain of 1,200 Node from __main__.service.head"
    );
    // Of blocks of no known type, and a few that are no chain.
    for step in &mut path.steps[2..4] {
        (step.kind, step.type_name) = (StepKind::Block, None);
    }
    path.container = None;
    assert_eq!(
        place(&path),
        "a chain of 1,200 blocks from __main__.service.head"
    );
    path.steps[3].repeated = 3;
    assert!(!place(&path).contains("chain"));
}

/// Nothing says that its words are pointers.
#[test]
fn a_path_of_words_alone_is_likely() {
    let mut path = tree();
    path.steps[0].name = "min: todo".into();
    path.steps[1].type_name = None;
    let of = kept(path);
    assert_eq!(
        sentence(&of, None),
        "probably kept by a chain of 12,346 blocks from min: todo (words there lead to them)"
    );
    assert_eq!(
        kept_by(&of),
        "probably a chain of 12,346 blocks from min: todo (words there lead to them)"
    );
    assert!(!sentence(&kept(tree()), None).contains("probably"));
    // Memory that may not be in use.
    let mut path = tree();
    path.steps[0] = step(StepKind::Mapping, "anonymous mapping of 1.0 MiB", "");
    assert!(kept(path).is_likely());
    // Words that may be left over.
    let mut path = history(None);
    assert!(!kept(path.clone()).is_likely());
    path.steps
        .insert(3, step(StepKind::Block, "+0x28", STRUCTURE));
    assert!(kept(path).is_likely());
    let mut path = history(None);
    path.steps[1].name = PERHAPS_IN_USE.to_owned();
    assert!(kept(path).is_likely());
    // A weak reference keeps nothing.
    let mut path = tree();
    let weak = step(StepKind::Block, PERHAPS_WEAK, "app::View (make_shared)");
    path.steps.push(weak);
    assert!(kept(path).is_likely());
    let mut path = history(None);
    path.steps[0] = step(StepKind::Stack, "thread main: stack of serve()", "");
    assert!(kept(path.clone()).is_likely());
    path.steps[1] = step(StepKind::Block, "", "std::map node");
    assert!(!kept(path).is_likely());
}

#[test]
fn slow_growth_has_a_decimal() {
    let mut list = history(None).steps[2].clone();
    for (growth, text) in [
        (0.53, "+0.5/s"),
        (3.0, "+3/s"),
        (-2.0, "-2/s"),
        (250.4, "+250/s"),
    ] {
        list.growth_per_s = Some(growth);
        assert_eq!(figures(&list, None), format!("list, 1,648 items, {text}"));
    }
    list.growth_per_s = Some(20.0);
    assert!(figures(&list, Some(25.0)).ends_with("+20/s like the site"));
    assert!(figures(&list, Some(50.0)).ends_with("+20/s"));
    assert_eq!(figures(&step(StepKind::Object, "x", ""), None), "");
}

#[test]
fn paths_through_one_container_are_one_line() {
    let mut long = history(None);
    for class in ["A", "B", "C", "D"] {
        long.steps.insert(6, step(StepKind::Block, "", class));
    }
    let other = |place: u32| {
        let mut path = tree();
        path.steps[0].name = format!("libfoo.so: g_cache + {place:#x}");
        WayKind::Path(path)
    };
    let ways = [
        (30, WayKind::Path(long)),
        (20, WayKind::Path(history(None))),
        (4, other(1)),
        (3, other(2)),
        (2, other(3)),
        (2, other(4)),
        (2, other(5)),
        (1, other(6)),
    ];
    let lines = lines(&holders(heap_site(1), 64, ways.into()), Some(27.0));
    assert_eq!(
        lines[0],
        "held, 50 of 64 blocks examined, by 2 paths such as: module __main__ . service . history  \
(list, 1,648 items, +27/s like the site)  [i] → Tensor → c10::TensorImpl → c10::StorageImpl → D → C → B → A → block"
    );
    assert_eq!(lines.len(), 6);
    assert_eq!(lines[5], "also, 3: in 2 other ways");
}

#[test]
fn every_way_is_a_line() {
    let of = holders(
        heap_site(1),
        64,
        vec![
            (50, WayKind::Path(history(None))),
            (6, WayKind::Path(tree())),
            (3, WayKind::Cycle(Collector::On, Path::of(vec![]))),
            (1, WayKind::Nothing),
        ],
    );
    assert_eq!(
        lines(&of, Some(27.0)),
        [
            "held, 50 of 64 blocks examined: module __main__ . service . history  (list, 1,648 items, +27/s \
             like the site)  [i] → Tensor → c10::TensorImpl → c10::StorageImpl → block",
            "also, 6: libfoo.so: g_cache + 0x10 → std::map node ×12,345 → block",
            "also, 3: only a cycle keeps it: gc.collect() would free it",
            "also, 1: nothing points to it: lost",
            "unknown for 4",
        ]
    );
    let nothing = holders(heap_site(1), 1, vec![]);
    assert_eq!(
        lines(&nothing, None),
        ["held: unknown for the 1 block examined"]
    );
}

#[test]
fn a_folded_path_keeps_the_names_of_the_program() {
    let path = history(None);
    assert_eq!(
        folded(&path, 200),
        "module __main__ . service . history [i] → Tensor → c10::TensorImpl → c10::StorageImpl → block"
    );
    // First the insides of libraries are left out.
    assert_eq!(
        folded(&path, 84),
        "module __main__ . service . history [i] → Tensor → c10::TensorImpl → … → block"
    );
    assert_eq!(
        folded(&path, 70),
        "module __main__ . service . history [i] → Tensor → … → block"
    );
    assert_eq!(
        folded(&path, 10),
        "module __main__ → … . history → … → block"
    );
    assert_eq!(folded(&tree(), 10), "libfoo.so: g_cache + 0x10 → … → block");
}

#[test]
fn an_exception_and_a_graph_are_seen_in_a_folded_path() {
    let mut path = history(None);
    path.steps.splice(
        3..,
        [
            step(StepKind::Object, "[i]", "ValueError"),
            step(StepKind::Object, ".__traceback__", "traceback"),
            step(StepKind::Object, ".tb_next", "traceback"),
            step(StepKind::Object, ".tb_frame", "frame"),
            step(StepKind::Object, ".f_locals['body']", "tuple"),
            step(StepKind::Object, "[i]", "torch.Tensor"),
            step(StepKind::Block, "", "c10::TensorImpl"),
            step(StepKind::Block, "", "c10::StorageImpl"),
            step(StepKind::Block, "", ""),
        ],
    );
    let folded_to = |columns| folded(&path, columns);
    assert_eq!(
        folded_to(130),
        "module __main__ . service . history [i] → ValueError . __traceback__ . tb_next . tb_frame \
         . f_locals['body'] → tuple → … → block"
    );
    assert_eq!(
        folded_to(96),
        "module __main__ . service . history [i] → ValueError → … . f_locals['body'] → tuple → … → block"
    );
    let mut path = history(None);
    let graph = |name: &str| {
        step(
            StepKind::Block,
            "",
            &format!("torch::autograd::generated::{name}"),
        )
    };
    path.steps.splice(
        4..4,
        [
            step(StepKind::Block, "", "c10::TensorImpl"),
            step(StepKind::Block, "", "torch::autograd::AutogradMeta"),
            graph("MeanBackward0"),
            step(StepKind::Block, "", ""),
            graph("AddmmBackward0"),
        ],
    );
    assert_eq!(
        folded(&path, 104),
        "module __main__ . service . history [i] → Tensor → … → MeanBackward0 → … → AddmmBackward0 → … → block"
    );
}

#[test]
fn names_follow_their_root_as_far_as_they_go() {
    let mut path = history(None);
    path.container = None;
    path.expression = None;
    path.steps[2].name = ".cache".into();
    path.steps
        .insert(3, step(StepKind::Object, " (its state)", ""));
    assert_eq!(place(&path), "__main__.service.cache (its state)[i]");
    path.steps[3].name = "word".into();
    assert_eq!(place(&path), "__main__.service.cache … [i]");
}

#[test]
fn a_container_with_a_limit_says_how_full_it_is() {
    let cache = Step {
        length: Some(120),
        limit: Some(128),
        ..step(StepKind::Object, ".plan", "lru_cache")
    };
    assert_eq!(figures(&cache, None), "lru_cache, 120 of 128 items");
}

#[test]
fn names_cannot_harm_a_terminal() {
    let mut path = history(None);
    path.expression = Some("a\x1b[31m".into());
    for step in &mut path.steps {
        step.name += "\x1b[31m";
        step.type_name = Some("\x1b[31m".into());
    }
    let of = kept(path.clone());
    let all = [sentence(&of, None), whole(&path, None), folded(&path, 20)];
    assert!(all.iter().all(|text| !text.contains('\x1b')), "{all:?}");
    path.expression = None;
    assert!(!sentence(&kept(path), None).contains('\x1b'));
}

#[test]
fn scripts_get_every_step_with_the_line_that_fills_it() {
    let mut stacks = Stacks::default();
    let append = [
        native("list_resize", "/usr/bin/python3.11"),
        python("Service.log", "/srv/server.py", 38),
    ];
    stacks.put(heap_site(2).stack, End::Complete, None, append);
    let path = history(Some(heap_site(2)));
    let of = Keeper {
        line: filling_line(heap_site(2), &stacks).cloned(),
        ..kept(path.clone())
    };
    let value = kept_by_json(&of, None, &stacks);
    assert_eq!(
        value["text"],
        "kept by __main__.service.history (list, 1,648 items, +27/s)"
    );
    assert_eq!(
        (&value["how"], &value["verified"]),
        (&json!("path"), &json!(true))
    );
    assert_eq!(
        (&value["share"], &value["container"]),
        (&json!(1.0), &json!(2))
    );
    assert_eq!(
        (&value["function"], &value["line"]),
        (&json!("Service.log"), &json!(38))
    );
    assert_eq!(
        value["path"][2],
        json!({
            "kind": "object", "name": ".history", "type": "list", "length": 1648, "limit": null,
            "growth_per_s": 26.8, "repeated": 1,
            "function": "Service.log", "file": "/srv/server.py", "line": 38,
        })
    );
    assert_eq!(value["path"][0]["kind"], "module");
    assert_eq!(value["path"][0]["function"], Value::Null);

    let of = holders(
        heap_site(1),
        9,
        vec![
            (5, WayKind::Path(path)),
            (4, WayKind::Cycle(Collector::On, Path::of(vec![]))),
        ],
    );
    let value = super::json(&of, &stacks);
    assert_eq!(value["sampled"], 9);
    assert_eq!(value["ways"][0]["expression"], "__main__.service.history");
    assert_eq!(value["ways"][0]["path"][2]["line"], 38);
    assert_eq!(value["ways"][1], json!({ "how": "cycle", "blocks": 4 }));
}

#[test]
fn the_type_in_a_control_block_is_named() {
    let of = |name| in_control_block(name);
    let inplace = "std::_Sp_counted_ptr_inplace<Pair<int, A>, std::allocator<void>, (__gnu_cxx::_Lock_policy)2>";
    assert_eq!(of(inplace), Some("Pair<int, A>"));
    let pointer = "std::_Sp_counted_ptr<net::Session*, (__gnu_cxx::_Lock_policy)2>";
    assert_eq!(of(pointer), Some("net::Session"));
    assert_eq!(of("std::vector<int, A>"), None);
    assert_eq!(of("std::_Sp_counted_ptr<"), None);
}

#[test]
fn a_cycle_of_lost_blocks_names_their_types_once() {
    let block = |name: Option<&str>| Step {
        type_name: name.map(str::to_owned),
        ..Step::new(StepKind::Block, String::new())
    };
    let control = |name: &str| format!("std::_Sp_counted_ptr_inplace<{name}, A, (L)2>");
    let path = |names: &[Option<&str>]| Path::of(names.iter().map(|it| block(*it)).collect());
    let (a, b) = (control("A"), control("B"));
    let both = lost_cycle(&path(&[Some(&a), None, Some(&b), Some(&a)]));
    assert!(
        both.ends_with("`A` and `B` point to each other by std::shared_ptr"),
        "{both}"
    );
    let one = lost_cycle(&path(&[Some("Node")]));
    assert!(one.ends_with("`Node` points back to itself"), "{one}");
    let none = lost_cycle(&path(&[None, None]));
    assert!(none.ends_with("they point to each other"), "{none}");
}

#[test]
fn a_way_of_words_alone_is_likely() {
    let mut path = tree();
    path.steps[1].type_name = None;
    let of = holders(heap_site(1), 4, vec![(4, WayKind::Path(path))]);
    assert_eq!(
        lines(&of, None),
        [
            "held, 4 of 4 blocks examined: probably libfoo.so: g_cache + 0x10 → block ×12,345 → block"
        ]
    );
}

#[test]
fn what_is_unknown_has_a_reason() {
    let mut of = holders(heap_site(1), 9, vec![]);
    of.unknown = Some(Unknown::Changing);
    assert_eq!(
        lines(&of, None),
        [
            "held: unknown for the 9 blocks examined: the references to them changed while they were read"
        ]
    );
    of.unknown = Some(Unknown::Marked);
    assert_eq!(
        lines(&of, None),
        [
            "held: unknown for the 9 blocks examined: words with marks in their upper bits may point to them"
        ]
    );
    of.unknown = Some(Unknown::OtherAllocator);
    assert_eq!(
        lines(&of, None),
        [
            "held: unknown for the 9 blocks examined: no pointer to them was found, but an allocator that is not glibc's may have freed them since"
        ]
    );
}
