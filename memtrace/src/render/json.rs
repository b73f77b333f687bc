//! Snapshots as JSON. Times are nanoseconds since the start of the recording,
//! sizes bytes. Sites refer to stacks and stacks to frames, leaf first, by their places in lists.

mod groups;
mod health;
mod stacks;

pub(super) use self::groups::listed as group_list;

use std::{collections::HashMap, io::Write};

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value, json};

use self::stacks::{Place, StackTable};
use super::{Error, device_table, diagnosis, holders, json_lines::print, moment_name, types};
use crate::{
    analysis::verdict::Diagnosis,
    ledger::{LIFETIME_BUCKETS, ProcessId, Totals},
    recording::{
        At, CgroupSample, Fact, MemorySample, Moment, ProcessSnapshot, Snapshot, SystemSample,
    },
    view::{By, Filter, Metric, Selection, Shown, group, health::Health},
};

/// Writes a report: the sites that pass `filter`, the first `top` of them sorted by `sort`, and the
/// verdicts.
///
/// # Errors
///
/// When ages are requested but unknown, or when the output cannot be written.
pub(crate) fn json(
    out: &mut impl Write,
    snapshot: &Snapshot,
    filter: &Filter,
    sort: Metric,
    top: Option<usize>,
    verdicts: &Diagnosis,
) -> Result<(), Error> {
    let mut selection = filter.select(snapshot, sort)?;
    let shown = top.unwrap_or(usize::MAX).min(selection.sites.len());
    for site in selection.sites.split_off(shown) {
        selection.hide(site.site.key.layer, site.live_bytes);
    }
    let mut report = JsonReport::with_sites(snapshot, filter, &selection);
    let stacks = &mut report.stacks;
    let of_each = diagnosis::verdicts_json(
        verdicts,
        filter,
        |id| json!({ "stack": id.map(|id| stacks.add(id)) }),
    );
    report.add("verdicts", of_each);
    report.add("job", diagnosis::job_json(verdicts, filter));
    report.add("untraced", diagnosis::untraced_json(verdicts));
    report.add("types", types::json(verdicts, filter));
    print(out, &report)
}

/// Writes a report with groups in place of sites: the first `top` of them sorted by `sort`, the
/// others summed.
///
/// # Errors
///
/// When ages are requested but unknown, or groups in the order of their peaks, or when the output
/// cannot be written.
pub(crate) fn json_groups(
    out: &mut impl Write,
    snapshot: &Snapshot,
    filter: &Filter,
    by: By,
    sort: Metric,
    top: Option<usize>,
) -> Result<(), Error> {
    let selection = filter.select(snapshot, sort)?;
    let groups = group::groups(&selection, by, sort)?;
    let (listed, unlisted) = groups.split_at(top.unwrap_or(usize::MAX).min(groups.len()));
    let mut report = JsonReport::new(snapshot, filter, &selection);
    report.add("groups", groups::listed(listed));
    report.add("rest", groups::rest(unlisted));
    print(out, &report)
}

/// Writes the object `stack_health` of the report alone.
pub(crate) fn stack_health_json(
    out: &mut impl Write,
    snapshot: &Snapshot,
    filter: &Filter,
) -> Result<(), Error> {
    print(out, &health::object(&Health::of(snapshot, filter)))
}

/// Writes the whole snapshot with all its sites and their births, and `series`.
pub(crate) fn export(
    out: &mut impl Write,
    snapshot: &Snapshot,
    series: &Series,
) -> Result<(), Error> {
    let everything = Filter::default();
    let selection = everything.select(snapshot, Metric::LiveBytes)?;
    let mut report = JsonReport::with_sites(snapshot, &everything, &selection);
    let since_start = Since(snapshot.meta.started_ns);
    let rows = snapshot.processes.iter().map(|process| &process.row);
    let tgids: HashMap<ProcessId, u32> = rows.map(|row| (row.id, row.tgid)).collect();
    let tgid = |id: ProcessId| tgids.get(&id);
    let of_process = |id: ProcessId, samples: Value| json!({ "process": id.0, "tgid": tgid(id), "samples": samples });
    let memory = series.memory.iter();
    let memory = memory.map(|(id, samples)| of_process(*id, timed(since_start, samples)));
    report.add("memory", memory.collect());
    let cgroups = series.cgroups.iter();
    let cgroups = cgroups.map(|(id, samples)| of_process(*id, timed(since_start, samples)));
    report.add("cgroups", cgroups.collect());
    report.add("system", timed(since_start, &series.system));
    let mut facts: HashMap<Option<ProcessId>, Map<String, Value>> = HashMap::new();
    for fact in &series.facts {
        let of = facts.entry(fact.process).or_default();
        of.insert(fact.field.clone(), json!(fact.value));
    }
    let mut facts = |of: Option<ProcessId>| facts.remove(&of).unwrap_or_default();
    let machine = facts(None);
    let processes = snapshot.processes.iter().map(|process| {
        let id = process.row.id;
        json!({ "process": id.0, "tgid": process.row.tgid, "facts": facts(Some(id)) })
    });
    let processes: Value = processes.collect();
    report.add(
        "facts",
        json!({ "machine": machine, "processes": processes }),
    );
    print(out, &report)
}

