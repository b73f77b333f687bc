//! Pages of made-up snapshots, and of recorded programs.

use std::collections::HashMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{
    data::{Limits, of_recording},
    markup::marked,
    *,
};
use crate::{
    analysis::{
        courses::{Course, Courses},
        verdict::Diagnosis,
    },
    event::{Layer, StackId},
    frames::fixture::python,
    ledger::SiteKey,
    recording::{Fact, Snapshot},
    render::{
        findings::{items, snapshots},
        sums::{Sums, add, reported},
    },
    view::{Filter, findings::findings, fixture},
};
use memtrace_common::unwind::End;

const EVERYTHING: Limits = limits(SITES, 1);

fn recorded(snapshot: Snapshot) -> Recorded {
    Recorded {
        snapshot,
        verdicts: Diagnosis::default(),
        facts: Vec::new(),
        memory: HashMap::new(),
        courses: Courses::default(),
        cut_off: None,
    }
}

fn written(recorded: &Recorded) -> String {
    let mut out = Vec::new();
    html(&mut out, recorded).unwrap();
    String::from_utf8(out).unwrap()
}

/// The text between the first of these tags and the next end tag.
fn element<'a>(page: &'a str, tag: &str, end: &str) -> &'a str {
    let (_, inside) = page.split_once(tag).unwrap();
    inside.split_once(end).unwrap().0
}

fn data_of(page: &str) -> Value {
    let tag = "<script id=\"data\" type=\"application/json\">";
    serde_json::from_str(element(page, tag, "</script>")).unwrap()
}

/// The sums of a page's sites.
fn sums(data: &Value) -> Sums {
    let mut sums = Sums::new();
    let sites = &data["sites"];
    let number = |column: &str, site: usize| sites[column][site].as_u64().unwrap();
    for site in 0..sites["node"].as_array().unwrap().len() {
        let layer = sites["layer"][site].as_u64().unwrap() as usize;
        let layer = data["layers"][layer]["name"].as_str().unwrap();
        let figures = ["allocated", "allocations", "live", "blocks"];
        add(&mut sums, layer, figures.map(|column| number(column, site)));
    }
    sums
}

/// A server with this many sites below a few dozen callers, each of which changes at every interval.
fn large(count: u32) -> Recorded {
    const TIMES: usize = 240;
    let mut snapshot = fixture::snapshot();
    let process = snapshot.processes[0].row.id;
    let template = snapshot.sites[1].clone();
    let mut courses = Courses {
        times_ns: (1..=TIMES as u64)
            .map(|time| snapshot.meta.started_ns + time * 1_000_000_000)
            .collect(),
        ..Courses::default()
    };
    snapshot.sites.clear();
    for index in 0..count {
        let stack = StackId(1000 + index);
        let frames = (0..24).map(|depth| {
            // The leaf is a site's own, its callers are shared ever more.
            let shared = index >> (2 * depth).min(20);
            python(
                &format!("function_{depth}_{shared}"),
                "/srv/app/module.py",
                10 + depth,
            )
        });
        snapshot.stacks.put(stack, End::Complete, None, frames);
        let mut site = template.clone();
        site.key.stack = stack;
        let figures = [1000 + i64::from(index), 1, 5000 + i64::from(index), 5];
        let course: Course = (0..TIMES).map(|slot| (slot, figures)).collect();
        let last = figures.map(|figure| figure as u64 * TIMES as u64);
        let totals = &mut site.totals;
        (totals.live_bytes, totals.live_count) = (last[0], last[1]);
        (totals.alloc_bytes, totals.alloc_count) = (last[2], last[3]);
        courses.sites.insert(site.key, course);
        snapshot.sites.push(site);
    }
    snapshot
        .layers
        .retain(|layer| layer.process == process && layer.layer == Layer::Heap);
    let live = snapshot
        .sites
        .iter()
        .map(|site| site.totals.live_bytes)
        .sum();
    snapshot.layers[0].totals.totals.live_bytes = live;
    Recorded {
        courses,
        ..recorded(snapshot)
    }
}

