use super::*;
use serde_json::{Value, json};

const TGID: u32 = 7;
const BYTES: u64 = 20_001;

fn native(function: &str, module: &str) -> Value {
    json!({ "kind": "native", "function": function, "module": module, "file_offset": 1,
            "file": null, "line": null, "inlined": false })
}

fn python(function: &str, line: u32) -> Value {
    json!({ "kind": "python", "function": function, "module": null, "file_offset": null,
            "file": "/f.py", "line": line, "inlined": false })
}

fn probe() -> Value {
    native("probe", "/probe.so")
}

fn evaluation() -> Value {
    native(EVALUATION, "/usr/bin/python3.11")
}

fn start() -> Value {
    native("_start", "/usr/bin/python3.11")
}

fn site(end: &str, frames: &[Value]) -> Value {
    json!({ "tgid": TGID, "layer": "heap", "live_bytes": 0, "live_count": 0,
            "alloc_bytes": 2 * BYTES, "alloc_count": 2, "end": end, "frames": frames })
}

fn report(sites: &[Value]) -> Report {
    serde_json::from_value(
        json!({ "totals": [], "sites": sites, "losses": {}, "processes": [],
                                   "emitted": 0, "received": 0 }),
    )
    .unwrap()
}

fn frame(function: &str, line: u32, caller: Value) -> Value {
    json!({ "function": function, "file": "/f.py", "line": line, "linetable": 10,
            "caller": caller })
}

fn chain(frames: &[Value]) -> TrueChain {
    serde_json::from_value(
        json!({ "tgid": TGID, "way": "probe", "bytes": BYTES, "count": 2,
                                   "frames": frames }),
    )
    .unwrap()
}

/// `leaf`, called by `main`.
fn truth(caller: Value) -> [TrueChain; 1] {
    [chain(&[
        frame("leaf", 1, caller),
        frame("main", 2, Value::Null),
    ])]
}

fn whole() -> Vec<Value> {
    let leaf = [
        probe(),
        native("ffi_call", "/libffi.so.8"),
        python("leaf", 1),
    ];
    [&leaf[..], &[python("main", 2), evaluation(), start()]].concat()
}

fn wrong_in(frames: &[Value], caller: Value) -> usize {
    differences(&report(&[site("complete", frames)]), &truth(caller)).len()
}

fn wrong(frames: &[Value]) -> usize {
    wrong_in(frames, Value::Null)
}

#[test]
fn the_true_frames_are_accepted() {
    assert_eq!(wrong(&whole()), 0);
    let sites = [site("complete", &whole())];
    let other = [chain(&[
        frame("leaf", 2, Value::Null),
        frame("main", 2, Value::Null),
    ])];
    assert_eq!(differences(&report(&sites), &other).len(), 1);
    assert_eq!(differences(&report(&[]), &truth(Value::Null)).len(), 1);
}

#[test]
fn another_frame_amount_order_or_end_is_not() {
    for (at, other) in [
        (2, python("leaf", 3)),
        (2, python("other", 1)),
        (3, python("main", 1)),
    ] {
        let mut frames = whole();
        frames[at] = other;
        assert_eq!(wrong(&frames), 1, "{at}");
    }
    for at in [2, 3] {
        let mut frames = whole();
        frames.remove(at);
        assert_eq!(wrong(&frames), 1, "without {at}");
    }
    let mut frames = whole();
    frames.insert(4, python("more", 1));
    assert_eq!(wrong(&frames), 1);
    frames = whole();
    frames.swap(2, 3);
    assert_eq!(wrong(&frames), 1);
    for end in ["truncated", "no_row", "no_stack"] {
        let sites = [site(end, &whole())];
        assert_eq!(
            differences(&report(&sites), &truth(Value::Null)).len(),
            1,
            "{end}"
        );
    }
    let mut less = site("complete", &whole());
    less["alloc_count"] = 1.into();
    less["alloc_bytes"] = BYTES.into();
    assert_eq!(
        differences(&report(&[less.clone()]), &truth(Value::Null)).len(),
        1
    );
    assert_eq!(
        differences(&report(&[less.clone(), less]), &truth(Value::Null)).len(),
        0
    );
}

#[test]
fn blocks_of_no_chain_are_wrong_unless_they_are_warming_up() {
    let mut site = site("complete", &whole());
    site["alloc_bytes"] = (2 * BYTES + 1).into();
    assert_eq!(
        differences(&report(&[site.clone()]), &truth(Value::Null)).len(),
        2
    );
    site["alloc_bytes"] = (2 * WARM_UP).into();
    assert_eq!(differences(&report(&[site]), &truth(Value::Null)).len(), 1);
}

