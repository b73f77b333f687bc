//! Devices (GPUs): the memory of each process there, its owners, and failed allocations. The parts
//! of a device's table add up to its last line.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};

use super::stack;
use crate::{
    analysis::{
        account::OLDER_TOTAL,
        failures::{self, PartOf},
    },
    escape::clean,
    event::{Device, OUT_OF_MEMORY, StackId},
    frames::caching::{self, CachingAllocator},
    ledger::{DeviceTotals, ProcessId},
    recording::{DeviceSnapshot, FailureSnapshot, ProcessSnapshot, Snapshot},
    units::{plural, size},
    view::Filter,
};

/// Most failures that text lists.
const FAILURES: usize = 5;

fn process_of(snapshot: &Snapshot, id: ProcessId) -> Option<&ProcessSnapshot> {
    let mut processes = snapshot.processes.iter();
    processes.find(|process| process.row.id == id)
}

/// The caching allocator of a process.
fn caching_allocator(snapshot: &Snapshot, process: ProcessId) -> &'static CachingAllocator {
    let layers = snapshot.layers.iter();
    let of_process = layers.filter(|layer| layer.process == process);
    caching::of_process(|wanted| of_process.clone().any(|of| of.layer == wanted))
}

fn is_shown(snapshot: &Snapshot, filter: &Filter, id: ProcessId) -> bool {
    process_of(snapshot, id)
        .is_some_and(|process| filter.pid.is_none_or(|pid| pid == process.row.tgid))
}

/// The rest of the process total, negative if that was taken at another moment.
fn unattributed(device: &DeviceSnapshot) -> Option<i64> {
    let total = i64::try_from(device.process_total?).ok()?;
    Some(total - i64::try_from(device.totals.known()).ok()?)
}

/// The bytes in blocks of the caching allocator with a known request, and the bytes requested.
fn reported(device: &DeviceSnapshot) -> (u64, u64) {
    let streams = device.streams.iter().map(|(_, totals)| totals);
    streams.fold((0, 0), |(allocated, requested), totals| {
        (allocated + totals.allocated, requested + totals.requested)
    })
}

/// The bytes requested for the blocks of the caching allocator, if known for all.
fn requested(device: &DeviceSnapshot) -> Option<u64> {
    let cache = device.totals.cache?;
    let (of, requested) = reported(device);
    (of == cache.allocated).then_some(requested)
}

/// The list `devices` of a report.
pub(super) fn json(snapshot: &Snapshot, filter: &Filter) -> Value {
    let devices = snapshot.devices.iter();
    devices
        .filter(|device| is_shown(snapshot, filter, device.process))
        .map(|device| {
            let mut value = figures(&device.totals);
            value["process"] = json!(device.process.0);
            let process = process_of(snapshot, device.process);
            value["tgid"] = json!(process.map(|process| process.row.tgid));
            value["index"] = json!(device.device);
            value["process_total"] = json!(device.process_total);
            value["unattributed"] = json!(unattributed(device));
            value["requested"] = json!(requested(device));
            let streams = device.streams.iter();
            value["streams"] = streams
                .map(|(stream, totals)| {
                    json!({
                        "stream": stream,
                        "allocated": totals.allocated,
                        "requested": totals.requested,
                    })
                })
                .collect();
            value
        })
        .collect()
}

fn figures(totals: &DeviceTotals) -> Value {
    let cache = totals.cache;
    json!({
        "allocated": cache.map(|cache| cache.allocated),
        "reserved": cache.and_then(|cache| cache.reserved),
        "peak_allocated": cache.map(|cache| cache.peak_allocated),
        "peak_reserved": cache.and_then(|cache| cache.peak_reserved),
        "largest_free": cache.and_then(|cache| cache.largest_free),
        "runtime": totals.runtime,
        // Named when PyTorch was the only caching allocator; scripts read it.
        "runtime_by_torch": totals.runtime_by_cache,
        "driver": totals.driver,
        "driver_by_allocator": totals.driver_by_allocator,
        "pinned": totals.pinned,
        "known": totals.known(),
    })
}

