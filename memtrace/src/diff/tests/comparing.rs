//! Growing sites, their growth, and the facts of the machines that differ.

use super::*;

fn facts(facts: &[(&str, &str)]) -> Vec<(String, String)> {
    let facts = facts.iter();
    facts
        .map(|(field, value)| ((*field).into(), (*value).into()))
        .collect()
}

#[test]
fn the_fastest_site_comes_first_and_equal_ones_are_left_out() {
    let stack = |name: &str| in_library(name, "1", name.len() as u64);
    let old = vec![
        growing(stack("a"), 10),
        growing(stack("bb"), 500),
        steady(stack("ccc"), 9),
    ];
    let new = vec![
        growing(stack("a"), 1010),
        growing(stack("bb"), 300),
        steady(stack("ccc"), 9),
    ];
    let comparison = compared(old, new);
    let deltas: Vec<f64> = comparison
        .sites
        .iter()
        .map(|site| site.delta.rate.round())
        .collect();
    assert_eq!(deltas, [1000.0, -200.0]);
    assert!(comparison.sites.iter().all(|site| site.delta.is_sure()));
    assert_eq!(
        comparison
            .grows_by(999.0)
            .map(|site| site.baseline.rate.round()),
        Some(10.0)
    );
    assert!(comparison.grows_by(1001.0).is_none());
    assert!(comparison.leak().is_some());
}

#[test]
fn sites_of_one_line_are_one_for_all_callers() {
    let stack = |caller: &str| {
        let mut frames = in_library("f", "1", 1);
        frames[1] = python("keep", "/srv/app/main.py", 10);
        frames.push(python(caller, "/srv/app/main.py", 20));
        frames
    };
    let sites = |callers: &[(&str, u64)]| {
        let sites = callers.iter();
        sites
            .map(|(caller, rate)| growing(stack(caller), *rate))
            .collect::<Vec<_>>()
    };
    // A caller that only the new recording has.
    let comparison = compared(
        sites(&[("a", 100), ("b", 200)]),
        sites(&[("a", 500), ("b", 100), ("c", 300)]),
    );
    let [site] = &comparison.sites[..] else {
        panic!("{:?}", comparison.sites);
    };
    assert_eq!(
        (site.baseline.rate.round(), site.new.rate.round()),
        (300.0, 900.0)
    );
    // Growth that moved to another caller is none.
    let moved = compared(
        sites(&[("a", 300), ("b", 10)]),
        sites(&[("a", 10), ("b", 300)]),
    );
    assert!(moved.sites.is_empty(), "{:?}", moved.sites);
}

#[test]
fn a_leak_on_both_sides_within_load_variation_is_not_new() {
    let leak = |rate| vec![growing(in_library("f", "1", 1), rate)];
    let alike = compared(leak(1000), leak(1100));
    assert!(alike.sites[0].delta.is_sure() && !alike.sites[0].is_beyond_load());
    assert!(alike.leak().is_none() && alike.grows_by(99.0).is_some());
    assert!(compared(leak(1000), leak(1500)).leak().is_some());
    assert!(compared(leak(1500), leak(1000)).leak().is_none());
}

#[test]
fn a_site_of_one_side_is_listed_even_if_it_does_not_grow() {
    let (f, g) = (in_library("f", "1", 1), in_library("g", "1", 2));
    let comparison = compared(vec![steady(f, 50)], vec![growing(g, 100)]);
    let sides: Vec<_> = comparison
        .sites
        .iter()
        .map(|site| {
            (
                site.level,
                site.new_stack.is_some(),
                site.delta.rate.round(),
            )
        })
        .collect();
    assert_eq!(sides, [(None, true, 100.0), (None, false, 0.0)]);
    assert_eq!(comparison.unmatched_bytes(), 50 + 60 * 100);
    assert_eq!(comparison.matched_bytes(), 0);
}

#[test]
fn growth_can_be_counted_by_allocations() {
    let work = |scale: u64| {
        let mut site = steady(in_library("work", "1", 1), 0);
        for (second, point) in &mut site.points {
            point.alloc_count = (*second as u64 + 1) * scale;
        }
        site
    };
    let leak = |rate| growing(in_library("leak", "1", 2), rate);
    let sides = [
        run("a", vec![work(10), leak(50)]),
        run("b", vec![work(20), leak(100)]),
    ];
    let [old, new] = &sides;
    let by = |per: &str| {
        let options = Options {
            per: per.parse().unwrap(),
            ..Options::default()
        };
        compare(std::slice::from_ref(old), new, &options)
    };
    let seconds = by("seconds").unwrap();
    assert_eq!(seconds.sites[0].delta.rate.round(), 50.0);
    assert!(seconds.workload.unwrap().differs());
    // Twice the work, twice the growth: five bytes for each.
    let iterations = by("alloc-of=work").unwrap();
    assert!(
        iterations
            .sites
            .iter()
            .all(|site| site.delta.rate.abs() < 1e-9)
    );
    assert!(!iterations.workload.unwrap().differs());
    assert_eq!(by("count").unwrap().workload, None);
    let missing = by("alloc-of=nothing").unwrap_err();
    let missing = missing.to_string();
    assert!(missing.contains("`nothing`"), "{missing}");
    assert!(missing.ends_with("most often: `work`, `leak`"), "{missing}");
    assert!("alloc-of".parse::<Per>().is_err() && "hours".parse::<Per>().is_err());
}

