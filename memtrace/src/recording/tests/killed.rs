//! A process that the kernel killed for lack of memory is told apart from one that was killed otherwise.

use super::*;

/// Kills that are counted for a process with this end (seconds, status), if the kernel's counter is as given at each
/// second.
fn killed(end: (f64, u32), counts: &[Option<u64>]) -> u64 {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    let ended_ns = START + (end.0 * SECOND as f64) as u64;
    let row = ProcessRow {
        exit_status: Some(end.1),
        ..process(1, Some(ended_ns))
    };
    writer.process(&row).unwrap();
    for (n, count) in (1..).zip(counts) {
        let system = SystemSample {
            oom_kills: *count,
            ..SystemSample::default()
        };
        writer
            .interval(&Interval {
                system: Some(system),
                ..interval(n, vec![])
            })
            .unwrap();
    }
    writer.finish(START + 9 * SECOND).unwrap();
    let snapshot = Recording::open(&path).unwrap().snapshot(At::End).unwrap();
    snapshot.processes[0].oom_kills
}

#[test]
fn kills_about_the_end_of_a_killed_process_are_counted() {
    let counts = [5, 5, 5, 5, 7, 7, 8, 8].map(Some);
    assert_eq!(killed((4.5, 9), &counts), 2);
    // It took a second to end, and two are too long.
    assert_eq!(killed((5.5, 9), &counts), 2);
    assert_eq!(killed((2.5, 9), &counts), 0);
    // It ended otherwise.
    assert_eq!(killed((4.5, 0), &counts), 0);
    assert_eq!(killed((4.5, 11), &counts), 0);
    // Before the first interval, after the last one, and without figures.
    assert_eq!(killed((0.5, 9), &counts), 0);
    assert_eq!(killed((8.5, 9), &counts), 1);
    assert_eq!(killed((4.5, 9), &[None; 8]), 0);
    assert_eq!(killed((4.5, 9), &[]), 0);
}
