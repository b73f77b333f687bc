//! Snapshots as JSON. Times are nanoseconds since the start of the recording,
//! sizes bytes, frames leaf first. Names are stable: they are only added to.

use std::io::Write;

use serde_json::{Map, Value, json};

use super::{
    By, Error, Filter, Metric, devices, group,
    health::{self, Health},
    interpreter, moment_name,
    select::{Selection, Shown},
    until_closed, wrappers,
};
use crate::{
    ledger::{ProcessId, Totals},
    recording::{At, MemorySample, Moment, ProcessSnapshot, Snapshot},
};

/// Writes a report: the sites that `filter` leaves, the first `top` of them in the order of `sort`.
///
/// # Errors
///
/// When ages are asked for and not known, or when the output cannot be written.
pub fn json(
    out: &mut impl Write,
    snapshot: &Snapshot,
    filter: &Filter,
    sort: Metric,
    top: Option<usize>,
) -> Result<(), Error> {
    let mut selection = filter.select(snapshot, sort)?;
    let shown = top.unwrap_or(usize::MAX).min(selection.sites.len());
    for site in selection.sites.drain(shown..) {
        selection.hidden_sites += 1;
        selection.hidden_bytes += site.totals.live_bytes;
    }
    print(out, &report(snapshot, filter, &selection))
}

/// Writes a report with groups in place of sites: the first `top` of them in the order of `sort`,
/// the others summed up.
///
/// # Errors
///
/// When ages are asked for and not known, or groups in the order of their peaks, or when the output
/// cannot be written.
pub fn json_groups(
    out: &mut impl Write,
    snapshot: &Snapshot,
    filter: &Filter,
    by: By,
    sort: Metric,
    top: Option<usize>,
) -> Result<(), Error> {
    let mut selection = filter.select(snapshot, sort)?;
    let groups = group::groups(&selection, by, sort)?;
    let (listed, unlisted) = groups.split_at(top.unwrap_or(usize::MAX).min(groups.len()));
    selection.sites.clear();
    let mut value = report(snapshot, filter, &selection);
    if let Value::Object(report) = &mut value {
        report.remove("sites");
    }
    value["groups"] = listed.iter().map(group::Group::json).collect();
    value["rest"] = group::rest_json(unlisted);
    print(out, &value)
}

/// Writes the object `stack_health` of the report alone.
///
/// # Errors
///
/// When the output cannot be written.
pub fn stack_health_json(
    out: &mut impl Write,
    snapshot: &Snapshot,
    filter: &Filter,
) -> Result<(), Error> {
    print(out, &Health::of(snapshot, filter).json())
}

/// Writes the whole snapshot with all its sites, their births, and each process's memory over time.
///
/// # Errors
///
/// When the output cannot be written.
pub fn export(
    out: &mut impl Write,
    snapshot: &Snapshot,
    memory: &[(ProcessId, Vec<(u64, MemorySample)>)],
) -> Result<(), Error> {
    let everything = Filter::default();
    let selection = everything.select(snapshot, Metric::LiveBytes)?;
    let mut value = report(snapshot, &everything, &selection);
    let since_start = Since(snapshot.meta.started_ns);
    let series = memory.iter().map(|(id, samples)| {
        let tgid = snapshot
            .processes
            .iter()
            .find(|process| process.row.id == *id)
            .map(|process| process.row.tgid);
        let samples = samples.iter().map(|(time_ns, sample)| {
            let mut value = json!(sample);
            value["time"] = json!(since_start.of(*time_ns));
            value
        });
        json!({ "process": id.0, "tgid": tgid, "samples": samples.collect::<Vec<_>>() })
    });
    value["memory"] = series.collect();
    print(out, &value)
}

fn print(out: &mut impl Write, value: &Value) -> Result<(), Error> {
    let written = serde_json::to_writer_pretty(&mut *out, value)
        .map_err(std::io::Error::from)
        .and_then(|()| writeln!(out))
        .and_then(|()| out.flush());
    Ok(until_closed(written)?)
}

/// Turns CLOCK_MONOTONIC into time since the start.
#[derive(Clone, Copy)]
struct Since(u64);

impl Since {
    fn of(self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.0)
    }
}

fn report(snapshot: &Snapshot, filter: &Filter, selection: &Selection) -> Value {
    let since = Since(snapshot.meta.started_ns);
    let process = |id: ProcessId| snapshot.processes.iter().find(|p| p.row.id == id);
    let processes = snapshot
        .processes
        .iter()
        .filter(|process| filter.pid.is_none_or(|pid| pid == process.row.tgid))
        .map(|process| process_value(process, since));
    let totals = snapshot
        .layers
        .iter()
        .filter(|layer| filter.covers(process(layer.process), layer.layer))
        .map(|layer| {
            let mut value = figures(&layer.totals.totals, since);
            value["process"] = json!(layer.process.0);
            value["tgid"] = json!(process(layer.process).map(|process| process.row.tgid));
            value["layer"] = json!(layer.layer.name());
            value["before_attach_bytes"] = json!(layer.totals.before_attach_bytes);
            value["cleared_by_exec_bytes"] = json!(layer.totals.cleared_by_exec_bytes);
            value["cleared_by_exec_count"] = json!(layer.totals.cleared_by_exec_count);
            value
        });
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
        "totals": totals.collect::<Vec<_>>(),
        "sites": selection.sites.iter().map(|site| site_value(site, since)).collect::<Vec<_>>(),
        "hidden": { "sites": selection.hidden_sites, "live_bytes": selection.hidden_bytes },
        "older": selection.ages.map(|ages| json!({
            "than": u64::try_from(ages.older.as_nanos()).unwrap_or(u64::MAX),
            "scanned": since.of(ages.time_ns),
        })),
        "devices": devices::json(snapshot, filter),
        "device_failures": devices::failures_json(snapshot, filter, |time| since.of(time)),
        "libraries": devices::libraries_json(snapshot),
        "stack_health": Health::of(snapshot, filter).json(),
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
        "rss_at_start": row.rss_at_start,
        "at": match process.moment {
            Moment::Time(time) => json!(since.of(time)),
            named => json!(moment_name(named)),
        },
    })
}

fn site_value(shown: &Shown, since: Since) -> Value {
    let site = shown.site;
    let mut value = figures(&shown.totals, since);
    value["process"] = json!(site.key.process.0);
    value["tgid"] = json!(shown.tgid());
    value["layer"] = json!(site.key.layer.name());
    value["by_allocator"] = json!(site.key.by_allocator);
    value["device"] = json!(site.key.device);
    value["first"] = json!(since.of(site.first_ns));
    value["last"] = json!(site.last_ns.map(|time| since.of(time)));
    value["lifetimes"] = json!(site.lifetimes.map(|counts| counts.to_vec()));
    value["births"] = json!(site.births.as_ref().map(|at| {
        let rows = at.births.rows.iter();
        let rows = rows.map(|(edge, bytes, count)| (since.of(*edge), *bytes, *count));
        json!({ "time": since.of(at.time_ns), "rows": rows.collect::<Vec<_>>() })
    }));
    value["end"] = json!(health::name(site.stack.end));
    value["thread"] = json!(site.stack.thread);
    let frames = &site.stack.frames;
    value["frames"] = json!(frames);
    for index in 0..wrappers::leading(frames) {
        value["frames"][index]["wrapper"] = json!(true);
    }
    for (index, mark) in interpreter::marks(frames).into_iter().enumerate() {
        if mark {
            value["frames"][index]["interpreter"] = json!(true);
        }
    }
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