/// The list `device_failures` of a report; `place` gives the index in its list of stacks.
pub(super) fn failures_json<P: Serialize>(
    snapshot: &Snapshot,
    filter: &Filter,
    since: impl Fn(u64) -> u64,
    mut place: impl FnMut(StackId) -> P,
) -> Value {
    let parts = failures::parts(&snapshot.failures, &snapshot.stacks);
    let failures = snapshot.failures.iter().zip(parts);
    failures
        .filter(|(failure, _)| is_shown(snapshot, filter, failure.key.process))
        .map(|(FailureSnapshot { key, failure }, part)| {
            let process = process_of(snapshot, key.process);
            json!({
                "process": key.process.0,
                "tgid": process.map(|process| process.row.tgid),
                "layer": key.layer.name(),
                "device": key.device,
                "error": key.error,
                "out_of_memory": key.error == OUT_OF_MEMORY,
                "part_of": part.map(|part| match part {
                    PartOf::Above => "layer above",
                    PartOf::Met => "met by asking again",
                }),
                "count": failure.count,
                "first": since(failure.first_ns),
                "last": since(failure.last_ns),
                "size": failure.size,
                "held": figures(&failure.held),
                "stack": place(key.stack),
            })
        })
        .collect()
}

/// The list `libraries` of a report.
pub(super) fn libraries_json(snapshot: &Snapshot) -> Value {
    let libraries = snapshot.libraries.iter();
    libraries
        .map(|row| json!({ "file": row.file, "library": row.library, "lacking": row.lacking }))
        .collect()
}

/// Writes the tables of a process's devices, if it used any.
pub(super) fn text(
    out: &mut impl Write,
    snapshot: &Snapshot,
    process: &ProcessSnapshot,
) -> io::Result<()> {
    let allocator = caching_allocator(snapshot, process.row.id);
    let devices = snapshot.devices.iter();
    for device in devices.filter(|device| device.process == process.row.id) {
        table(out, device, allocator.name)?;
    }
    failures(out, snapshot, process)
}

/// Writes the failed allocations of a process.
pub(super) fn failures(
    out: &mut impl Write,
    snapshot: &Snapshot,
    process: &ProcessSnapshot,
) -> io::Result<()> {
    let allocator = caching_allocator(snapshot, process.row.id);
    let parts = failures::parts(&snapshot.failures, &snapshot.stacks);
    let failures = snapshot.failures.iter().zip(parts);
    let failures = failures.filter(|(failure, _)| failure.key.process == process.row.id);
    let (met, failures): (Vec<_>, Vec<_>) = failures
        .filter(|(_, part)| *part != Some(PartOf::Above))
        .partition(|(_, part)| *part == Some(PartOf::Met));
    for (failure, _) in failures.iter().take(FAILURES) {
        failed(out, snapshot, failure, allocator.name)?;
    }
    let met: u64 = met.iter().map(|(of, _)| of.failure.count).sum();
    if met > 0 {
        let times = plural(met, "time");
        let by = allocator.name;
        writeln!(
            out,
            "  {by}'s allocator failed to get memory {times}, freed its cache and then succeeded: such retries are slow"
        )?;
    }
    if failures.len() > FAILURES {
        let more = plural((failures.len() - FAILURES) as u64, "more kind");
        writeln!(out, "  {more} of failed allocations (JSON lists them)")?;
    }
    Ok(())
}

pub(super) fn name(device: Device) -> String {
    match device {
        Some(index) => format!("device {index}"),
        None => "unknown device".into(),
    }
}

/// A line of a device's table: what has so many bytes, and a note.
pub(super) struct Row {
    pub(super) what: String,
    pub(super) bytes: String,
    pub(super) note: String,
}

/// A device's table has the figures of this moment.
pub(super) const MOMENT: &str = "at that moment, or at the end";

/// `by` is the caching allocator's name.
fn table(out: &mut impl Write, device: &DeviceSnapshot, by: &str) -> io::Result<()> {
    writeln!(out, "  {}, {MOMENT}", name(device.device))?;
    for Row { what, bytes, note } in rows(device, by) {
        let note = if note.is_empty() {
            note
        } else {
            format!("   {note}")
        };
        writeln!(out, "    {what:<44} {bytes:>12}{note}")?;
    }
    Ok(())
}

/// The tables of all devices, with their process and device.
pub(super) fn tables(
    snapshot: &Snapshot,
) -> impl Iterator<Item = (&ProcessSnapshot, Device, Vec<Row>)> {
    snapshot.devices.iter().filter_map(|device| {
        let by = caching_allocator(snapshot, device.process).name;
        let process = process_of(snapshot, device.process)?;
        Some((process, device.device, rows(device, by)))
    })
}