#[test]
fn native_frames_are_where_they_belong() {
    let libc = || native("qsort", "/libc.so.6");
    let between = |natives: &[Value]| {
        let frames = whole();
        [&frames[..3], natives, &frames[3..]].concat()
    };
    let called = || between(&[evaluation(), libc()]);
    for caller in ["qsort", "libc.so"] {
        assert_eq!(wrong_in(&called(), caller.into()), 0, "{caller}");
        assert_eq!(wrong_in(&whole(), caller.into()), 1, "{caller}");
    }
    // The truth does not have it called from there.
    assert_eq!(wrong(&called()), 1);
    // Python code is run by the interpreter alone.
    assert_eq!(wrong_in(&between(&[libc()]), "qsort".into()), 1);

    let evaluated = between(&[evaluation()]);
    assert_eq!(wrong(&evaluated), 0);
    assert_eq!(wrong_in(&evaluated, INTERPRETER.into()), 0);
    assert_eq!(wrong_in(&evaluated, NOTHING.into()), 1);
    assert_eq!(wrong_in(&whole(), NOTHING.into()), 0);
    assert_eq!(wrong_in(&whole(), INTERPRETER.into()), 1);
    // Each evaluation has frames of its own.
    assert_eq!(wrong(&between(&[evaluation(), evaluation()])), 1);
    let leaf = [&[probe(), evaluation()], &whole()[1..]].concat();
    assert_eq!(wrong(&leaf), 1);
    // And is run by something.
    assert_eq!(wrong(&whole()[..4]), 1);
}

#[test]
fn deep_stacks_are_cut_where_no_word_is_left() {
    let depth = MAX_FRAMES;
    let deep: Vec<_> = (0..depth).map(|_| frame("deep", 1, Value::Null)).collect();
    let truth = [chain(&deep)];
    let cut = |python: usize, end| {
        let frames = (0..python).map(|_| self::python("deep", 1));
        let frames: Vec<_> = [probe(), probe()].into_iter().chain(frames).collect();
        differences(&report(&[site(end, &frames)]), &truth).len()
    };
    assert_eq!(cut((MAX_FRAMES - 2) / 2, "truncated"), 0);
    assert_eq!(cut((MAX_FRAMES - 2) / 2, "complete"), 1);
    assert_eq!(cut(20, "truncated"), 1);
    assert_eq!(cut(depth, "truncated"), 1);
}

#[test]
fn cut_texts_and_line_tables_are_marked() {
    let long = "x".repeat(NAME + 1);
    let beginning = |count: usize| format!("{}…", "x".repeat(count));
    assert!(shows(Some(&long), &long, NAME));
    assert!(shows(Some(&beginning(NAME)), &long, NAME));
    assert!(
        !shows(Some(&long[..NAME]), &long, NAME),
        "it does not say so"
    );
    assert!(!shows(Some(&beginning(NAME / 2)), &long, NAME));
    assert!(!shows(Some(&beginning(NAME - 1)), &long[..NAME], NAME));
    assert!(!shows(None, &long, NAME));
    let wide = "函".repeat(NAME / 2 + 1);
    let cut: String = wide.chars().take(NAME / 2).chain(['…']).collect();
    assert!(shows(Some(&cut), &wide, NAME));

    let mut true_frame: TrueFrame = serde_json::from_value(frame("f", 1, Value::Null)).unwrap();
    let mut reported: Frame = serde_json::from_value(python("f", 1)).unwrap();
    reported.line = None;
    assert!(!true_frame.is(&reported));
    true_frame.linetable = LINETABLE + 1;
    assert!(true_frame.is(&reported));
    reported.line = Some(2);
    assert!(!true_frame.is(&reported));
}

fn library(alone: bool) -> TrueChain {
    serde_json::from_value(
        json!({ "tgid": TGID, "way": "library", "library": "sqlite3", "alone": alone,
                "frames": [frame("leaf", 1, Value::Null), frame("main", 2, Value::Null)] }),
    )
    .unwrap()
}

fn wrong_of_library(stacks: &[&[Value]], alone: bool) -> usize {
    let sites = stacks.iter().map(|frames| {
        let sqlite = native("sqlite3_step", "/libsqlite3.so.0");
        site("complete", &[&[sqlite], *frames].concat())
    });
    differences(&report(&sites.collect::<Vec<_>>()), &[library(alone)]).len()
}

#[test]
fn all_that_a_library_allocates_is_below_the_function() {
    let wrong = |frames: &[Value]| wrong_of_library(&[frames], true);
    let frames = &whole()[2..];
    assert_eq!(wrong(frames), 0);
    // At another line.
    assert_eq!(wrong(&[&[python("leaf", 9)], &frames[1..]].concat()), 0);
    // Nothing of it is allocated by the function itself.
    assert_eq!(wrong(&[&[python("inner", 9)], frames].concat()), 1);
    let other = [frames[0].clone(), python("main", 3)];
    assert_eq!(wrong(&[&other, &frames[2..]].concat()), 2);
    assert_eq!(wrong(&frames[1..]), 2);
    assert_eq!(wrong(&[]), 2);
}

#[test]
fn other_users_of_the_library_are_distinguished() {
    let wrong = |frames: &[Value]| wrong_of_library(&[&whole()[2..], frames], false);
    assert_eq!(wrong(&[python("other", 1), evaluation(), start()]), 0);
    assert_eq!(wrong(&[native("exit", "/libc.so.6"), start()]), 0);
    assert_eq!(wrong(&[start()]), 1);
    assert_eq!(
        wrong(&[python("leaf", 1), python("other", 1), evaluation(), start()]),
        1
    );
    assert_eq!(
        wrong_of_library(&[&[python("other", 1), evaluation()]], false),
        1
    );
}
