//! Pages of `memtrace html` have the figures of `report` and `diff`.

use memtrace_tests::{
    Fixture,
    record::{self, Record},
    report::Report,
    targets,
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// By pid and layer: live bytes and blocks, allocated bytes and blocks.
type Totals = BTreeMap<(u32, String), [u64; 4]>;

fn recorded(fixture: &Fixture) -> PathBuf {
    let truth = fixture.path("truth");
    let library = targets::library("constructor.c");
    let program = targets::program("exact.c");
    let command = [program.as_path(), "run".as_ref(), &truth, &library];
    let record = Record::launch(fixture, &[], command);
    let file = record.file.clone();
    record.finish(7).expect_no_losses(0);
    file
}

fn memtrace(arguments: &[&str]) -> String {
    record::memtrace(arguments).expect_code(0).stdout
}

fn name(path: &Path) -> &str {
    path.to_str().expect("a path of ASCII")
}

/// The data in a page.
fn data(page: &Path) -> Value {
    let page = fs::read_to_string(page).expect("it was written");
    let (_, data) = page.split_once("type=\"application/json\">").expect("data");
    let (data, _) = data.split_once("</script>").expect("an end");
    serde_json::from_str(data).expect("JSON")
}

fn list<'a>(of: &'a Value, name: &str) -> &'a Vec<Value> {
    of[name].as_array().expect(name)
}

fn index(value: &Value) -> usize {
    value.as_u64().expect("a place") as usize
}

fn in_page(data: &Value) -> Totals {
    let mut totals = Totals::new();
    let sites = &data["sites"];
    for site in 0..list(sites, "node").len() {
        let process = &data["processes"][index(&sites["process"][site])]["name"];
        let (_, pid) = process
            .as_str()
            .expect("a name")
            .rsplit_once(" (")
            .expect("a pid");
        let pid = pid.trim_end_matches(')').parse().expect("a number");
        let layer = data["layers"][index(&sites["layer"][site])]["name"].as_str();
        let layer = layer.expect("a name").trim_end_matches(" (by allocator)");
        let sums = totals.entry((pid, layer.to_owned())).or_default();
        let columns = ["live", "blocks", "allocated", "allocations"];
        for (sum, column) in sums.iter_mut().zip(columns) {
            *sum += sites[column][site].as_u64().expect(column);
        }
    }
    totals.retain(|_, figures| *figures != [0; 4]);
    totals
}

fn in_report(file: &Path) -> Totals {
    let text = memtrace(&["report", "--format", "json", name(file)]);
    let totals = Report::parse(&text).expect("a report").totals.into_iter();
    let totals = totals.map(|of| {
        let figures = [of.live_bytes, of.live_count, of.alloc_bytes, of.alloc_count];
        ((of.tgid, of.layer), figures)
    });
    totals.filter(|(_, figures)| *figures != [0; 4]).collect()
}

/// Threads, children and exec'ed programs, some of which leak.
#[test]
fn totals_of_a_page_are_those_of_the_report() {
    let fixture = Fixture::new();
    let file = recorded(&fixture);
    memtrace(&["html", name(&file)]);
    let page = file.with_extension("html");
    let printed = memtrace(&["html", name(&file), "-o", "-"]);
    assert_eq!(printed, fs::read_to_string(&page).expect("a page"));
    let (page, report) = (in_page(&data(&page)), in_report(&file));
    assert!(report.len() > 8, "five processes: {report:#?}");
    assert_eq!(page, report);
}

#[test]
fn a_comparison_has_the_sites_of_diff() {
    let fixture = Fixture::new();
    // A program that has none of the other's sites.
    let record = Record::launch(&fixture, &[], ["true"]);
    let old = fixture.path("old.mtr");
    let file = record.file.clone();
    record.finish(0);
    fs::rename(file, &old).expect("renamed");
    let new = recorded(&fixture);
    let page = fixture.path("growth.html");
    memtrace(&["html", "--diff", name(&old), name(&new), "-o", name(&page)]);
    let data = data(&page);
    let diff = memtrace(&["diff", "--format", "json", name(&old), name(&new)]);
    let diff: Value = serde_json::from_str(&diff).expect("JSON");
    let sum = |values: &[Value]| values.iter().filter_map(Value::as_u64).sum::<u64>();
    for (column, field) in [("live", "new_bytes"), ("baseline_live", "baseline_bytes")] {
        let expected: Vec<Value> = list(&diff, "sites")
            .iter()
            .map(|site| site[field].clone())
            .collect();
        assert_eq!(
            sum(list(&data["sites"], column)),
            sum(&expected),
            "{column}"
        );
    }
    assert!(sum(list(&data["sites"], "live")) > 0, "sites of one side");
    assert_eq!(data["baseline"]["name"], "old.mtr");
}

#[test]
fn an_existing_page_is_kept() {
    let fixture = Fixture::new();
    let file = recorded(&fixture);
    let page = fixture.path("page.html");
    fs::write(&page, "mine").expect("written");
    let arguments = ["html", name(&file), "-o", name(&page)];
    let refused = record::memtrace(arguments).expect_code(2);
    assert!(refused.stderr.contains("--force"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(&page).expect("readable"), "mine");
}