/// The lines of a device's table. `by` is the caching allocator's name.
fn rows(device: &DeviceSnapshot, by: &str) -> Vec<Row> {
    let totals = &device.totals;
    let mut rows = Vec::new();
    let mut line = |what: &str, bytes: String, note: &str| {
        let (what, note) = (what.to_owned(), note.to_owned());
        rows.push(Row { what, bytes, note });
    };
    let held = totals.held_by_cache();
    if let Some(cache) = totals.cache {
        let peak = |bytes: Option<u64>| {
            bytes.map_or_else(String::new, |bytes| format!("peak {}", size(bytes)))
        };
        let allocated = cache.allocated.min(held);
        line(
            &format!("{by}: in blocks (allocated)"),
            size(allocated),
            &peak(Some(cache.peak_allocated)),
        );
        if let Some(requested) = requested(device) {
            let rounding = allocated.saturating_sub(requested);
            line("  of which rounding", size(rounding), "");
        }
        if device.streams.len() > 1 {
            for (stream, totals) in &device.streams {
                let name = match stream {
                    0 => "  on the default stream".into(),
                    number => format!("  on stream {number}"),
                };
                line(&name, size(totals.allocated), "");
            }
            let unreported = allocated.saturating_sub(reported(device).0);
            if unreported > 0 {
                line("  on unknown streams", size(unreported), "");
            }
        }
        let largest = cache.largest_free.map_or_else(String::new, |bytes| {
            format!("largest free block {}", size(bytes))
        });
        line(
            &format!("{by}: cached (reserved, not allocated)"),
            size(held - allocated),
            &largest,
        );
        let mut note = peak(cache.peak_reserved);
        if cache.reserved.is_none() {
            note += if note.is_empty() { "" } else { "   " };
            note += "lower bound: not reported yet";
        }
        line(&format!("  {by} total (reserved)"), size(held), &note);
    } else if held > 0 {
        line(
            &format!("{by}, without its caching allocator"),
            size(held),
            "",
        );
    }
    line(
        "other runtime allocations",
        size(totals.other_runtime()),
        "",
    );
    line("other driver allocations", size(totals.other_driver()), "");
    match (device.process_total, unattributed(device)) {
        (Some(total), Some(rest)) => {
            let sign = if rest < 0 { "-" } else { "" };
            let rest = format!("{sign}{}", size(rest.unsigned_abs()));
            let note = match sign {
                "" => "",
                _ => OLDER_TOTAL,
            };
            line("unattributed (context, modules, libraries)", rest, note);
            line("  process total (NVML)", size(total), "");
        }
        _ => line(
            "  total known (NVML not available)",
            size(totals.known()),
            "",
        ),
    }
    if totals.pinned > 0 {
        line(
            "in addition, page-locked host memory",
            size(totals.pinned),
            "",
        );
    }
    rows
}

fn failed(
    out: &mut impl Write,
    snapshot: &Snapshot,
    failure: &FailureSnapshot,
    by: &str,
) -> io::Result<()> {
    let FailureSnapshot { key, failure } = failure;
    let what = match key.error {
        OUT_OF_MEMORY => "OUT OF MEMORY".into(),
        error => format!("failed with error {error}"),
    };
    let held = failure.held;
    let cache = held.cache.map_or_else(String::new, |cache| {
        let largest = cache.largest_free.map_or_else(String::new, |bytes| {
            format!(", its largest free block {}", size(bytes))
        });
        let allocated = size(cache.allocated);
        format!(", {allocated} of it in {by}'s blocks{largest}")
    });
    writeln!(
        out,
        "  {what} on {}: {} requested from {}, the last of {} at {:.1} s, with {} known to be held{cache}",
        name(key.device),
        plural(failure.count, "allocation"),
        key.layer.name(),
        size(failure.size),
        failure.last_ns.saturating_sub(snapshot.meta.started_ns) as f64 / 1e9,
        size(held.known()),
    )?;
    let frames = Filter::default().frames(snapshot.stacks.get(key.stack));
    stack::in_short(out, &frames, false)
}