/// Contents of a recording besides a moment's allocations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    pub memory: Vec<(ProcessId, Vec<(u64, MemorySample)>)>,
    pub cgroups: Vec<(ProcessId, Vec<(u64, CgroupSample)>)>,
    pub system: Vec<(u64, SystemSample)>,
    pub facts: Vec<Fact>,
}

/// Samples, each with its time since the start.
fn timed(since_start: Since, samples: &[(u64, impl Serialize)]) -> Value {
    let samples = samples.iter().map(|(time_ns, sample)| {
        let mut value = json!(sample);
        value["time"] = json!(since_start.of(*time_ns));
        value
    });
    samples.collect()
}

/// Turns CLOCK_MONOTONIC into time since the start.
#[derive(Clone, Copy)]
struct Since(u64);

impl Since {
    fn of(self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.0)
    }
}

/// A report. Its sites are generated one at a time while it is written: all of them would take
/// gigabytes.
struct JsonReport<'a> {
    parts: Map<String, Value>,
    stacks: StackTable<'a>,
    sites: Option<Sites<'a>>,
}

struct Sites<'a> {
    snapshot: &'a Snapshot,
    shown: &'a [Shown<'a>],
    /// Stack of each site.
    stacks: Vec<Place>,
}

impl<'a> JsonReport<'a> {
    fn new(snapshot: &'a Snapshot, filter: &Filter, selection: &Selection) -> JsonReport<'a> {
        let mut report = JsonReport {
            parts: Map::new(),
            stacks: StackTable::new(&snapshot.stacks),
            sites: None,
        };
        if let Value::Object(parts) = parts(snapshot, filter, selection, &mut report.stacks) {
            report.parts = parts;
        }
        report
    }

    fn with_sites(
        snapshot: &'a Snapshot,
        filter: &Filter,
        selection: &'a Selection<'a>,
    ) -> JsonReport<'a> {
        let mut report = JsonReport::new(snapshot, filter, selection);
        let shown = &selection.sites;
        let stacks = shown
            .iter()
            .map(|site| report.stacks.add(site.site.key.stack));
        let stacks = stacks.collect();
        report.sites = Some(Sites {
            snapshot,
            shown,
            stacks,
        });
        report
    }

    fn add(&mut self, name: &str, part: Value) {
        self.parts.insert(name.to_owned(), part);
    }
}

impl Serialize for JsonReport<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut report = serializer.serialize_map(None)?;
        for (name, part) in &self.parts {
            report.serialize_entry(name, part)?;
        }
        let (stacks, frames) = self.stacks.lists();
        report.serialize_entry("frames", &frames)?;
        report.serialize_entry("stacks", &stacks)?;
        if let Some(sites) = &self.sites {
            report.serialize_entry("sites", sites)?;
        }
        report.end()
    }
}

impl Serialize for Sites<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sites = self.shown.iter().zip(&self.stacks);
        let since = Since(self.snapshot.meta.started_ns);
        serializer.collect_seq(sites.map(|(site, stack)| {
            let mut value = site_value(site, *stack, since);
            let held = self.snapshot.holders.get(&site.site.key);
            value["holders"] = json!(held.map(|of| holders::json(of, &self.snapshot.stacks)));
            value
        }))
    }
}

