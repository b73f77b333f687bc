//! Every export has the report's totals. Each format is decoded here as its readers do, not by memtrace.

use memtrace_tests::{
    Fixture,
    profiles::{METRICS, Totals, add, otlp, perfetto, pprof},
    record::{self, Record},
    report::Report,
    running::Running,
    targets,
    terminal::Terminal,
};
use serde_json::Value;
use std::{fs, path::PathBuf};

/// One figure, 0 for the others.
fn only(metric: &str, value: u64) -> [u64; 4] {
    METRICS.map(|name| if name == metric { value } else { 0 })
}

/// The bytes, without layers that have none.
fn bytes(mut totals: Totals) -> Totals {
    for [_, _, live, allocated] in totals.values_mut() {
        (*live, *allocated) = (0, 0);
    }
    totals.retain(|_, figures| *figures != [0; 4]);
    totals
}

/// A recording at one of its moments.
struct Recorded<'a> {
    fixture: &'a Fixture,
    file: PathBuf,
    at: &'static str,
}

impl Recorded<'_> {
    fn text(&self, options: &[&str]) -> String {
        let (command, options) = options.split_first().expect("a command");
        let mut memtrace = record::command([command, "--at", self.at]);
        let memtrace = memtrace.arg(&self.file).args(options);
        let finished = Running::start(memtrace).wait();
        finished.expect_code(0).stdout
    }

    fn exported(&self, format: &str) -> PathBuf {
        let output = self.fixture.path(&format!("{}.{format}", self.at));
        let name = output.to_str().expect("a path of ASCII");
        self.text(&["export", "--format", format, "-f", "-o", name]);
        output
    }

    fn json(&self, format: &str) -> Value {
        let text = fs::read(self.exported(format)).expect("it was written");
        serde_json::from_slice(&text).expect("JSON")
    }

    fn report(&self) -> Totals {
        let report = Report::parse(&self.text(&["report", "--format", "json"]));
        let mut totals = Totals::new();
        for of in report.expect("a report").totals {
            let figures = [of.live_bytes, of.alloc_bytes, of.live_count, of.alloc_count];
            add(&mut totals, of.tgid, &of.layer, figures);
        }
        totals.retain(|_, figures| *figures != [0; 4]);
        totals
    }

    fn collapsed(&self) -> Totals {
        let mut totals = Totals::new();
        for metric in METRICS {
            let lines = self.text(&["export", "--format", "collapsed", "--metric", metric]);
            for line in lines.lines() {
                let (stack, value) = line.rsplit_once(' ').expect("a value");
                let mut parts = stack.split(';');
                let pid = pid(parts.next().expect("a process"));
                let layer = parts.next().expect("a layer");
                add(&mut totals, pid, layer, only(metric, number(value)));
            }
        }
        totals
    }

    fn speedscope(&self) -> Totals {
        let file = self.json("speedscope");
        let mut totals = Totals::new();
        for profile in list(&file["profiles"]) {
            let name = profile["name"].as_str().expect("a name");
            let (layer, metric) = name.split_once(", ").expect("a layer and a metric");
            let samples = list(&profile["samples"]).iter();
            for (stack, weight) in samples.zip(list(&profile["weights"])) {
                let root = &file["shared"]["frames"][index(&stack[0])]["name"];
                let pid = pid(root.as_str().expect("a process"));
                let figures = only(metric, weight.as_u64().expect("bytes"));
                add(&mut totals, pid, layer, figures);
            }
        }
        totals
    }

    fn firefox(&self) -> Totals {
        let profile = self.json("firefox");
        let mut totals = Totals::new();
        for thread in list(&profile["threads"]) {
            let pid = thread["pid"].as_str().expect("a pid");
            let pid = pid.split('.').next().expect("before the point");
            let layer = thread["name"].as_str().expect("a layer");
            for (table, metric) in [("samples", METRICS[0]), ("nativeAllocations", METRICS[1])] {
                let weights = list(&thread[table]["weight"]).iter();
                let sum = weights.map(|weight| weight.as_u64().expect("bytes")).sum();
                add(&mut totals, number(pid) as u32, layer, only(metric, sum));
            }
        }
        totals
    }

    fn csv(&self) -> Totals {
        let text = fs::read_to_string(self.exported("csv")).expect("it was written");
        let mut rows = text.split_terminator("\r\n");
        let names: Vec<&str> = rows.next().expect("names").split(',').collect();
        let mut totals = Totals::new();
        // No name that the target has needs quotes before the figures.
        for row in rows {
            let fields: Vec<&str> = row.split(',').collect();
            let field = |name: &str| {
                let at = names.iter().position(|of| *of == name).expect(name);
                fields[at]
            };
            let figures = METRICS.map(|metric| number(field(&metric.replace('-', "_"))));
            add(
                &mut totals,
                number(field("tgid")) as u32,
                field("layer"),
                figures,
            );
        }
        totals.retain(|_, figures| *figures != [0; 4]);
        totals
    }

    fn bytes(&self, format: &str) -> Vec<u8> {
        fs::read(self.exported(format)).expect("it was written")
    }
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

