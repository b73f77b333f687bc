//! Device memory: every function of the driver and the runtime, page-locked memory and PyTorch's
//! allocator, layer by layer to the byte, on libraries without hardware (`fakecuda/`).

use memtrace_tests::{
    Fixture, export,
    record::{self, Record},
    report::{Device, Report, Stream},
    running::Running,
    targets,
    truth::{Counts, Site, Truth},
};
use std::{collections::BTreeMap, path::Path, process::Command};

const MIB: u64 = 1 << 20;

/// The figures of a launched target when its work is done: allocated and reserved, by device.
struct Done {
    report: Report,
    truth: Truth,
    sums: [u64; 4],
    tgid: u32,
}

fn work(fixture: &Fixture, options: &[&str]) -> Done {
    let truth = fixture.path("truth");
    let command = [
        targets::program("devices.c"),
        truth.clone(),
        targets::fake_devices(),
    ];
    let mut record = Record::launch(fixture, options, command);
    let said = record.running.await_stdout("done ");
    record.running.send("!");
    let report = record.finish(0);
    let sums = serde_json::from_str(&said["done ".len()..]).expect("the target writes JSON");
    let tgid = report.processes.last().expect("a process").tgid;
    let truth = Truth::read(&truth);
    Done {
        report,
        truth,
        sums,
        tgid,
    }
}

/// The sites whose names begin with one of these words.
fn named(sites: BTreeMap<Site, Counts>, words: &[&str]) -> BTreeMap<Site, Counts> {
    sites
        .into_iter()
        .filter(|((_, name), _)| words.iter().any(|word| name.starts_with(word)))
        .collect()
}

fn device(report: &Report, index: u8) -> &Device {
    let mut devices = report.devices.iter();
    let found = devices.find(|device| device.index == Some(index));
    found.unwrap_or_else(|| panic!("no device {index}: {:?}", report.devices))
}

fn expect_exact(done: &Done) {
    let Done { report, truth, .. } = done;
    for (layer, words) in [
        ("cuda-runtime", &["runtime_"][..]),
        // The stand-in's runtime requests exactly the same sizes from the driver.
        ("cuda-driver", &["driver_", "runtime_"]),
        ("pinned", &["pinned_"]),
        ("torch-cuda", &["torch_"]),
        ("torch-cpu", &["cpu_"]),
    ] {
        assert_eq!(
            named(report.sites(layer), words),
            named(truth.sites.clone(), words),
            "{layer}"
        );
    }
    // In no other layer.
    let stray = |layer: &str, words: &[&str]| named(report.sites(layer), words);
    assert!(stray("cuda-runtime", &["driver_", "pinned_", "cpu_"]).is_empty());
    assert!(stray("cuda-driver", &["pinned_", "cpu_"]).is_empty());
    assert!(stray("pinned", &["runtime_", "driver_", "torch_"]).is_empty());
    assert!(stray("torch-cuda", &["runtime_", "driver_", "pinned_"]).is_empty());
}

#[test]
fn every_function_is_counted_in_its_layer() {
    let fixture = Fixture::new();
    let done = work(&fixture, &[]);
    expect_exact(&done);
    done.report.expect_no_losses(0);
}

/// Kernels before 6.10 take a perf event for each probe.
#[test]
fn with_probes_attached_one_by_one() {
    let fixture = Fixture::new();
    let done = work(&fixture, &["--one-by-one"]);
    expect_exact(&done);
    done.report.expect_no_losses(0);
    // Fires while its semaphore is raised, which this way of attaching does differently.
    assert_eq!(device(&done.report, 1).requested, Some(20 * 100_000));
}

#[test]
fn without_the_heap_everything_else_is_there() {
    let fixture = Fixture::new();
    let done = work(&fixture, &["--no-heap"]);
    expect_exact(&done);
    done.report.expect_no_losses(0);
    assert_eq!(done.report.total(done.tgid, "heap").alloc_count, 0);
    assert!(done.report.total(done.tgid, "vm").alloc_count > 0);
}

