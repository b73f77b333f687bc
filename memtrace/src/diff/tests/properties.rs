//! For any recordings: bytes are conserved, a recording does not differ from itself, and exchanging
//! two recordings changes only the signs.

use std::{cmp::Ordering, collections::BTreeMap};

use fastrand::Rng;

use super::*;

const CASES: u64 = 50;

/// Few names, builds and lines, so that stacks often meet at every level.
fn frame(rng: &mut Rng) -> Frame {
    let offset = rng.u64(0..3);
    if rng.u8(0..4) == 0 {
        let root = [
            "/srv/app",
            "/home/u/app",
            "/usr/lib/python3.11/site-packages",
        ];
        let file = ["main.py", "pkg/util.py", "util.py"];
        let (root, file) = (root[rng.usize(..3)], file[rng.usize(..3)]);
        let name = ["f", "C.f", "<module>"][rng.usize(..3)];
        return python(name, &format!("{root}/{file}"), rng.u32(1..3));
    }
    let names = [
        None,
        Some("f"),
        Some("g_avx2"),
        Some("g_sse2.cold"),
        Some("malloc"),
    ];
    let modules = [
        "/lib/libx.so.1",
        "/opt/libx-0cf96a72.so.1",
        "/usr/bin/python3.11",
        "/bin/p",
    ];
    let build = ["1", "2"][rng.usize(..2)];
    let mut frame = native(
        names[rng.usize(..5)],
        modules[rng.usize(..4)],
        build,
        offset,
    );
    frame.inlined = rng.u8(0..6) == 0;
    frame.line = (rng.bool()).then(|| rng.u32(1..3));
    if rng.u8(0..8) == 0 {
        (frame.module, frame.build_id, frame.file_offset) = (None, None, None);
    }
    frame
}

fn site(rng: &mut Rng) -> Site {
    let frames = (0..rng.usize(0..5)).map(|_| frame(rng)).collect();
    let mut site = growing(frames, rng.u64(0..50));
    for (_, point) in &mut site.points {
        point.live_bytes += rng.u64(0..100);
    }
    site.live_bytes = rng.u64(0..1000);
    site.layer = [Layer::Heap, Layer::Vm][rng.usize(..2)];
    site.is_space = site.layer == Layer::Vm && rng.bool();
    site
}

fn random(rng: &mut Rng, name: &str) -> Run {
    let sites = (0..rng.usize(0..30)).map(|_| site(rng)).collect();
    let mut run = run(name, sites);
    let field =
        |rng: &mut Rng| ["env.OMP_X", "lib.libx.so.1.build_id", "cpu.flags"][rng.usize(..3)];
    run.facts = (0..rng.usize(0..6))
        .map(|_| (field(rng).to_owned(), rng.u8(0..3).to_string()))
        .collect();
    run
}

fn cases(count: u64) -> impl Iterator<Item = (u64, Run, Run)> {
    (0..count).map(|seed| {
        let mut rng = Rng::with_seed(seed);
        let a = random(&mut rng, "a");
        (seed, a, random(&mut rng, "b"))
    })
}

fn own_bytes(run: &Run) -> u64 {
    let sites = run.sites.iter().filter(|site| !site.is_space);
    sites.map(|site| site.live_bytes).sum()
}

#[test]
fn matching_takes_every_site_once() {
    let mut levels = BTreeMap::new();
    for (seed, a, b) in cases(10 * CASES) {
        let groups = matching::groups([&a.sites, &b.sites], true);
        for (side, run) in [&a, &b].into_iter().enumerate() {
            let mut sites: Vec<_> = groups.iter().flat_map(|group| &group.sites[side]).collect();
            sites.sort_unstable();
            assert!(
                sites.into_iter().copied().eq(0..run.sites.len()),
                "seed {seed}"
            );
        }
        for group in &groups {
            *levels.entry(group.level).or_insert(0) += 1;
            let both = group.sites.iter().all(|sites| !sites.is_empty());
            assert_eq!(both, group.level.is_some(), "seed {seed}");
        }
    }
    // The cases reach every level, or they would show nothing.
    assert_eq!(levels.len(), Level::ALL.len() + 1, "{levels:?}");
}

#[test]
fn bytes_are_conserved() {
    for (seed, a, b) in cases(CASES) {
        let total = own_bytes(&a) + own_bytes(&b);
        let comparison = compare(&[a], &b, &Options::default()).unwrap();
        let accounted = comparison.matched_bytes() + comparison.unmatched_bytes();
        assert_eq!(accounted, total, "seed {seed}");
    }
}

#[test]
fn several_baselines_conserve_bytes_too() {
    for (seed, a, b) in cases(CASES) {
        let mut rng = Rng::with_seed(!seed);
        let c = random(&mut rng, "c");
        let total = own_bytes(&a) + own_bytes(&b) + own_bytes(&c);
        let comparison = compare(&[a, b], &c, &Options::default()).unwrap();
        let accounted = comparison.matched_bytes() + comparison.unmatched_bytes();
        assert_eq!(accounted, total, "seed {seed}");
    }
}

#[test]
fn a_recording_does_not_differ_from_itself() {
    for (seed, a, _) in cases(CASES) {
        let comparison = compare(std::slice::from_ref(&a), &a, &Options::default()).unwrap();
        assert!(
            comparison.sites.is_empty(),
            "seed {seed}: {:?}",
            comparison.sites
        );
        assert!(comparison.mappings.is_empty() && comparison.fingerprint.is_empty());
        assert_eq!(comparison.unmatched, Matched::default(), "seed {seed}");
    }
}

/// A site without its side: comparable, with an order of its own.
type Row = (
    Layer,
    Option<Level>,
    Arc<Stack>,
    Arc<Stack>,
    [f64; 3],
    [u64; 2],
);

fn rows(comparison: &Comparison, exchanged: bool) -> Vec<Row> {
    let stack = |stack: &Option<Arc<Stack>>| stack.clone().unwrap_or_default();
    let all = comparison.sites.iter().chain(&comparison.mappings);
    let mut rows: Vec<Row> = all
        .map(|site| {
            let (low, high) = site.delta.interval.unwrap();
            let delta = [low, site.delta.rate, high];
            let (old, new) = (stack(&site.baseline_stack), stack(&site.new_stack));
            let bytes = [site.baseline_bytes, site.new_bytes];
            match exchanged {
                false => (site.layer, site.level, old, new, delta, bytes),
                true => {
                    let delta = [-high, -site.delta.rate, -low];
                    (
                        site.layer,
                        site.level,
                        new,
                        old,
                        delta,
                        [bytes[1], bytes[0]],
                    )
                }
            }
        })
        .collect();
    rows.sort_by(|a, b| {
        a.4.partial_cmp(&b.4)
            .unwrap_or(Ordering::Equal)
            .then(a.5.cmp(&b.5))
    });
    rows
}

#[test]
fn exchanging_the_sides_exchanges_the_signs() {
    for (seed, a, b) in cases(CASES) {
        let options = Options::default();
        let forth = compare(std::slice::from_ref(&a), &b, &options).unwrap();
        let back = compare(std::slice::from_ref(&b), &a, &options).unwrap();
        assert_eq!(rows(&forth, false), rows(&back, true), "seed {seed}");
        assert_eq!(forth.unmatched_bytes(), back.unmatched_bytes());
        let facts = |comparison: &Comparison| -> Vec<String> {
            let fields = comparison.fingerprint.iter();
            fields.map(|fact| fact.field.clone()).collect()
        };
        assert_eq!(facts(&forth), facts(&back), "seed {seed}");
    }
}