/// Writes which functions the versions of devices' libraries lack, if there are any.
pub(super) fn libraries(out: &mut impl Write, snapshot: &Snapshot) -> io::Result<()> {
    for row in snapshot
        .libraries
        .iter()
        .filter(|row| !row.lacking.is_empty())
    {
        writeln!(
            out,
            "\n{} `{}` has no {}: what these functions would report is unknown",
            row.library,
            clean(&row.file),
            row.lacking.join(", ")
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::verdict::Diagnosis;
    use crate::{
        ledger::{CacheTotals, StreamTotals},
        recording::LibraryRow,
        render::{TextOptions, text as report},
        view::fixture,
    };

    const MIB: u64 = 1 << 20;

    fn stream(allocated: u64, requested: u64) -> StreamTotals {
        StreamTotals {
            allocated,
            requested,
        }
    }

    fn snapshot(process_total: Option<u64>) -> Snapshot {
        let mut snapshot = fixture::snapshot();
        snapshot.devices.push(DeviceSnapshot {
            process: ProcessId(1),
            device: Some(1),
            totals: DeviceTotals {
                cache: Some(CacheTotals {
                    allocated: 3 * MIB,
                    peak_allocated: 9 * MIB,
                    reserved: Some(20 * MIB),
                    peak_reserved: Some(40 * MIB),
                    largest_free: Some(12 * MIB),
                }),
                runtime: 25 * MIB,
                runtime_by_cache: 20 * MIB,
                driver: 26 * MIB,
                driver_by_allocator: 25 * MIB,
                pinned: 7 * MIB,
            },
            streams: vec![
                (0, stream(2 * MIB, 2 * MIB - 100)),
                (7, stream(MIB, MIB - 24)),
            ],
            process_total,
        });
        snapshot
    }

    fn rendered(snapshot: &Snapshot) -> String {
        let mut out = Vec::new();
        let options = TextOptions::default();
        report(&mut out, snapshot, &options, &Diagnosis::default()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_device_adds_up_to_the_process_total() {
        let value = json(&snapshot(Some(300 * MIB)), &Filter::default());
        let device = &value[0];
        assert_eq!(device["index"], 1);
        let figure = |name: &str| device[name].as_i64().unwrap();
        assert_eq!(figure("allocated"), 3 << 20);
        assert_eq!(figure("peak_reserved"), 40 << 20);
        // Memory of the cache, five of the runtime's others, one of the driver's.
        assert_eq!(figure("known"), 26 << 20);
        assert_eq!(figure("unattributed"), 274 << 20);
        assert_eq!(
            figure("known") + figure("unattributed"),
            figure("process_total")
        );
        let text = rendered(&snapshot(Some(300 * MIB)));
        for part in ["device 1", "17.0 MiB", "274.0 MiB", "300.0 MiB", "7.0 MiB"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn rounding_is_shown_if_all_requests_are_known() {
        let mut snapshot = snapshot(None);
        let device = |snapshot: &Snapshot| json(snapshot, &Filter::default())[0].clone();
        let value = device(&snapshot);
        assert_eq!(value["requested"], 3 * MIB - 124);
        assert_eq!(value["largest_free"], 12 * MIB);
        assert_eq!(value["streams"][1]["stream"], 7);
        assert_eq!(value["streams"][1]["requested"], MIB - 24);
        let text = rendered(&snapshot);
        for line in [
            "PyTorch: in blocks (allocated)",
            "PyTorch: cached (reserved, not allocated)",
            "  PyTorch total (reserved)",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        for part in ["124 B", "default stream", "on stream 7", "12.0 MiB"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("unknown"), "{text}");
        snapshot.devices[0].streams[1].1 = stream(MIB / 2, MIB / 2);
        assert!(device(&snapshot)["requested"].is_null());
        let text = rendered(&snapshot);
        assert!(!text.contains("rounding"), "{text}");
        assert!(text.contains("on unknown streams"), "{text}");
    }

    #[test]
    fn a_total_of_another_moment_may_be_too_small() {
        let value = json(&snapshot(Some(20 * MIB)), &Filter::default());
        assert_eq!(value[0]["unattributed"], -(6 << 20));
        let text = rendered(&snapshot(Some(20 * MIB)));
        assert!(text.contains("-6.0 MiB   NVML was read earlier"), "{text}");
        let text = rendered(&snapshot(Some(300 * MIB)));
        assert!(!text.contains("NVML was read earlier"), "{text}");
    }

    #[test]
    fn without_a_total_the_rest_is_not_shown() {
        let value = json(&snapshot(None), &Filter::default());
        assert!(value[0]["process_total"].is_null() && value[0]["unattributed"].is_null());
        assert!(rendered(&snapshot(None)).contains("NVML not available"));
    }

    #[test]
    fn missing_functions_of_a_library_are_listed() {
        let mut snapshot = fixture::snapshot();
        assert!(!rendered(&snapshot).contains("has no"));
        snapshot.libraries.push(LibraryRow {
            file: "/lib/libcudart.so.11.0".into(),
            library: "CUDA runtime".into(),
            lacking: vec!["cudaMallocAsync".into()],
        });
        assert!(rendered(&snapshot).contains("has no cudaMallocAsync"));
    }
}
