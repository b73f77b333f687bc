//! More events than the ring buffer holds: every lost one is counted, and the report marks its totals as bounds.

use memtrace_common::loss::Reason;
use memtrace_tests::{
    Fixture,
    record::{Record, memtrace},
    targets,
    truth::Truth,
};

#[test]
fn events_dropped_by_a_tiny_ring_buffer_are_counted() {
    let fixture = Fixture::new();
    let truth = fixture.path("truth");
    let target = targets::program("overload.c");
    let record = Record::launch(
        &fixture,
        &["--ring-buffer", "4k", "--priority", "normal"],
        [&target, &truth, &"8".into(), &"100000".into()],
    );
    let file = record.file.clone();
    let report = record.finish(0);
    let truth = Truth::read(&truth);
    let (site, truth) = truth.sites.first_key_value().expect("one site");

    report.expect_balance();
    let lost_allocations = report.loss(Reason::RingFullAlloc);
    let lost_frees = report.loss(Reason::RingFullFree);
    assert!(
        lost_allocations > 0 && lost_frees > 0,
        "{:?}",
        report.losses
    );

    // Every reported event happened; every event that happened is reported or counted as lost.
    let sites = report.sites("heap");
    let reported = sites.get(site).copied().unwrap_or_default();
    assert!(reported.alloc_count <= truth.alloc_count, "{reported:?}");
    let total = report.total(site.0, "heap");
    assert!(
        total.alloc_count + lost_allocations >= truth.alloc_count,
        "{} + {lost_allocations} < {}",
        total.alloc_count,
        truth.alloc_count
    );
    // The upper bound that the report claims holds, as far as allocations were seen.
    assert!(
        total.live_count + lost_allocations >= truth.live_count,
        "{total:?}"
    );

    let path = file.to_str().expect("a temporary path is UTF-8");
    let text = memtrace(["report", "--at", "end", path])
        .expect_code(0)
        .stdout;
    assert!(text.contains("upper bound"), "{text}");
    assert!(text.contains(Reason::RingFullFree.name()), "{text}");
}
