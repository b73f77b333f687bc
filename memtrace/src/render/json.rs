//! Snapshots as JSON. Times are nanoseconds since the start of the recording,
//! sizes bytes, frames leaf first. Names are stable: they are only added to.

use std::io::Write;

use serde_json::{Map, Value, json};

use super::{
    By, Error, Filter, Metric, group,
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
mod tests {
    use super::{super::fixture, *};

    fn parse(out: &[u8]) -> Value {
        serde_json::from_slice(out).unwrap()
    }

    #[test]
    fn a_report_has_what_scripts_rely_on() {
        let mut out = Vec::new();
        let snapshot = fixture::snapshot();
        json(
            &mut out,
            &snapshot,
            &Filter::default(),
            Metric::LiveBytes,
            None,
        )
        .unwrap();
        let value = parse(&out);
        assert_eq!(value["at"], "default");
        assert_eq!(value["totals"][1]["tgid"], fixture::PARENT);
        assert_eq!(value["totals"][1]["layer"], "heap");
        assert_eq!(value["totals"][1]["live_bytes"], 1 << 20);
        assert_eq!(value["totals"][2]["inherited_bytes"], 2048);
        assert_eq!(value["sites"].as_array().unwrap().len(), 4);
        let site = &value["sites"][0];
        assert_eq!(site["live_count"], 4);
        assert_eq!(site["alloc_bytes"], (1 << 20) + 64);
        assert_eq!(site["alloc_count"], 5);
        assert_eq!(site["end"], "truncated");
        assert_eq!(value["sites"][1]["end"], "complete");
        assert_eq!(value["sites"][2]["end"], "no_stack");
        assert_eq!(site["frames"][0]["function"], "grow;it");
        assert_eq!(site["frames"][0]["inlined"], true);
        assert_eq!(site["frames"][0]["kind"], "native");
        assert_eq!(site["frames"][3]["line"], 7);
        assert_eq!(value["losses"]["ring_full_free"], 5);
        assert_eq!(value["losses"]["ring_full_alloc"], 0);
        let child = &value["processes"][1];
        assert_eq!(child["comm"], "leaker");
        assert_eq!(child["cmdline"][0], "./leaker");
        assert_eq!(child["exit_status"], 768);
        assert_eq!(child["ended"], 5_000_000_000u64);
        assert_eq!(
            (&child["at"], &value["processes"][0]["at"]),
            (&json!("peak"), &json!("end"))
        );
        assert_eq!(
            (&value["emitted"], &value["received"]),
            (&json!(100), &json!(95))
        );
    }

    #[test]
    fn stack_health_is_part_of_a_report_and_stands_alone() {
        let snapshot = fixture::snapshot();
        let filter = Filter::default();
        let mut out = Vec::new();
        json(&mut out, &snapshot, &filter, Metric::LiveBytes, Some(0)).unwrap();
        let report = parse(&out);
        let mut out = Vec::new();
        stack_health_json(&mut out, &snapshot, &filter).unwrap();
        let alone = parse(&out);
        assert_eq!(report["stack_health"], alone);
        let expected = json!({
            "complete": 2,
            "truncated": 5,
            "failed": {
                "no_mapping": 0, "no_table": 0, "no_row": 1, "unsupported_rule": 0,
                "unreadable": 0, "stale": 0, "bad_frame_pointer": 0, "frame_pointers_only": 0,
                "no_stack": 11,
            },
            "by_module": {
                "[unknown]": { "no_stack": 11 },
                "/usr/bin/leaker": { "truncated": 5, "no_row": 1 },
            },
        });
        assert_eq!(alone, expected);
    }

    #[test]
    fn frames_are_whole_and_an_allocators_are_marked() {
        let mut out = Vec::new();
        let snapshot = fixture::snapshot_with_wrappers();
        json(
            &mut out,
            &snapshot,
            &Filter::default(),
            Metric::LiveBytes,
            None,
        )
        .unwrap();
        let value = parse(&out);
        let frames = &value["sites"][0]["frames"];
        assert_eq!(frames[0]["function"], "operator new(unsigned long)");
        assert_eq!(frames[0]["wrapper"], true);
        assert_eq!(frames[1]["function"], "grow;it");
        assert_eq!(frames[1]["wrapper"], Value::Null);
    }

    #[test]
    fn the_interpreters_frames_are_marked_and_threads_named() {
        let mut out = Vec::new();
        let snapshot = fixture::snapshot_of_python();
        let filter = Filter::default();
        json(&mut out, &snapshot, &filter, Metric::LiveBytes, None).unwrap();
        let value = parse(&out);
        let site = &value["sites"][0];
        assert_eq!(site["thread"], "worker");
        assert_eq!(value["sites"][1]["thread"], Value::Null);
        let frames = site["frames"].as_array().unwrap();
        let kinds = frames.iter().map(|frame| frame["kind"].as_str().unwrap());
        let marks = frames.iter().map(|frame| frame["interpreter"] == true);
        let expected = [
            ("native", false),
            ("native", false),
            ("native", true),
            ("python", false),
            ("native", true),
            ("python", false),
            ("native", true),
            ("native", true),
        ];
        assert_eq!(kinds.zip(marks).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn groups_take_the_place_of_sites() {
        let mut out = Vec::new();
        let snapshot = fixture::snapshot_of_python();
        let filter = Filter {
            pid: Some(fixture::PARENT),
            ..Filter::default()
        };
        let (by, sort) = (By::PythonLine, Metric::LiveBytes);
        json_groups(&mut out, &snapshot, &filter, by, sort, Some(1)).unwrap();
        let value = parse(&out);
        assert_eq!(value.get("sites"), None);
        let groups = value["groups"].as_array().unwrap();
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0]["key"], "/src/cache;1.py:41 Cache.fill");
        assert_eq!(groups[0]["layer"], "heap");
        assert_eq!(groups[0]["live_bytes"], 1 << 20);
        assert_eq!(groups[0]["sites"], 1);
        assert_eq!(groups[0].get("peak_bytes"), None);
        let rest = value["rest"].as_array().unwrap();
        let rest: Vec<_> = rest
            .iter()
            .map(|rest| (&rest["layer"], &rest["groups"], &rest["live_bytes"]))
            .collect();
        assert_eq!(
            rest,
            [
                (&json!("vm"), &json!(1), &json!(8192)),
                (&json!("heap"), &json!(1), &json!(0)),
            ]
        );
        assert_eq!(value["hidden"], json!({ "sites": 1, "live_bytes": 100 }));
    }

    #[test]
    fn top_and_filters_say_what_they_hide() {
        let mut out = Vec::new();
        let filter = Filter {
            pid: Some(fixture::PARENT),
            ..Filter::default()
        };
        json(
            &mut out,
            &fixture::snapshot(),
            &filter,
            Metric::LiveBytes,
            Some(1),
        )
        .unwrap();
        let value = parse(&out);
        assert_eq!(value["sites"].as_array().unwrap().len(), 1);
        assert_eq!(value["totals"].as_array().unwrap().len(), 2);
        assert_eq!(
            value["hidden"],
            json!({ "sites": 3, "live_bytes": 8192 + 100 })
        );
    }

    #[test]
    fn an_export_has_memory_over_time() {
        let mut out = Vec::new();
        let snapshot = fixture::snapshot();
        let sample = MemorySample {
            rss_anon: Some(77),
            ..MemorySample::default()
        };
        let series = vec![(snapshot.meta.started_ns + 5, sample)];
        export(&mut out, &snapshot, &[(ProcessId(2), series)]).unwrap();
        let value = parse(&out);
        assert_eq!(value["memory"][0]["tgid"], fixture::CHILD);
        let sample = &value["memory"][0]["samples"][0];
        assert_eq!(
            (&sample["time"], &sample["rss_anon"]),
            (&json!(5), &json!(77))
        );
        assert_eq!(sample["swap"], Value::Null);
        assert_eq!(
            value["sites"][0]["births"]["rows"][0],
            json!([1_000_000_000, 512 << 10, 2])
        );
    }
}