#[test]
fn only_differences_from_all_baselines_count() {
    let stack = in_library("f", "1", 1);
    let other_build = in_library("f", "2", 9);
    let mut baselines = [
        run("a", vec![growing(stack.clone(), 100)]),
        run("b", vec![growing(other_build, 180)]),
    ];
    baselines[0].facts = facts(&[("cpu.count", "2"), ("kernel.release", "6.1"), ("same", "x")]);
    baselines[1].facts = facts(&[("cpu.count", "4"), ("kernel.release", "6.8"), ("same", "x")]);
    let compare_with = |rate| {
        let mut new = run("new", vec![growing(stack.clone(), rate)]);
        new.facts = facts(&[
            ("cpu.count", "4"),
            ("kernel.release", "6.18"),
            ("same", "x"),
        ]);
        compare(&baselines, &new, &Options::default()).unwrap()
    };
    let within = compare_with(160);
    assert_eq!(within.sites[0].baseline.rate.round(), 180.0);
    assert!(within.leak().is_none(), "{:?}", within.sites);
    assert_eq!(within.sites[0].level, Some(Level::Symbol));
    let beyond = compare_with(400);
    assert!(beyond.leak().is_some());
    let fields: Vec<_> = beyond
        .fingerprint
        .iter()
        .map(|fact| (&*fact.field, fact.baseline.as_deref()))
        .collect();
    assert_eq!(fields, [("kernel.release", Some("6.1 | 6.8"))]);
    assert_eq!(beyond.matched_bytes(), 60 * (100 + 180 + 400));
}

#[test]
fn sites_that_only_baselines_have_are_merged() {
    let baselines = ["a", "b"].map(|name| run(name, vec![growing(in_library("f", name, 1), 100)]));
    let elsewhere = vec![native(Some("g"), "/lib/liby.so.1", "y", 7)];
    let new = run("new", vec![steady(elsewhere, 5)]);
    let comparison = compare(&baselines, &new, &Options::default()).unwrap();
    let rates: Vec<f64> = comparison
        .sites
        .iter()
        .map(|site| site.baseline.rate.round())
        .collect();
    assert_eq!(rates, [100.0, 0.0]);
}

#[test]
fn facts_about_the_modules_that_grow_come_first() {
    let sides = |leak: Vec<Frame>, old: &[(&str, &str)], new: &[(&str, &str)]| {
        let mut runs = [
            run("a", vec![steady(leak.clone(), 1)]),
            run("b", vec![growing(leak, 10)]),
        ];
        runs[0].facts = facts(old);
        runs[1].facts = facts(new);
        let comparison = compare(&runs[..1], &runs[1], &Options::default()).unwrap();
        let fields = comparison.fingerprint.iter();
        fields
            .map(|fact| (fact.field.clone(), fact.related_sites.len()))
            .collect::<Vec<_>>()
    };
    let many = [
        ("affinity.count", "2"),
        ("cpu.flags", "sse avx"),
        ("env.GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2"),
        ("env.OMP_NUM_THREADS", "2"),
        ("kernel.release", "6.1"),
        ("lib.libc.so.6.build_id", "aa"),
        ("lib.libx.so.1.build_id", "11"),
        ("lib.libx.so.1.size", "100"),
        ("machine.hypervisor", "kvm"),
    ];
    let other = many.map(|(field, value)| (field, if value == "kvm" { "xen" } else { "0" }));
    let fields = sides(in_library("f", "1", 1), &many, &other);
    let related: Vec<_> = fields.iter().take_while(|(_, sites)| *sites > 0).collect();
    assert_eq!(related.len(), 2, "{fields:?}");
    assert_eq!(fields[0].0, "lib.libx.so.1.build_id");
    assert_eq!(fields.last().unwrap().0, "machine.hypervisor");

    let isa = sides(in_library("gemm_avx2", "1", 1), &many, &other);
    assert!(isa[..3].contains(&("cpu.flags".into(), 1)), "{isa:?}");

    let mut pool = in_library("f", "1", 1);
    pool[0].module = Some("/w/numpy.libs/libgomp-a34b3233.so.1".into());
    let threads = sides(pool, &many, &other);
    let first: Vec<&str> = threads[..2].iter().map(|(field, _)| &**field).collect();
    assert_eq!(first, ["env.OMP_NUM_THREADS", "affinity.count"]);
}