#[test]
fn each_device_adds_up() {
    let fixture = Fixture::new();
    let Done {
        report,
        truth,
        sums: [allocated_0, reserved_0, allocated_1, reserved_1],
        tgid,
    } = work(&fixture, &[]);
    // Three blocks of 5000 bytes are left of those from the driver's pool.
    let first = &device(&report, 0).figures;
    assert_eq!((allocated_0, reserved_0), (0, 0));
    assert_eq!(first.allocated, Some(3 * 5000));
    assert_eq!(first.reserved, Some(0));
    assert_eq!(first.peak_allocated, Some(20 * 100_352));
    assert_eq!(first.peak_reserved, Some(2 * MIB));
    // 6 MiB of physical memory, 4 MiB still mapped.
    let second = &device(&report, 1).figures;
    assert_eq!(second.allocated, Some(allocated_1));
    assert_eq!(second.reserved, Some(reserved_1));
    assert_eq!(second.peak_reserved, Some(reserved_1 + 2 * MIB));
    assert_eq!((allocated_1, reserved_1), (20 * 100_352, 6 * MIB));
    // The mapped part is free and larger than the rest of the segment; the pool's blocks are in no segment.
    assert_eq!(second.largest_free, Some(4 * MIB));
    assert_eq!(first.largest_free, None);
    // Reported by the probe, which fires while its semaphore is raised, but not for the pool's blocks.
    let stream = Stream {
        stream: 7,
        allocated: allocated_1,
        requested: 20 * 100_000,
    };
    assert_eq!(device(&report, 1).streams, [stream]);
    assert_eq!(device(&report, 1).requested, Some(stream.requested));
    assert_eq!(device(&report, 0).streams, []);
    assert_eq!(device(&report, 0).requested, None);

    let sum = |figure: fn(&Device) -> u64| report.devices.iter().map(figure).sum::<u64>();
    for (layer, sum) in [
        ("cuda-runtime", sum(|device| device.figures.runtime)),
        ("cuda-driver", sum(|device| device.figures.driver)),
        ("pinned", sum(|device| device.figures.pinned)),
    ] {
        assert_eq!(sum, report.total(tgid, layer).live_bytes, "{layer}");
    }
    // Physical memory is of the device that its properties name; threads of the one they chose.
    let of_sites = |layer: &str, name: &str| -> BTreeMap<Option<u8>, u64> {
        let sites = report.sites.iter();
        let own = sites.filter(|site| site.layer == layer && site.name() == Some(name));
        let mut by_device = BTreeMap::new();
        for site in own.filter(|site| site.counts.live_bytes > 0) {
            *by_device.entry(site.device).or_default() += site.counts.live_bytes;
        }
        by_device
    };
    let physical = of_sites("cuda-driver", "driver_physical");
    assert_eq!(physical, BTreeMap::from([(Some(1), 8192)]));
    let threads = of_sites("cuda-runtime", "runtime_thread");
    let whole = truth.sites[&(tgid, "runtime_thread".to_owned())].live_bytes;
    // Threads 0 and 2 do the same on device 0 as 1 and 3 on device 1.
    let half = whole / 2;
    assert_eq!(threads, BTreeMap::from([(Some(0), half), (Some(1), half)]));
}

#[test]
fn failures_are_events_not_allocations() {
    let fixture = Fixture::new();
    let report = work(&fixture, &[]).report;
    let failures: BTreeMap<_, _> = report
        .device_failures
        .iter()
        .map(|failure| {
            let name = failure.name().expect("a site").to_owned();
            let figures = (
                failure.error,
                failure.out_of_memory,
                failure.count,
                failure.size,
            );
            ((failure.layer.clone(), name), figures)
        })
        .collect();
    let expected = [
        (
            "cuda-driver",
            "driver_malloc_failing",
            (2, true, 1, 654_321),
        ),
        (
            "cuda-driver",
            "runtime_malloc_failing",
            (2, true, 3, 123_456),
        ),
        (
            "cuda-driver",
            "runtime_pitch_failing",
            (700, false, 1, 3000),
        ),
        (
            "cuda-runtime",
            "runtime_malloc_failing",
            (2, true, 3, 123_456),
        ),
        (
            "cuda-runtime",
            "runtime_pitch_failing",
            (700, false, 1, 3000),
        ),
        ("pinned", "pinned_failing", (2, true, 1, 777)),
        ("pinned", "pinned_register", (1, false, 1, 1)),
        ("torch-cuda", "torch_too_large", (2, true, 1, 100 * MIB)),
    ]
    .map(|(layer, name, figures)| ((layer.to_owned(), name.to_owned()), figures));
    assert_eq!(failures, BTreeMap::from(expected));
    let held = report.device_failures[0].held;
    assert!(held.runtime > 0 && held.known >= held.runtime, "{held:?}");
    assert_eq!(held.allocated, None);
    // PyTorch's own: no function of the runtime failed.
    let mut failures = report.device_failures.iter();
    let own = failures
        .find(|failure| failure.layer == "torch-cuda")
        .expect("one");
    assert_eq!(own.device, Some(1));
    assert_eq!(own.held.allocated, Some(20 * 100_352));
    assert_eq!(own.held.reserved, Some(2 * MIB));
    // The rest of its only segment.
    assert_eq!(own.held.largest_free, Some(2 * MIB - 20 * 100_352));
}

