//! Very many processes, and very many mappings: everything is recorded, in a time that grows with their number.

use memtrace_common::loss::Reason;
use memtrace_tests::{Fixture, record::Record, targets};

/// In a storm, the parent makes no more children than the collector can set probes in.
#[test]
fn a_storm_of_forks_is_recorded_in_full() {
    const CHILDREN: u64 = 2000;
    let fixture = Fixture::new();
    let count = CHILDREN.to_string();
    let program = targets::program("many_forks.c");
    // As many at a time as there are.
    let target = [program.as_os_str(), count.as_ref(), count.as_ref()];
    let report = Record::launch(&fixture, &[], target).finish(0);
    report.expect_no_losses(0);
    report.expect_followed();
    let sites = report.sites.iter();
    let forked = sites.filter(|site| site.layer == "heap" && site.name() == Some("forked"));
    let allocated = forked.fold((0, 0), |(count, bytes), site| {
        let counts = &site.counts;
        (count + counts.alloc_count, bytes + counts.alloc_bytes)
    });
    assert_eq!(allocated, (CHILDREN, CHILDREN * 100));
}

/// A quadratic cost misses the deadline of tests: on a machine of 2026, it took 2 minutes.
#[test]
fn very_many_executable_mappings_do_not_stop_a_program() {
    const MAPPINGS: u64 = 20_000;
    let fixture = Fixture::new();
    let count = MAPPINGS.to_string();
    let program = targets::program("many_mappings.c");
    for kind in ["file", "anonymous"] {
        let target = [program.as_os_str(), count.as_ref(), kind.as_ref()];
        let report = Record::launch(&fixture, &[], target).finish(0);
        report.expect_balance();
        assert_eq!(report.loss(Reason::NotStopped), 0, "{kind}");
        let tgid = report.processes[0].tgid;
        let mapped = report.total(tgid, "vm").alloc_count;
        assert!(mapped >= 2 * MAPPINGS, "{kind}: {mapped}");
    }
}