/// The differences between these facts of two recordings.
fn differences(leak: &[Frame], old: &[(&str, &str)], new: &[(&str, &str)]) -> Vec<Difference> {
    let mut runs = [
        run("a", vec![steady(leak.to_vec(), 1)]),
        run("b", vec![growing(leak.to_vec(), 10)]),
    ];
    runs[0].facts = facts(old);
    runs[1].facts = facts(new);
    let comparison = compare(&runs[..1], &runs[1], &Options::default());
    comparison.unwrap().fingerprint
}

#[test]
fn a_package_that_grows_comes_before_variables_of_its_interpreter() {
    let leak = [
        python("f", "/w/lib/python3.11/site-packages/PIL/Image.py", 3),
        python("g", "/w/lib/python3.11/site-packages/app/main.py", 3),
    ];
    let old = [
        ("env.PYTHONMALLOC", "malloc"),
        ("environment.names", "all"),
        ("python.package.app", "1"),
        ("python.package.pillow", "9"),
        ("python.package.idle", "1"),
    ];
    let new = [
        ("environment.names", "all"),
        ("python.package.app", "2"),
        ("python.package.pillow", "10"),
        ("python.package.idle", "2"),
    ];
    let found = differences(&leak, &old, &new);
    let fields: Vec<&str> = found.iter().map(|fact| &*fact.field).collect();
    assert_eq!(
        fields,
        [
            "python.package.pillow",
            "python.package.app",
            "env.PYTHONMALLOC",
            "python.package.idle",
        ]
    );
    assert_eq!(found[2].absence, Some(Absence::Unset));
}

#[test]
fn an_unrecorded_value_is_not_a_difference() {
    let all = ("environment.names", "all");
    let of = |old: &[(&str, &str)], new: &[(&str, &str)]| -> Vec<(String, Option<Absence>)> {
        let found = differences(&in_library("f", "1", 1), old, new).into_iter();
        found.map(|fact| (fact.field, fact.absence)).collect()
    };
    // Older versions record only the variables on their list.
    let new = [all, ("env.APP_MODE", "#1234"), ("env.OMP_NUM_THREADS", "2")];
    let expected = [("env.OMP_NUM_THREADS".to_owned(), Some(Absence::Unrecorded))];
    assert_eq!(of(&[], &new), expected);
    let partly = [("environment.names", "in part")];
    assert_eq!(of(&partly, &new), expected);
    // A recording with all names does know.
    let expected = [
        ("env.OMP_NUM_THREADS".to_owned(), Some(Absence::Unset)),
        ("env.APP_MODE".to_owned(), Some(Absence::Unset)),
    ];
    assert_eq!(of(&[all], &new), expected);
    // A hash is comparable with a value that another version writes out.
    let hash = crate::recording::variables::hashed("A", "1");
    let hashed = [all, ("env.A", &*hash)];
    assert_eq!(of(&hashed, &[all, ("env.A", "1")]), []);
    assert_eq!(of(&hashed, &[all, ("env.A", "2")]).len(), 1);
    assert_eq!(of(&hashed, &[all, ("env.A", "(set)")]), []);
    let withheld = [all, ("env.A", "(set)")];
    assert_eq!(of(&withheld, &withheld), []);
    assert_eq!(of(&withheld, &[all, ("env.A", "1")]), []);
    assert_eq!(of(&[all], &withheld).len(), 1);
}

#[test]
fn facts_that_are_not_compared_are_listed() {
    let mut runs = [run("old", vec![]), run("new", vec![])];
    runs[1].facts = facts(&[("environment.names", "unreadable"), ("env.A", "#1234")]);
    let comparison = compare(&runs[..1], &runs[1], &Options::default()).unwrap();
    assert_eq!(comparison.fingerprint, []);
    let gaps_have = |run: Option<&str>, part: &str| {
        let mut gaps = comparison.not_compared.iter();
        gaps.any(|gap| gap.run.as_deref() == run && gap.what.contains(part))
    };
    assert!(gaps_have(Some("old"), "names of variables"));
    assert!(gaps_have(Some("new"), "unreadable"));
    assert!(gaps_have(None, "values of 1 variable,"));
    assert!(gaps_have(None, "content of files"));
}

#[test]
fn no_intervals_is_an_error_and_too_few_a_warning() {
    let mut empty = run("empty", vec![]);
    empty.seconds.clear();
    let full = run("full", vec![]);
    let error = compare(std::slice::from_ref(&full), &empty, &Options::default()).unwrap_err();
    assert_eq!(error, Error::Empty("empty".into()));

    let mut short = run("short", vec![growing(in_library("f", "1", 1), 7)]);
    short.seconds.truncate(5);
    short.sites[0].points.truncate(5);
    let comparison = compare(&[full], &short, &Options::default()).unwrap();
    assert_eq!(comparison.short, ["short"]);
    let site = &comparison.sites[0];
    assert_eq!((site.delta.rate.round(), site.delta.interval), (7.0, None));
    assert!(comparison.leak().is_none() && comparison.grows_by(1.0).is_none());
}