/// For one allocation, the runtime and the driver fail twice each, and then PyTorch's allocator fails.
#[test]
fn running_out_of_memory_is_one_failure_and_a_verdict() {
    let fixture = Fixture::new();
    let command = [targets::program("refused.c"), targets::fake_devices()];
    let record = Record::launch(&fixture, &[], command);
    let file = record.file.clone();
    let report = record.finish(0);
    let failures = |device: u8, part_of: Option<&str>| -> Vec<(&str, u64)> {
        let failures = report.device_failures.iter();
        failures
            .filter(|of| of.device == Some(device) && of.part_of.as_deref() == part_of)
            .map(|of| (of.layer.as_str(), of.count))
            .collect()
    };
    assert_eq!(failures(0, None), [("torch-cuda", 1)]);
    let below: u64 = failures(0, Some("layer above")).iter().map(|of| of.1).sum();
    assert_eq!(below, 4, "{:?}", report.device_failures);
    // The request that succeeded at the second attempt is not a failure.
    assert_eq!(failures(1, None), []);
    assert_eq!(
        failures(1, Some("met by asking again")),
        [("cuda-runtime", 1)]
    );

    let mut command = record::command(["diagnose", "--format", "json"]);
    let found = Running::start(command.arg(&file)).wait().expect_code(0);
    let found: serde_json::Value = serde_json::from_str(&found.stdout).expect("JSON");
    let verdicts = found["verdicts"].as_array().expect("a list");
    let failed: Vec<_> = verdicts
        .iter()
        .filter(|verdict| verdict["class"] == "gpu-out-of-memory")
        .collect();
    let [failed] = failed[..] else {
        panic!("{verdicts:#?}");
    };
    let evidence = failed["evidence"].as_array().expect("a list");
    let value = |kind: &str, name: &str| {
        let of_kind = evidence.iter().find(|of| of["kind"] == kind);
        let of_kind = of_kind.unwrap_or_else(|| panic!("no {kind}: {failed:#}"));
        of_kind["values"][name]["value"].clone()
    };
    let bytes = |bytes: u64| serde_json::json!(bytes as f64);
    assert_eq!(value("out_of_memory", "requested"), bytes(3 * MIB));
    assert_eq!(value("out_of_memory_held", "reserved"), bytes(6 * MIB));
    assert_eq!(value("out_of_memory_held", "allocated"), bytes(3 * 100_352));
    assert_eq!(value("fragmented", "unused"), bytes(6 * MIB - 3 * 100_352));
    let line = value("out_of_memory", "line");
    assert!(
        line.as_str()
            .is_some_and(|line| line.contains("ask_for_much")),
        "{line}"
    );
    let next = &failed["next"][0];
    assert!(
        next.as_str()
            .is_some_and(|next| next.contains("expandable_segments:True"))
    );

    let text = Running::start(record::command(["report"]).arg(&file)).wait();
    let text = text.expect_code(0).stdout;
    assert!(
        text.starts_with("gpu-out-of-memory (grade B)")
            || text.contains("\ngpu-out-of-memory (grade B)"),
        "{text}"
    );
    assert_eq!(text.matches("OUT OF MEMORY").count(), 1, "{text}");
}

