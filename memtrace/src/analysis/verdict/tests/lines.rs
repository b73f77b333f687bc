//! Lines with several stacks, and the work of other sites.

use super::*;

fn pair(resident_mib: f64, first: (&'static str, f64), second: (&'static str, f64)) -> Moment {
    Moment {
        memory: resident(5.0 + resident_mib, 2.0, 0.0),
        sites: [first, second]
            .map(|(name, mib)| site(HEAP, name, mib))
            .into(),
        ..Moment::default()
    }
}

#[test]
fn stacks_of_a_line_leak_together() {
    let found = of(&|t| {
        let (before, after) = (t.min(50.0), (t - 50.0).max(0.0));
        pair(
            t,
            ("grow;interpreted;main", before),
            ("grow;compiled;main", after),
        )
    });
    expect(&found, Class::Leak);
    let sites = || found.verdicts.iter().skip(1);
    assert_eq!(sites().count(), 2, "{found:#?}");
    assert!(sites().all(|site| site.class == Class::Leak), "{found:#?}");
    let rate: f64 = sites().filter_map(|site| site.rate).sum();
    assert!((rate - MIB).abs() < 0.05 * MIB, "{rate}");
}

#[test]
fn a_cache_stays_one_beside_a_leak_of_its_line() {
    let full = |t: f64| 20.0 * (1.0 - f64::exp(-t / 20.0));
    let found = of(&|t| {
        pair(
            t + full(t),
            ("grow;leak;main", t),
            ("grow;fill;main", full(t)),
        )
    });
    expect(&found, Class::Leak);
    let classes: Vec<Class> = found.verdicts[1..].iter().map(|of| of.class).collect();
    assert_eq!(classes, [Class::Leak, Class::Cache], "{found:#?}");
}

#[test]
fn other_blocks_of_a_line_are_judged_apart() {
    let found = of(&|t| {
        let (before, after) = (t.min(50.0), (t - 50.0).max(0.0));
        pair(t, ("grow;main", before), ("std::resize;grow;main", after))
    });
    let mut sites = found.verdicts.iter().skip(1);
    assert!(sites.all(|site| site.class != Class::Leak), "{found:#?}");
}

#[test]
fn what_a_line_calls_leaks_together_if_it_is_spread() {
    const PLACES: [&str; 5] = [
        "std::a;grow;main",
        "std::b;grow;main",
        "std::c;grow;main",
        "std::d;grow;main",
        "std::e;grow;main",
    ];
    // One place after the other has the whole growth.
    let found = of(&|t| {
        let sites = PLACES.iter().zip(0u8..).map(|(name, place)| {
            let mib = (t - 20.0 * f64::from(place)).clamp(0.0, 20.0);
            site(HEAP, name, mib)
        });
        Moment {
            memory: resident(5.0 + t, 2.0, 0.0),
            sites: sites.collect(),
            ..Moment::default()
        }
    });
    expect(&found, Class::Leak);
    let sites = &found.verdicts[1..];
    assert!(
        sites.iter().all(|site| site.class == Class::Leak),
        "{found:#?}"
    );
    let rate: f64 = sites.iter().filter_map(|site| site.rate).sum();
    assert!((rate - MIB).abs() < 0.05 * MIB, "{rate}");
}

#[test]
fn parts_that_end_do_not_end_the_growth() {
    let found = of(&|t| pair(t, ("first", t.min(75.0)), ("then", (t - 75.0).max(0.0))));
    expect(&found, Class::Undetermined);
    let rate = found.verdicts[0].rate.unwrap();
    assert!((rate - MIB).abs() < 0.05 * MIB, "{rate}");
}

#[test]
fn a_burst_of_other_work_does_not_hide_steady_growth() {
    let found = of(&|t| {
        let busy = t < 40.0 && t % 2.0 == 0.0;
        let other = (HEAP, "other", false, 1000.0, if busy { 1000 } else { 1 });
        Moment {
            memory: resident(5.0 + t, 2.0, 0.0),
            sites: vec![other, (HEAP, "grow", false, t * MIB, t as u64)],
            ..Moment::default()
        }
    });
    expect(&found, Class::Leak);
}

/// The caller of a leak of a block a second through `make`, called by `log` in `serve`, beside another stack that has as
/// many blocks at even times as at odd ones, or not.
fn caller(other: &'static str, even: u64, odd: u64) -> Option<String> {
    let found = of(&|t| {
        let blocks = if t % 2.0 == 0.0 { even } else { odd };
        Moment {
            memory: resident(5.0 + t, 2.0, 0.0),
            sites: vec![
                (HEAP, "make;log;serve;main", false, t * MIB, t as u64),
                (HEAP, other, false, 1000.0, blocks),
            ],
            ..Moment::default()
        }
    });
    expect(&found, Class::Leak);
    let frame = found.verdicts[1].caller.as_ref()?;
    frame.function.as_deref().map(str::to_owned)
}

#[test]
fn the_caller_is_named_if_others_free_what_the_line_allocates() {
    let named = |other| caller(other, 100, 1);
    assert_eq!(named("make;parse;serve;main").as_deref(), Some("log"));
    assert_eq!(named("make;log;retry;main").as_deref(), Some("serve"));
    assert_eq!(named("other;log;serve;main"), None);
    assert_eq!(caller("make;parse;serve;main", 1, 1), None, "idle");
}