#[test]
fn totals_are_those_of_the_report() {
    let snapshot = fixture::snapshot_of_python();
    let expected = reported(&snapshot, &Filter::default());
    let recorded = recorded(snapshot);
    for sites in [SITES, 2, 1, 0] {
        let data = of_recording(&recorded, limits(sites, 1));
        let data = serde_json::to_value(data).unwrap();
        assert_eq!(sums(&data), expected, "{sites} sites one by one");
    }
}

#[test]
fn a_page_of_ten_thousand_sites_is_below_2_mb() {
    let recorded = large(10_000);
    let page = written(&recorded);
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    let data = data_of(&page);
    assert_eq!(
        sums(&data),
        reported(&recorded.snapshot, &Filter::default())
    );
    // All of them are there, one by one.
    assert_eq!(data["sites"]["node"].as_array().unwrap().len(), 10_000);
}

#[test]
fn courses_end_with_the_figures_of_their_sites() {
    let recorded = large(30);
    for (sites, step) in [(30, 1), (30, 7), (10, 24)] {
        let data = serde_json::to_value(of_recording(&recorded, limits(sites, step))).unwrap();
        let courses = data["sites"]["courses"].as_array().unwrap();
        let last = data["times"].as_array().unwrap().len() - 1;
        for (site, course) in courses.iter().enumerate() {
            let course: Vec<i64> = serde_json::from_value(course.clone()).unwrap();
            let (mut at, mut sum) = (0, [0; 4]);
            for change in course.chunks(5) {
                at += usize::try_from(change[0]).unwrap();
                assert!(
                    (last - at).is_multiple_of(step),
                    "{at} with steps of {step}"
                );
                for (sum, change) in sum.iter_mut().zip(&change[1..]) {
                    *sum += change;
                }
            }
            let columns = ["live", "blocks", "allocated", "allocations"];
            let figures = columns.map(|column| data["sites"][column][site].as_i64().unwrap());
            assert_eq!(sum, figures, "site {site} with steps of {step}");
        }
    }
}

#[test]
fn hostile_names_stay_text() {
    const HOSTILE: &str = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{data}}";
    let mut snapshot = fixture::snapshot();
    let mut frame = fixture::frames(&snapshot, &snapshot.sites[1])[0].clone();
    frame.function = Some(HOSTILE.into());
    frame.file = Some(HOSTILE.into());
    snapshot
        .stacks
        .put(StackId(2), End::Complete, None, [frame]);
    let row = &mut snapshot.processes[0].row;
    row.comm = HOSTILE.into();
    row.cmdline = vec![HOSTILE.into()];
    snapshot.meta.host = HOSTILE.into();
    let mut recorded = recorded(snapshot);
    recorded.facts = vec![Fact {
        process: None,
        field: HOSTILE.into(),
        value: HOSTILE.into(),
    }];
    let page = written(&recorded);
    assert!(
        !page.contains("<script>alert") && !page.contains("<img"),
        "markup from a name"
    );
    assert_eq!(page.matches("</script").count(), 2);
    let data = data_of(&page);
    let strings = data["strings"].as_array().unwrap();
    assert!(
        strings
            .iter()
            .any(|text| text.as_str().unwrap().contains("<script>alert(1)"))
    );
}

#[test]
fn only_the_pages_own_script_and_style_are_allowed() {
    let page = written(&recorded(fixture::snapshot()));
    let policy = element(&page, "Content-Security-Policy\" content=\"", "\"");
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    for (tag, end) in [("<script>", "</script>"), ("<style>", "</style>")] {
        let hash = BASE64_STANDARD.encode(Sha256::digest(element(&page, tag, end)));
        assert!(
            policy.contains(&format!("'sha256-{hash}'")),
            "{tag}: {policy}"
        );
    }
    assert!(!page.contains("http://") || page.contains("http://www.w3.org/2000/svg"));
    for reference in ["src=", "href=\"http", "@import", "url("] {
        assert!(!page.contains(reference), "{reference}");
    }
}