/// Everything but sites.
fn parts(
    snapshot: &Snapshot,
    filter: &Filter,
    selection: &Selection,
    stacks: &mut StackTable,
) -> Value {
    let since = Since(snapshot.meta.started_ns);
    let processes = snapshot.processes.iter();
    let by_id: HashMap<ProcessId, _> = processes.map(|p| (p.row.id, p)).collect();
    let processes = snapshot
        .processes
        .iter()
        .filter(|process| filter.pid.is_none_or(|pid| pid == process.row.tgid))
        .map(|process| process_value(process, since));
    let totals = snapshot
        .layers
        .iter()
        .filter(|layer| filter.covers(by_id.get(&layer.process).copied(), layer.layer))
        .map(|layer| {
            let mut value = figures(&layer.totals.totals, since);
            value["process"] = json!(layer.process.0);
            value["tgid"] = json!(by_id.get(&layer.process).map(|process| process.row.tgid));
            value["layer"] = json!(layer.layer.name());
            value["before_attach_bytes"] = json!(layer.totals.before_attach_bytes);
            value["cleared_by_exec_bytes"] = json!(layer.totals.cleared_by_exec_bytes);
            value["cleared_by_exec_count"] = json!(layer.totals.cleared_by_exec_count);
            value
        });
    let hidden = selection.hidden_bytes.iter();
    let hidden: Map<String, Value> = hidden
        .map(|(layer, bytes)| (layer.name().to_owned(), json!(bytes)))
        .collect();
    let losses: Map<String, Value> = snapshot
        .losses
        .iter()
        .map(|(reason, count)| (reason.name().to_owned(), json!(count)))
        .collect();
    json!({
        "at": match snapshot.at {
            At::Default => json!("default"),
            At::End => json!("end"),
            At::Peak => json!("peak"),
            At::Time(since_start) => json!(since_start),
        },
        "meta": snapshot.meta,
        "time": snapshot.time_ns.map(|time| since.of(time)),
        "finished": snapshot.finished_ns.map(|time| since.of(time)),
        "processes": processes.collect::<Vec<_>>(),
        "left_out": snapshot.left_out,
        "totals": totals.collect::<Vec<_>>(),
        "hidden": { "sites": selection.hidden_sites, "live_bytes": hidden },
        "older": selection.ages.map(|ages| json!({
            "than": u64::try_from(ages.older.as_nanos()).unwrap_or(u64::MAX),
            "scanned": since.of(ages.time_ns),
        })),
        "devices": device_table::json(snapshot, filter),
        "device_failures": device_table::failures_json(
            snapshot,
            filter,
            |time| since.of(time),
            |stack| stacks.add(stack),
        ),
        "libraries": device_table::libraries_json(snapshot),
        "stack_health": health::object(&Health::of(snapshot, filter)),
        "losses": losses,
        "emitted": snapshot.emitted,
        "received": snapshot.received,
    })
}

fn process_value(process: &ProcessSnapshot, since: Since) -> Value {
    let row = &process.row;
    json!({
        "process": row.id.0,
        "tgid": row.tgid,
        "ppid": row.ppid,
        "origin": row.origin,
        "comm": row.comm,
        "cmdline": row.cmdline,
        "started": since.of(row.started_ns),
        "ended": row.ended_ns.map(|time| since.of(time)),
        "exit_status": row.exit_status,
        "oom_kills": process.oom_kills,
        "rss_at_start": row.rss_at_start,
        "folded": row.folded,
        "at": match process.moment {
            Moment::Time(time) => json!(since.of(time)),
            named => json!(moment_name(named)),
        },
    })
}

fn site_value(shown: &Shown, stack: Place, since: Since) -> Value {
    let site = shown.site;
    let mut value = figures(&shown.totals(), since);
    value["process"] = json!(site.key.process.0);
    value["tgid"] = json!(shown.tgid());
    value["layer"] = json!(site.key.layer.name());
    value["by_allocator"] = json!(site.key.by_allocator);
    value["device"] = json!(site.key.device);
    value["first"] = json!(since.of(site.first_ns));
    value["last"] = json!(site.last_ns.map(|time| since.of(time)));
    value["lifetimes"] = json!(site.lifetimes.as_ref().map(|counts| {
        let mut all = counts.to_vec();
        all.resize(LIFETIME_BUCKETS, 0);
        all
    }));
    value["births"] = json!(site.births.as_ref().map(|at| {
        let rows = at.births.rows.iter();
        let rows = rows.map(|(edge, bytes, count)| (since.of(*edge), *bytes, *count));
        json!({ "time": since.of(at.time_ns), "rows": rows.collect::<Vec<_>>() })
    }));
    value["stack"] = json!(stack);
    value
}

fn figures(totals: &Totals, since: Since) -> Value {
    json!({
        "live_bytes": totals.live_bytes,
        "live_count": totals.live_count,
        "inherited_bytes": totals.inherited_bytes,
        "inherited_count": totals.inherited_count,
        "alloc_bytes": totals.alloc_bytes,
        "alloc_count": totals.alloc_count,
        "free_bytes": totals.free_bytes,
        "free_count": totals.free_count,
        "peak_bytes": totals.peak_bytes,
        "peak_at": (totals.peak_ns > 0).then(|| since.of(totals.peak_ns)),
    })
}

#[cfg(test)]
mod tests;
