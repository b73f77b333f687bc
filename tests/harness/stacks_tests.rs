use super::*;
use serde_json::{Value, json};

const TGID: u32 = 7;

fn frame(function: &str, offset: u64) -> Value {
    json!({ "kind": "native", "function": function, "module": "/t", "file_offset": offset,
            "file": null, "line": null, "inlined": false })
}

fn site(bytes: u64, end: &str, frames: &[(&str, u64)]) -> Value {
    let frames: Vec<_> = frames.iter().map(|(name, at)| frame(name, *at)).collect();
    json!({ "tgid": TGID, "layer": "heap", "live_bytes": 0, "live_count": 0,
            "alloc_bytes": bytes, "alloc_count": 1, "end": end, "frames": frames })
}

fn report(sites: &[Value]) -> Report {
    serde_json::from_value(
        json!({ "totals": [], "sites": sites, "losses": {}, "processes": [],
                                   "emitted": 0, "received": 0 }),
    )
    .unwrap()
}

fn truth(bytes: u64, path: &str, offsets: &[u64]) -> TrueStack {
    let frames = offsets.iter().map(|at| ("/t".to_owned(), *at));
    TrueStack {
        tgid: TGID,
        layer: "heap".into(),
        path: path.into(),
        bytes,
        count: 1,
        frames: frames.collect(),
    }
}

const WHOLE: [(&str, u64); 4] = [("probe", 1), ("leaf()", 2), ("main", 3), ("_start", 4)];
const PATH: &str = "leaf<main<*";

fn wrong(sites: &[Value], truth: &[TrueStack]) -> usize {
    differences(&report(sites), truth, &[]).len()
}

#[test]
fn the_true_stack_is_accepted_whatever_is_below_probe() {
    let true_stack = [truth(1000, PATH, &[2, 3, 4])];
    assert_eq!(wrong(&[site(1000, "complete", &WHOLE)], &true_stack), 0);
    let below = [&[("malloc", 9)], &WHOLE[..]].concat();
    assert_eq!(wrong(&[site(1000, "complete", &below)], &true_stack), 0);
}

#[test]
fn another_amount_frame_or_order_is_not() {
    let true_stack = [truth(1000, PATH, &[2, 3, 4])];
    // No report of it is one difference; a wrong one as well makes two.
    assert_eq!(wrong(&[], &true_stack), 1);
    assert_eq!(wrong(&[site(1001, "complete", &WHOLE)], &true_stack), 1);
    let mut other = WHOLE;
    other[2].1 += 1;
    assert_eq!(wrong(&[site(1000, "complete", &other)], &true_stack), 2);
    let mut swapped = WHOLE;
    swapped.swap(1, 2);
    assert_eq!(wrong(&[site(1000, "complete", &swapped)], &true_stack), 2);
    let longer = [&WHOLE[..], &[("more", 5)]].concat();
    assert_eq!(wrong(&[site(1000, "complete", &longer)], &true_stack), 2);
    // The very frames, under the names of others.
    let mut names = WHOLE;
    names[1].0 = "other";
    assert_eq!(wrong(&[site(1000, "complete", &names)], &true_stack), 2);
}

#[test]
fn a_truncated_stack_is_missing_unless_it_is_known_to_end_early() {
    let true_stack = [truth(1000, PATH, &[2, 3, 4])];
    let cut = site(1000, "no_row", &WHOLE[..3]);
    assert_eq!(wrong(std::slice::from_ref(&cut), &true_stack), 1);
    assert_eq!(
        wrong(&[site(1000, "complete", &WHOLE[..3])], &true_stack),
        2
    );
    let gap = |end| [Gap { path: "leaf<", end }];
    let report = report(&[cut]);
    assert!(differences(&report, &true_stack, &gap(End::NoRow)).is_empty());
    assert_eq!(
        differences(&report, &true_stack, &gap(End::NoTable)).len(),
        1
    );
}

#[test]
fn two_stacks_in_one_site_are_missed() {
    let stacks = [
        truth(1000, PATH, &[2, 3, 4]),
        truth(1001, "leaf<main<*", &[2, 5, 4]),
    ];
    let mut merged = site(2001, "complete", &WHOLE);
    merged["alloc_count"] = json!(2);
    assert_eq!(wrong(&[merged], &stacks), 2);
}

#[test]
fn without_an_unwinder_the_path_is_the_truth() {
    let true_stack = [truth(1000, "leaf<main<*", &[])];
    assert_eq!(wrong(&[site(1000, "no_row", &WHOLE[..3])], &true_stack), 0);
    assert_eq!(wrong(&[site(1000, "no_row", &WHOLE[..2])], &true_stack), 2);
    // Frames behind someone else's function may be missing, which must be reported.
    let called_back = [truth(1000, "leaf<*<main<*", &[])];
    let cut = [("probe", 1), ("leaf", 2), ("qsort", 8)];
    assert_eq!(wrong(&[site(1000, "no_row", &cut)], &called_back), 0);
    assert_eq!(wrong(&[site(1000, "complete", &cut)], &called_back), 2);
}

#[test]
fn complete_stacks_of_others_reach_the_outermost_frame() {
    let true_stack = [truth(1000, PATH, &[2, 3, 4])];
    let own = site(1000, "complete", &WHOLE);
    let other = |end, frames: &[(&str, u64)]| site(5, end, frames);
    let sites = |other| [own.clone(), other];
    let whole = other("complete", &[("dlopen", 8), ("_start", 4)]);
    assert_eq!(wrong(&sites(whole), &true_stack), 0);
    let short = other("complete", &[("dlopen", 8), ("main", 3)]);
    assert_eq!(wrong(&sites(short), &true_stack), 1);
    let honest = other("no_row", &[("dlopen", 8), ("main", 3)]);
    assert_eq!(wrong(&sites(honest), &true_stack), 0);
}

#[test]
fn paths_leave_out_any_number_of_functions() {
    let follows = |path: &str, functions: &[&str]| super::follows(path.split('<'), functions);
    assert!(follows("a<b", &["a", "b"]));
    assert!(follows("a<*<b", &["a", "b"]));
    assert!(follows("a<*<b<*", &["a", "x", "b", "y", "b", "z"]));
    assert!(!follows("a<b", &["a", "x", "b"]));
    assert!(!follows("a<*<b", &["a", "b", "x"]));
    assert!(!follows("a<b", &["a"]));
}

#[test]
fn names_are_plain() {
    for (function, name) in [
        ("partly_cold.cold", "partly_cold"),
        ("(anonymous namespace)::throws(int)", "throws"),
        ("(anonymous namespace)::guard::~guard()", "~guard"),
        (
            "(anonymous namespace)::probed<int>::allocate(unsigned long)",
            "allocate",
        ),
        ("stacks::grows", "grows"),
        ("stacks::grows::h0123456789abcdef", "grows"),
    ] {
        assert_eq!(plain(function), name, "{function}");
    }
}
