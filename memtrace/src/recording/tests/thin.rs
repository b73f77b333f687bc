//! A recording whose intervals were merged keeps its meaning.

use std::collections::HashMap;

use fastrand::Rng;

use super::*;
use crate::ledger::{Changes, DeviceTotals};

/// A possible course of a program: sites, layers, losses and devices that change now and then, and
/// samples some of whose figures are read rarely.
fn made_up(n: u64, rng: &mut Rng) -> Interval {
    let mut sites = Vec::new();
    for stack in 1..6 {
        if rng.u8(..3) == 0 {
            sites.push((key(1 + stack % 2, stack), site(rng.u64(..1 << 20), n)));
        }
    }
    let of_process = |rng: &mut Rng| ProcessId(rng.u32(1..3));
    let memory = MemorySample {
        rss_anon: Some(rng.u64(..1 << 30)),
        pss: (rng.u8(..7) == 0).then(|| rng.u64(..1 << 30)),
        ..MemorySample::default()
    };
    let (process, device) = (of_process(rng), rng.u8(..2));
    let totals = DeviceTotals {
        runtime: rng.u64(..1 << 30),
        ..DeviceTotals::default()
    };
    let layers = match rng.u8(..2) {
        0 => vec![],
        _ => vec![((of_process(rng), Layer::Heap), layer(n, n + 1, n))],
    };
    Interval {
        changes: Changes {
            sites,
            layers,
            devices: vec![((process, Some(device)), totals)],
            ..Changes::default()
        },
        memory: vec![(of_process(rng), memory)],
        system: Some(SystemSample {
            mem_free: Some(rng.u64(..1 << 30)),
            sockets: (rng.u8(..5) == 0).then_some(n),
            ..SystemSample::default()
        }),
        cgroups: match rng.u8(..4) {
            0 => vec![(
                1,
                CgroupSample {
                    current: Some(n),
                    ..CgroupSample::default()
                },
            )],
            _ => vec![],
        },
        members: vec![(ProcessId(1), 1)],
        device_usage: match rng.u8(..3) {
            0 => vec![(process, device, n << 20)],
            _ => vec![],
        },
        losses: vec![(Reason::ALL[0], n / 7), (Reason::ALL[1], rng.u64(..n + 1))],
        ..interval(n, vec![])
    }
}

fn write(path: &std::path::Path, intervals: &[Interval], halve_at: &[u64]) {
    let mut writer = Writer::create(path, false, &meta()).unwrap();
    for id in 1..3 {
        writer.process(&process(id, None)).unwrap();
    }
    for (n, interval) in (1..).zip(intervals) {
        let halve = halve_at.contains(&n);
        let interval = Interval {
            halve,
            ..interval.clone()
        };
        writer.interval(&interval).unwrap();
    }
    writer
        .finish(START + SECOND * intervals.len() as u64)
        .unwrap();
}

/// The last reading of a figure by each of `times`.
fn carried<T: Copy>(
    times: &[u64],
    samples: &[(u64, T)],
    figure: fn(&T) -> Option<u64>,
) -> Vec<Option<u64>> {
    let by = |time: &u64| {
        let known = samples.iter().take_while(|(at, _)| at <= time);
        known.filter_map(|(_, sample)| figure(sample)).last()
    };
    times.iter().map(by).collect()
}