#[test]
fn the_verdict_has_the_words_of_diagnose() {
    for name in ["c-pool-leak", "cpp-history-leak", "c-pool-ok"] {
        let (_folder, recording) = snapshots::read(name);
        let recorded = Recorded::read(&recording).unwrap();
        let page = written(&recorded);
        let mut text = Vec::new();
        let filter = Filter::default();
        crate::render::diagnosis(&mut text, &recorded.verdicts, None, &filter).unwrap();
        for line in String::from_utf8(text).unwrap().lines() {
            assert!(page.contains(&escaped(line)), "{name}: {line}");
        }
        let found = &recorded.verdicts;
        let findings = findings(found, &filter);
        assert!(!findings.is_empty(), "{name}");
        for item in findings.iter().flat_map(|finding| items(finding, found)) {
            assert!(page.contains(&marked(&item.text)), "{name}: {item:?}");
        }
        let data = serde_json::to_value(of_recording(&recorded, EVERYTHING)).unwrap();
        assert_eq!(sums(&data), reported(&recorded.snapshot, &filter), "{name}");
    }
}

#[test]
fn sites_of_running_processes_end_as_they_are_reported() {
    let (_folder, recording) = snapshots::read("cpp-history-leak");
    let recorded = Recorded::read(&recording).unwrap();
    let running: Vec<SiteKey> = recorded
        .snapshot
        .sites
        .iter()
        .map(|site| site.key)
        .filter(|key| {
            let mut processes = recorded.snapshot.processes.iter();
            processes.any(|of| of.row.id == key.process && of.row.ended_ns.is_none())
        })
        .collect();
    for site in &recorded.snapshot.sites {
        let Some(course) = recorded.courses.sites.get(&site.key) else {
            continue;
        };
        if running.contains(&site.key) {
            let live: i64 = course.iter().map(|(_, change)| change[0]).sum();
            assert_eq!(live, site.totals.live_bytes as i64, "{:?}", site.key);
        }
    }
    let ends = recorded.courses.times_ns.last().copied();
    assert_eq!(ends, recorded.snapshot.time_ns);
}

/// Relative luminance of a colour such as `#0a58a8` (WCAG 2.2).
fn luminance(colour: &str) -> f64 {
    let channel = |at: usize| {
        let value = u8::from_str_radix(&colour[at..at + 2], 16).unwrap();
        let value = f64::from(value) / 255.0;
        match value <= 0.04045 {
            true => value / 12.92,
            false => ((value + 0.055) / 1.055).powf(2.4),
        }
    };
    0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
}

#[test]
fn text_stands_out_in_light_and_dark() {
    const PAIRS: [(&str, &[&str]); 10] = [
        ("text", &["back", "panel", "mark"]),
        ("quiet", &["back", "panel"]),
        ("accent", &["back"]),
        ("bad", &["back"]),
        ("own-text", &["own"]),
        ("library-text", &["library"]),
        ("gap-text", &["gap"]),
        ("match-text", &["match"]),
        ("more-text", &["more1", "more2", "more3"]),
        ("less-text", &["less1", "less2", "less3"]),
    ];
    let (light, dark) = STYLE.split_once("prefers-color-scheme: dark").unwrap();
    for (theme, style) in [("light", light), ("dark", dark)] {
        let luminance = |name: &str| {
            let (_, value) = style.split_once(&format!("--{name}: ")).unwrap();
            luminance(value.split(';').next().unwrap())
        };
        for (text, backs) in PAIRS {
            for back in backs {
                let (a, b) = (luminance(text), luminance(back));
                let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                assert!(contrast >= 4.5, "{theme}: {text} on {back}: {contrast:.2}");
            }
        }
    }
}
