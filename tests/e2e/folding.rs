//! Short-lived processes that have ended are folded, which changes no sum.

use memtrace_tests::{
    Fixture,
    record::{Record, command, report},
    report::Report,
    running::Running,
    targets,
};

const COUNT: u64 = 30;
/// Kept of a command line (docs/reference/recording.md).
const KEPT: u64 = 8;

/// Sums over the heaps of all children: blocks and bytes allocated, blocks freed, bytes and blocks kept, bytes
/// inherited.
fn sums(report: &Report, parent: u32) -> [u64; 6] {
    let mut sums = [0; 6];
    let heaps = report.totals.iter().filter(|total| total.layer == "heap");
    for heap in heaps.filter(|total| total.tgid != parent) {
        for (sum, figure) in sums.iter_mut().zip([
            heap.alloc_count,
            heap.alloc_bytes,
            heap.free_count,
            heap.live_bytes,
            heap.live_count,
            heap.inherited_bytes,
        ]) {
            *sum += figure;
        }
    }
    sums
}

/// The report of a recording, the pid of the parent and that of its last child.
fn record(fixture: &Fixture, options: &[&str]) -> (Report, u32, String) {
    let program = targets::program("short.c");
    let count = COUNT.to_string();
    let target = [program.as_os_str(), count.as_ref()];
    let record = Record::launch(fixture, options, target);
    let file = record.file.clone();
    let finished = record.running.wait().expect_code(0);
    let report = report(&file);
    let parent = report.processes[0].tgid;
    (report, parent, finished.stdout.trim().to_owned())
}

#[test]
fn folding_changes_no_sum_and_counts_processes() {
    let fixture = Fixture::new();
    let (apart, parent, _) = record(&fixture, &["--no-fold"]);
    assert_eq!(apart.processes.len() as u64, 1 + COUNT);
    assert!(apart.processes.iter().all(|p| p.folded.is_none()));
    let made = 10 * COUNT + 1;
    let expected = [
        made,
        100 * made,
        4 * COUNT,
        100 * (6 * COUNT + 1),
        6 * COUNT + 1,
        64 * COUNT,
    ];
    assert_eq!(sums(&apart, parent), expected);

    let (folded, parent, last) = record(&fixture, &[]);
    folded.expect_no_losses(0);
    assert_eq!(sums(&folded, parent), expected);
    let groups: Vec<_> = folded.processes.iter().filter_map(|p| p.folded).collect();
    assert_eq!(groups, [COUNT - KEPT]);
    assert_eq!(folded.processes.len() as u64, 1 + KEPT + 1);
    let site = |report: &Report, tgid| {
        let mut sites = report.sites.iter();
        let site = sites.find(|site| site.name() == Some("made") && site.tgid == tgid);
        site.map(|site| site.counts.alloc_count)
    };
    // Of the group, which has no pid.
    assert_eq!(site(&folded, 0), Some(10 * (COUNT - KEPT) + 1));
    assert!(site(&folded, folded.processes[1].tgid) == Some(10));

    let file = fixture.path("launched.mtr");
    let text = Running::start(command(["report"]).arg(&file))
        .wait()
        .expect_code(0)
        .stdout;
    let group = format!("{} ended processes of `", COUNT - KEPT);
    let (_, group) = text.split_once(&group).unwrap_or_else(|| panic!("{text}"));
    // The peak of the last one, which is the largest.
    let peak = group.split("\n\n").next().unwrap_or_default();
    assert!(
        peak.contains("heap ") && peak.contains(" 1.1 KiB "),
        "{text}"
    );
    let mut of_one = command(["report", "--pid", &last]);
    let refused = Running::start(of_one.arg(&file)).wait();
    assert!(!refused.status.success());
    let refusal = format!("no process {last} in the recording");
    assert!(refused.stderr.contains(&refusal), "{refused:#?}");
    assert!(
        refused.stderr.contains("22 short-lived ones were folded"),
        "{refused:#?}"
    );
}