#[test]
fn merged_intervals_keep_their_meaning() {
    for seed in 0..20 {
        let mut rng = Rng::with_seed(seed);
        let intervals: Vec<Interval> = (1..60).map(|n| made_up(n, &mut rng)).collect();
        let (directory, path) = temporary();
        let thinned = directory.path().join("thinned.mtr");
        write(&path, &intervals, &[]);
        // An even and an odd number of intervals.
        write(&thinned, &intervals, &[24, 35, 36]);
        let (all, some) = (
            Recording::open(&path).unwrap(),
            Recording::open(&thinned).unwrap(),
        );

        let times: Vec<u64> = some
            .intervals()
            .unwrap()
            .iter()
            .map(|(_, time)| *time)
            .collect();
        // 24 → 12; 23 → 12; 13 → 7; and 23 more.
        assert_eq!(times.len(), 30, "seed {seed}");
        assert_eq!(times.last(), Some(&(START + 59 * SECOND)));
        for time in &times {
            let at = At::Time(time - START);
            let (whole, part) = (all.snapshot(at).unwrap(), some.snapshot(at).unwrap());
            let shown = |of: &Snapshot| {
                let devices: Vec<_> = of.devices.iter().collect();
                format!(
                    "{:?} {:?} {:?} {:?} {}",
                    of.sites, of.layers, devices, of.losses, of.received
                )
            };
            assert_eq!(shown(&whole), shown(&part), "seed {seed}, at {time}");
        }
        let of_process = |recording: &Recording| recording.memory(ProcessId(1)).unwrap();
        let (whole, part) = (of_process(&all), of_process(&some));
        for figure in [|s: &MemorySample| s.rss_anon, |s: &MemorySample| s.pss] {
            assert_eq!(
                carried(&times, &whole, figure),
                carried(&times, &part, figure)
            );
        }
        let (whole, part) = (all.system().unwrap(), some.system().unwrap());
        assert_eq!(part.len(), times.len());
        for figure in [|s: &SystemSample| s.mem_free, |s: &SystemSample| s.sockets] {
            assert_eq!(
                carried(&times, &whole, figure),
                carried(&times, &part, figure)
            );
        }
        let of_group = |recording: &Recording| recording.cgroup(ProcessId(1)).unwrap();
        let (whole, part) = (of_group(&all), of_group(&some));
        let current = |s: &CgroupSample| s.current;
        assert_eq!(
            carried(&times, &whole, current),
            carried(&times, &part, current)
        );
        let latest = |recording: &Recording| -> HashMap<_, _> {
            let rows = recording.device_history(ProcessId(2)).unwrap();
            rows.into_iter()
                .map(|(_, device, totals)| (device, totals))
                .collect()
        };
        assert_eq!(latest(&all), latest(&some));
    }
}

#[test]
fn intervals_that_end_rounds_stay() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    writer.process(&process(1, None)).unwrap();
    let rounds = [3, 4, 9];
    for n in 1..=12 {
        let interval = Interval {
            ends_round: rounds.contains(&n),
            halve: [5, 8, 12].contains(&n),
            ..interval(n, vec![(key(1, 1), site(n, n))])
        };
        writer.interval(&interval).unwrap();
    }
    writer.finish(START + 13 * SECOND).unwrap();

    let recording = Recording::open(&path).unwrap();
    assert!(recording.intervals().unwrap().len() < 8);
    let series = recording.rounds().unwrap();
    assert_eq!(series.times_ns, rounds.map(|n| START + n * SECOND));
    let live = series.sites[&key(1, 1)].iter();
    let live: Vec<u64> = live.map(|(_, point)| point.live_bytes).collect();
    assert_eq!(live, rounds.map(|n| site(n, n).totals.live_bytes));
}

#[test]
fn folded_processes_leave_no_rows_when_intervals_are_merged() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    writer.process(&process(1, None)).unwrap();
    for n in 1..=5 {
        let halve = n == 5;
        let interval = Interval {
            halve,
            ..interval(n, vec![(key(1, 1), site(n, 1)), (key(1, 2), site(n, 1))])
        };
        writer.interval(&interval).unwrap();
    }
    let folded = Interval {
        folded: vec![ProcessId(1)],
        ..interval(6, vec![])
    };
    writer.interval(&folded).unwrap();
    writer.finish(START + 6 * SECOND).unwrap();

    let connection = rusqlite::Connection::open(&path).unwrap();
    let left: i64 = connection
        .query_row("SELECT count(*) FROM site_history", [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 0);
}

#[test]
fn a_delayed_commit_is_in_the_file_with_the_next() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    let known = || Recording::open(&path).unwrap().intervals().unwrap().len();
    for (n, expected) in [(1, 1), (2, 1), (3, 3)] {
        let commit_later = n == 2;
        writer
            .interval(&Interval {
                commit_later,
                ..interval(n, vec![])
            })
            .unwrap();
        assert_eq!(known(), expected);
    }
    let last = Interval {
        commit_later: true,
        ..interval(4, vec![])
    };
    writer.interval(&last).unwrap();
    writer.finish(START + 4 * SECOND).unwrap();
    assert_eq!(known(), 4);
}
