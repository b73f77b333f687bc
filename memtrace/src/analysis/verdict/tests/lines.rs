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
