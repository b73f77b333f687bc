//! The output of `memtrace export --format json` besides allocations: facts, and figures over time.

use crate::{record, running::Running};
use serde_json::Value;
use std::path::Path;

/// An export.
pub struct Export(Value);

/// Exports a recording at its end.
#[track_caller]
pub fn read(recording: &Path) -> Export {
    let mut command = record::command(["export", "--format", "json", "--at", "end"]);
    let finished = Running::start(command.arg(recording)).wait().expect_code(0);
    Export(serde_json::from_str(&finished.stdout).unwrap())
}

impl Export {
    /// The tgid of the only process whose name, as of its end, begins like this.
    #[track_caller]
    pub fn process(&self, name: &str) -> u64 {
        let processes = self.0["processes"].as_array().unwrap();
        let named = |process: &&Value| process["comm"].as_str().unwrap().starts_with(name);
        let found: Vec<_> = processes.iter().filter(named).collect();
        assert_eq!(found.len(), 1, "{name}: {processes:#?}");
        found[0]["tgid"].as_u64().unwrap()
    }

    /// A fact of the machine.
    #[track_caller]
    pub fn machine(&self, field: &str) -> &str {
        let facts = &self.0["facts"]["machine"];
        let value = facts[field].as_str();
        value.unwrap_or_else(|| panic!("no {field}: {facts:#}"))
    }

    /// A fact of a process.
    pub fn find(&self, tgid: u64, field: &str) -> Option<&str> {
        self.of("facts", "processes", tgid)["facts"][field].as_str()
    }

    /// A fact of a process that must be there.
    #[track_caller]
    pub fn fact(&self, tgid: u64, field: &str) -> &str {
        self.find(tgid, field).unwrap_or_else(|| {
            let facts = self.of("facts", "processes", tgid);
            panic!("no {field}: {facts:#}")
        })
    }

    fn of(&self, part: &str, list: &str, tgid: u64) -> &Value {
        let processes = self.0[part][list].as_array().unwrap().iter();
        let mut found = processes.filter(|process| process["tgid"] == tgid);
        found.next().unwrap()
    }

    /// The last sample of a process that has this figure.
    #[track_caller]
    pub fn last_memory(&self, tgid: u64, with: &str) -> &Value {
        let series = self.0["memory"].as_array().unwrap().iter();
        let series = series.filter(|series| series["tgid"] == tgid);
        last(
            series.flat_map(|series| series["samples"].as_array().unwrap()),
            with,
        )
    }

    /// The last sample of a process's control group that has this figure.
    #[track_caller]
    pub fn last_cgroup(&self, tgid: u64, with: &str) -> &Value {
        let series = self.0["cgroups"].as_array().unwrap().iter();
        let series = series.filter(|series| series["tgid"] == tgid);
        last(
            series.flat_map(|series| series["samples"].as_array().unwrap()),
            with,
        )
    }

    /// The last sample of the machine.
    #[track_caller]
    pub fn last_system(&self) -> &Value {
        last(self.0["system"].as_array().unwrap().iter(), "mem_total")
    }
}

#[track_caller]
fn last<'a>(samples: impl Iterator<Item = &'a Value>, with: &str) -> &'a Value {
    let found = samples.filter(|sample| sample[with].is_u64()).last();
    found.unwrap_or_else(|| panic!("no sample has {with}"))
}
