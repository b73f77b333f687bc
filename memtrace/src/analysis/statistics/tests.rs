//! Tests against other implementations (named in `reference.json`), and of the promised rate at
//! which series without growth are called growing.

use fastrand::Rng;
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Reference {
    cases: Vec<Case>,
    fdr: Adjusted,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    y: Vec<f64>,
    s: f64,
    variance: f64,
    corrected_variance: f64,
    p_value: f64,
    p_independent: f64,
    slope: f64,
}

#[derive(Deserialize)]
struct Adjusted {
    p_values: Vec<f64>,
    adjusted: Vec<f64>,
}

fn reference() -> Reference {
    serde_json::from_str(include_str!("reference.json")).unwrap()
}

#[track_caller]
fn assert_near(found: f64, expected: f64, what: &str) {
    let error = (found - expected).abs();
    assert!(
        error <= 1e-9 * expected.abs().max(1e-3),
        "{what}: {found}, expected {expected}"
    );
}

fn times(n: usize) -> Vec<f64> {
    (0..n).map(|i| i as f64).collect()
}

fn normal(rng: &mut Rng) -> f64 {
    // Irwin–Hall: close enough to a normal deviate for these tests.
    (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0
}

/// An AR(1) process in its steady state.
fn ar1(phi: f64, n: usize, rng: &mut Rng) -> Vec<f64> {
    let mut value = normal(rng) / (1.0 - phi * phi).sqrt();
    let mut next = || {
        value = phi * value + normal(rng);
        value
    };
    (0..n).map(|_| next()).collect()
}

#[test]
fn mann_kendall_and_theil_sen_equal_other_implementations() {
    for case in reference().cases {
        let name = &case.name;
        let found = mann_kendall(&case.y);
        assert_near(found.s, case.s, name);
        assert_near(found.variance, case.variance, name);
        assert_near(
            found.variance * found.correction,
            case.corrected_variance,
            name,
        );
        // A correction below 1 is not applied.
        let p = if found.correction < 1.0 {
            case.p_independent
        } else {
            case.p_value
        };
        assert!(
            (found.p_value - p).abs() < 1e-7,
            "{name}: {found:?}, expected {p}"
        );
        let (slope, _) = theil_sen(&times(case.y.len()), &case.y).unwrap();
        assert_near(slope, case.slope, name);
    }
}

#[test]
fn false_discovery_rates_equal_another_implementation() {
    let Adjusted { p_values, adjusted } = reference().fdr;
    for (found, expected) in benjamini_hochberg(&p_values).into_iter().zip(adjusted) {
        assert_near(found, expected, "adjusted");
    }
    assert!(benjamini_hochberg(&[]).is_empty());
}

#[test]
fn series_without_a_value_or_a_change_have_no_trend() {
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[3.0, 1.0]), Some(2.0));
    assert_eq!(median_deviation(&[1.0, 2.0, 9.0]), Some(1.0));
    assert_eq!(theil_sen(&[1.0, 1.0], &[1.0, 2.0]), None);
    for y in [vec![], vec![1.0], vec![5.0; 12]] {
        assert_eq!(mann_kendall(&y).p_value, 1.0, "{y:?}");
    }
    assert_eq!(trend(&[], &[], 0), Err(TooShort { found: 0 }));
    let flat = trend(&times(100), &[7.0; 100], 0).unwrap();
    assert_eq!((flat.slope, flat.interval), (0.0, (0.0, 0.0)));
    assert!(!flat.is_rising());
}

#[test]
fn a_line_is_found_with_its_slope_and_the_same_each_time() {
    let mut rng = Rng::with_seed(7);
    let y: Vec<f64> = (0..150)
        .map(|i| 3.0 * f64::from(i) + 10.0 * normal(&mut rng))
        .collect();
    let found = trend(&times(150), &y, 1).unwrap();
    assert!(
        found.interval.0 < 3.0 && 3.0 < found.interval.1,
        "{found:?}"
    );
    assert!(found.is_rising() && found.p_value < 1e-4, "{found:?}");
    assert!(found.late_to_early().unwrap() > 0.7, "{found:?}");
    assert_eq!(found, trend(&times(150), &y, 1).unwrap());
}

#[test]
fn filling_up_rises_early_and_not_late() {
    let y: Vec<f64> = (0..200)
        .map(|i| 1.0 - f64::exp(-f64::from(i) / 30.0))
        .collect();
    let found = trend_after(10, &times(200), &y, 1).unwrap();
    assert!(found.late_to_early().unwrap() < 0.05, "{found:?}");
    // If the work slows down equally, growth per unit of work does not slow down.
    let work: Vec<f64> = y[10..].iter().map(|y| 3.0 * y).collect();
    let by_work = found.late_to_early_per(&work).unwrap();
    assert!((by_work - 1.0).abs() < 1e-9, "{by_work}");
}

#[test]
fn start_up_ends_at_the_break_of_two_lines() {
    let start = |break_at: i32| -> Vec<f64> {
        let mut rng = Rng::with_seed(3);
        (0..200)
            .map(|i| f64::from(i.min(break_at)) * 5.0 + 0.5 * f64::from(i) + normal(&mut rng))
            .collect()
    };
    let found = warm_up(&start(80));
    assert!((75..=85).contains(&found), "{found}");
    // Before a fifth, after the half, and not at all: a fifth.
    assert_eq!(warm_up(&start(20)), 40);
    assert_eq!(warm_up(&start(150)), 40);
    assert_eq!(warm_up(&start(0)), 40);
    assert_eq!(warm_up(&[]), 0);
}

fn claims(y: &[f64], seed: u64) -> bool {
    trend(&times(y.len()), y, seed).unwrap().is_rising()
}

#[test]
fn series_that_only_wander_are_rarely_called_growing() {
    let mut rng = Rng::with_seed(11);
    for (phi, limit) in [(0.0, 4), (0.5, 8), (0.9, 24)] {
        let claimed = (0..400u64)
            .filter(|seed| claims(&ar1(phi, 160, &mut rng), *seed))
            .count();
        assert!(claimed <= limit, "phi {phi}: {claimed} of 400");
    }
}

#[test]
fn growth_among_wandering_is_found() {
    let mut rng = Rng::with_seed(12);
    let found = (0..100u64)
        .filter(|seed| {
            let mut y = ar1(0.5, 160, &mut rng);
            for (i, y) in y.iter_mut().enumerate() {
                *y += 0.05 * i as f64;
            }
            claims(&y, *seed)
        })
        .count();
    assert!(found >= 95, "{found} of 100");
}