/// `nvidia-smi` reports a process's total; without it, there is no total.
#[test]
fn the_process_total_leaves_a_rest() {
    let fixture = Fixture::new();
    let without = work(&fixture, &[]).report;
    let named: Vec<_> = without
        .devices
        .iter()
        .map(|device| device.process_total)
        .collect();
    assert_eq!(named, [None, None]);

    let file = fixture.path("usage");
    let folder = targets::fake_devices();
    let mut target = Running::start(Command::new(targets::program("held_device.c")).arg(&folder));
    target.await_stdout("ready");
    std::fs::write(&file, format!("{}, GPU-0001, 500\n", target.pid())).expect("a file");
    let output = fixture.path("usage.mtr");
    let mut command = record::command(["record", "-f", "-p"]);
    command
        .arg(target.pid().to_string())
        .arg("-o")
        .arg(&output)
        .env("PATH", targets::source("../fakecuda"))
        .env("FAKE_USAGE", &file);
    let running = Running::start(&mut command);
    running.await_stderr(record::BEGUN);
    target.send("!");
    target.await_stdout("done");
    let recording = Record {
        running,
        file: output.clone(),
    };
    let report = recording.stop();
    target.send("!");
    target.wait().expect_code(0);
    let device = device(&report, 0);
    assert_eq!(device.process_total, Some(500 * MIB));
    assert_eq!(device.figures.known, 30 * MIB);
    assert_eq!(device.unattributed, Some(470 << 20));
    let facts = export::read(&output);
    let process = facts.process("held_device");
    let capacity = (16_u64 << 30).to_string();
    assert_eq!(facts.fact(process, "gpu.0.memory"), capacity);
}

/// An allocator that had a segment before tracing, up to its next report.
fn late(until: &[&str]) -> Device {
    let fixture = Fixture::new();
    let folder = targets::fake_devices();
    // The device of a process that sees only one is known.
    let mut command = Command::new(targets::program("late_torch.c"));
    command.arg(folder).env("CUDA_VISIBLE_DEVICES", "0,1");
    let mut target = Running::start(&mut command);
    target.await_stdout("ready");
    let record = Record::attach(&fixture, target.pid(), &[]);
    for said in until {
        target.send("!");
        target.await_stdout(said);
    }
    let report = record.stop();
    let [device] = &report.devices[..] else {
        panic!("two devices, or none: {:?}", report.devices);
    };
    assert_eq!(device.index, Some(1));
    device.clone()
}

/// Its thread chose the device before tracing, and the process sees several devices.
#[test]
fn a_late_attach_finds_the_right_device() {
    let figures = late(&["grown"]).figures;
    assert_eq!(figures.allocated, Some(41 * 100_352));
    assert_eq!(figures.reserved, Some(6 * MIB));
    assert_eq!(figures.peak_reserved, Some(6 * MIB));
    // Two of three segments, and no byte twice.
    assert_eq!((figures.runtime, figures.known), (4 * MIB, 6 * MIB));
}

#[test]
fn the_total_is_unknown_after_older_memory_is_released() {
    let figures = late(&["grown", "emptied"]).figures;
    assert_eq!((figures.allocated, figures.reserved), (Some(0), None));
    assert_eq!(figures.peak_reserved, Some(6 * MIB));
    assert_eq!((figures.runtime, figures.known), (0, 0));
    // It reports its total when it runs out of memory.
    let figures = late(&["grown", "emptied", "refused"]).figures;
    assert_eq!((figures.allocated, figures.reserved), (Some(0), Some(0)));
}

/// Functions that a version of a library lacks are named, in the report and in the list of probes.
#[test]
fn missing_functions_are_listed() {
    let fixture = Fixture::new();
    let report = work(&fixture, &[]).report;
    let lacking = |file: &str| {
        let mut libraries = report.libraries.iter();
        let found = libraries.find(|library| library.file.ends_with(file));
        found.expect("the library").lacking.clone()
    };
    let runtime = lacking("libcudart.so.13");
    assert_eq!(
        runtime,
        [
            "cudaMallocAsync_ptsz",
            "cudaMallocFromPoolAsync_ptsz",
            "cudaFreeAsync_ptsz",
            "cudaGetDriverEntryPointByVersion"
        ]
    );
    assert!(lacking("libc10.so").is_empty());

    let target = Running::start(
        Command::new(targets::program("held_device.c")).arg(targets::fake_devices()),
    );
    target.await_stdout("ready");
    let probes = record::memtrace(["probes", "-p", &target.pid().to_string()]).expect_code(0);
    let line = probes
        .stdout
        .lines()
        .find(|line| line.starts_with("CUDA runtime"));
    assert!(
        line.expect("a line")
            .ends_with(&format!("has no {}", runtime.join(", "))),
        "{line:?}"
    );
    assert!(Path::new(&report.libraries[0].file).is_absolute());
}
