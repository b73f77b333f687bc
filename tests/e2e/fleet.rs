//! `memtrace fleet` names the fact that separates the hosts that grow from the others.

use memtrace_tests::{
    Fixture,
    record::{self, Record},
    running::Running,
    targets,
};
use rusqlite::Connection;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Hosts of each kind.
const HOSTS: usize = 8;

/// Steps of a program: two and a half seconds.
const STEPS: &str = "500";

/// A recording as from this many hosts, with their numbers as processors' microcode.
fn hosts(fixture: &Fixture, name: &str, recording: &Path) -> Vec<PathBuf> {
    (0..HOSTS)
        .map(|number| {
            let path = fixture.path(&format!("{name}-{number}.mtr"));
            fs::copy(recording, &path).expect("a copy");
            let connection = Connection::open(&path).expect("a database");
            let changes = format!(
                "UPDATE recording SET meta = json_set(meta, '$.host', '{name}-{number}');
                 INSERT INTO string (id, text) SELECT max(id) + 1, 'cpu.microcode' FROM string;
                 INSERT INTO string (id, text) SELECT max(id) + 1, '0x{number}' FROM string;
                 INSERT OR REPLACE INTO fact (process, field, value)
                     SELECT min(process), (SELECT max(id) - 1 FROM string), (SELECT max(id) FROM string) FROM fact;"
            );
            connection.execute_batch(&changes).expect("a changed file");
            path
        })
        .collect()
}

#[test]
fn the_variable_that_grows_memory_is_named() {
    let fixture = Fixture::new();
    let program = targets::program("diff/run.c");
    let library = targets::library("diff/isa.c");
    let recorded = |name: &str, wrapper: &[&str]| {
        let program = [program.as_os_str(), library.as_os_str(), STEPS.as_ref()];
        let command = wrapper.iter().map(AsRef::as_ref).chain(program);
        let record = Record::launch(&fixture, &["--interval", "50ms"], command);
        let file = record.file.clone();
        record.running.wait().expect_code(7);
        hosts(&fixture, name, &file)
    };
    let good = recorded("good", &[]);
    let bad = recorded("bad", &["env", "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2"]);

    let mut command = record::command(["diff", "--format=json", "--good"]);
    command.args(&good).arg("--bad").args(&bad);
    let compared = Running::start(&mut command).wait();
    let compared: Value = serde_json::from_str(&compared.expect_code(0).stdout).expect("JSON");
    let cause = &compared["separation"]["causes"][0];
    let fields = cause["conditions"].as_array().expect("conditions");
    let has = |field: &str| fields.iter().any(|of| of["field"] == field);
    assert!(
        has("env.GLIBC_TUNABLES") && !has("cpu.microcode"),
        "{compared:#}"
    );
    assert_eq!(cause["with"]["grow"], HOSTS, "{compared:#}");
    assert_eq!(cause["without"]["grow"], 0, "{compared:#}");
    assert!(cause["chance"].as_f64().expect("a number") < 0.01);

    // The same by the verdicts; the recordings of this host are among them. A file that is none is left out.
    let folder = good[0].parent().expect("a folder");
    fs::write(folder.join("other.mtr"), "text").expect("a file");
    let fleet = Running::start(record::command(["fleet"]).arg(folder)).wait();
    let fleet = fleet.expect_code(0);
    assert!(
        fleet
            .stdout
            .contains("memory grows on 9 hosts, and does not on 8\n")
            && fleet.stdout.contains("\n  env.GLIBC_TUNABLES = ")
            && fleet.stderr.contains("other.mtr"),
        "{fleet:?}"
    );
}
