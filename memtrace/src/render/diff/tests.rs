//! Text, JSON and flame graphs of a comparison.

use serde_json::Value;

use super::*;
use crate::{
    diff::{Comparison, Options, compare, fixture::*},
    recording::variables::hashed,
};

pub(in crate::render) fn comparison() -> Comparison {
    let old = in_library("gemm_avx2", "1", 1);
    let new = in_library("gemm_sse2", "2", 9);
    let mut runs = [
        run(
            "a.mtr",
            vec![growing(old, 10), growing(in_library("gone", "1", 5), 99)],
        ),
        run("b\x1b.mtr", vec![growing(new, 5000)]),
    ];
    runs[0].facts = vec![("lib.libx.so.1.build_id".into(), "1".into())];
    runs[1].facts = vec![("lib.libx.so.1.build_id".into(), "2".into())];
    runs[1].losses = vec!["ring_full_free"];
    compare(&runs[..1], &runs[1], &Options::default()).unwrap()
}

fn as_text(comparison: &Comparison, top: usize) -> String {
    let mut out = Vec::new();
    text(&mut out, comparison, top, false).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn text_has_growth_facts_and_matches() {
    let text = as_text(&comparison(), 10);
    for part in [
        "a.mtr → b\\u{1b}.mtr",
        "events of b\\u{1b}.mtr were lost (ring_full_free)",
        "lib.libx.so.1.build_id: 1 → 2  (sites 1, 2)",
        "  1. +4.9 KiB/s (heap), 95 % interval",
        "+10 B/s → +4.9 KiB/s",
        "the same functions of the same modules (L1)",
        "  1 site grows faster than in the baseline, most of all by +4.9 KiB/s in gemm_sse2  [libx.so.1] (heap)",
        "gemm_sse2  [libx.so.1]  <isa: sse2>",
        "  2. −99 B/s",
        "only in the baseline",
        "unmatched",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains('\x1b'));
}

#[test]
fn different_programs_are_named_first() {
    let text = |old: &str, new: &str| {
        let mut runs = ["a.mtr", "b.mtr"].map(|name| run(name, vec![]));
        for (run, path) in runs.iter_mut().zip([old, new]) {
            run.facts = vec![("exe.path".into(), path.into())];
        }
        let compared = compare(&runs[..1], &runs[1], &Options::default()).unwrap();
        as_text(&compared, 10)
    };
    let different = text("/usr/bin/python3.11", "/srv/leakc");
    let line = "a.mtr → b.mtr\n  these are different programs: python3.11 and leakc\n";
    assert!(different.contains(line), "{different}");
    let moved = text("/srv/old/leakc", "/srv/new/leakc");
    assert!(!moved.contains("different programs"), "{moved}");
}

#[test]
fn hashes_of_session_variables_are_left_out() {
    let facts = |session: &str, mode: &str| {
        let env = |name: &str, value| (format!("env.{name}"), hashed(name, value));
        vec![
            ("environment.names".to_owned(), "all".to_owned()),
            env("SSH_TTY", session),
            env("APP_MODE", mode),
        ]
    };
    let mut runs = [run("a.mtr", vec![]), run("b.mtr", vec![])];
    runs[0].facts = facts("/dev/pts/1", "fast");
    runs[1].facts = facts("/dev/pts/2", "exact");
    let comparison = compare(&runs[..1], &runs[1], &Options::default()).unwrap();
    let text = as_text(&comparison, 10);
    assert!(text.contains("APP_MODE"), "{text}");
    assert!(!text.contains("SSH_TTY"), "{text}");
}

#[test]
fn libraries_are_folded_and_their_instruction_sets_stay() {
    let library = |function, offset| native(Some(function), "/usr/lib/libx.so.1", "1", offset);
    let stack = vec![
        library("pack", 1),
        library("gemm_avx2", 2),
        library("run", 3),
        native(Some("main"), "/srv/program", "m", 4),
    ];
    let comparison = compared(vec![], vec![growing(stack, 5000)]);
    let short = as_text(&comparison, 10);
    let expected =
        "\n       pack  [libx.so.1]\n       … 2 frames in libx.so.1  <isa: avx2>\n       main";
    assert!(short.contains(expected), "{short}");
    let mut full = Vec::new();
    text(&mut full, &comparison, 10, true).unwrap();
    let full = String::from_utf8(full).unwrap();
    assert!(
        full.contains("gemm_avx2  [libx.so.1]  <isa: avx2>"),
        "{full}"
    );
}

#[test]
fn text_reports_no_difference() {
    let side = || vec![growing(in_library("f", "1", 1), 10)];
    let text = as_text(&compared(side(), side()), 10);
    assert!(text.contains("No site grows differently"), "{text}");
    assert!(
        text.contains(
            "No recorded fact of the machines and processes differs. Not compared:\n    a: "
        ),
        "{text}"
    );
    assert!(text.contains("content of files"), "{text}");
}

#[test]
fn json_has_the_documented_names() {
    let mut out = Vec::new();
    json(&mut out, &comparison(), None).unwrap();
    let value: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(value["fingerprint"][0]["field"], "lib.libx.so.1.build_id");
    assert_eq!(
        value["fingerprint"][0]["related_sites"],
        serde_json::json!([0, 1])
    );
    let site = &value["sites"][0];
    assert_eq!(site["match_level"], "L1");
    assert_eq!(site["frames"][0]["isa"][0], "sse2");
    assert_eq!(site["baseline_frames"][0]["isa"][0], "avx2");
    let number = |name: &str| site[name].as_f64().unwrap();
    let delta = number("new_bytes_per_s") - number("baseline_bytes_per_s");
    assert_eq!(number("delta_bytes_per_s"), delta);
    let interval = &site["interval"];
    assert!(interval[0].as_f64().unwrap() <= delta && delta <= interval[1].as_f64().unwrap());
    assert_eq!(value["sites"][1]["match_level"], "none");
    assert_eq!(value["matched_bytes"], 60 * 5010);
    assert_eq!(value["unmatched_bytes"], 60 * 99);
    assert_eq!(value["total_bytes"], 60 * 5109);
}

#[test]
fn only_the_first_sites_are_listed_when_asked() {
    let mut out = Vec::new();
    json(&mut out, &comparison(), Some(1)).unwrap();
    let value: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(value["sites"].as_array().unwrap().len(), 1);
    assert_eq!(value["hidden_sites"], 1);
    assert_eq!(
        value["fingerprint"][0]["related_sites"],
        serde_json::json!([0])
    );
}

#[test]
fn each_view_has_the_widths_of_its_side() {
    let comparison = comparison();
    let draw = |view| {
        let mut out = Vec::new();
        assert!(flamegraph(&mut out, &comparison, view).unwrap());
        String::from_utf8(out).unwrap()
    };
    let (new, baseline) = (draw(View::New), draw(View::Baseline));
    assert!(new.contains("gemm_sse2 (5,000 bytes per s"), "{new}");
    assert!(!new.contains("gone (") && baseline.contains("gone (99 bytes per s"));
    assert!(baseline.contains("(10 bytes per s"));
    let nothing = compared(vec![], vec![steady(in_library("f", "1", 1), 5)]);
    assert!(!flamegraph(&mut Vec::new(), &nothing, View::New).unwrap());
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    drop(reader);
    text(&mut writer, &comparison(), 10, false).unwrap();
    json(&mut writer, &comparison(), None).unwrap();
    flamegraph(&mut writer, &comparison(), View::New).unwrap();
}