fn index(value: &Value) -> usize {
    value.as_u64().expect("a place") as usize
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

/// Of `name (pid)`.
fn pid(process: &str) -> u32 {
    let (_, pid) = process.rsplit_once(" (").expect("a pid");
    number(pid.trim_end_matches(')')) as u32
}

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

/// A program with threads and children, at the end of each process and at its peak.
#[test]
fn totals_of_every_format() {
    let fixture = Fixture::new();
    let file = recorded(&fixture);
    for at in ["end", "peak"] {
        let (fixture, file) = (&fixture, file.clone());
        let recorded = Recorded { fixture, file, at };
        let report = recorded.report();
        assert!(report.len() > 8, "five processes: {report:#?}");
        assert_eq!(
            pprof::read(&recorded.bytes("pprof")).totals(),
            report,
            "pprof, {at}"
        );
        assert_eq!(
            otlp::read(&recorded.bytes("otlp")).totals(),
            report,
            "OTLP, {at}"
        );
        let trace = perfetto::read(&recorded.bytes("perfetto"));
        assert_eq!(trace.totals(), report, "Perfetto, {at}");
        assert_eq!(recorded.csv(), report, "CSV, {at}");
        assert_eq!(recorded.collapsed(), report, "collapsed stacks, {at}");
        assert_eq!(
            bytes(recorded.speedscope()),
            bytes(report.clone()),
            "speedscope, {at}"
        );
        assert_eq!(bytes(recorded.firefox()), bytes(report), "Firefox, {at}");
    }
    // A known site: two blocks, of 640 and of 100 bytes, are kept.
    let recorded = Recorded {
        fixture: &fixture,
        file,
        at: "end",
    };
    let profile = pprof::read(&recorded.bytes("pprof"));
    let (live, places) = profile.below("site_posix_memalign");
    assert_eq!(live, 740);
    for (file, line) in places {
        assert!(file.ends_with("exact.c") && line > 0, "{file}:{line}");
    }
}

#[test]
fn a_binary_format_is_not_written_to_a_terminal() {
    let fixture = Fixture::new();
    let record = Record::launch(&fixture, &[], ["true"]);
    let file = record.file.clone();
    record.finish(0);
    let mut export = record::command(["export", "--format", "pprof"]);
    let mut terminal = Terminal::start(export.arg(&file));
    terminal.await_text("`-o profile.pb.gz`");
    assert!(!terminal.end().success());
    // A pipe gets it.
    let piped = record::command(["export", "--format", "pprof"])
        .arg(&file)
        .output();
    let piped = piped.expect("memtrace runs");
    assert!(
        piped.status.success() && piped.stdout.starts_with(&[0x1f, 0x8b]),
        "{piped:?}"
    );
}
