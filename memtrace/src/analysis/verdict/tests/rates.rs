//! Rates, and growth that shows in them before its kind does.

use super::*;

/// Whether a rate is this many bytes per second, within 5 %.
#[track_caller]
fn assert_rate(of: &Verdict, expected: f64) {
    let rate = of.rate.unwrap();
    assert!((rate - expected).abs() < 0.05 * expected, "{of:#?}");
}

#[test]
fn slow_growth_without_an_end_is_told_with_its_rate() {
    // 2 % of its level are 10 MiB.
    let slow = of(&|t| heap(1.0, 500.0 + 0.03 * t));
    expect(&slow, Class::Undetermined);
    assert_eq!(slow.verdicts[0].evidence[0].kind.name, "too_slow");
    assert_rate(&slow.verdicts[0], 0.03 * MIB);
    // Blocks that stay tell the kind, unless most of it is something else.
    expect(&of(&|t| heap(0.03 * t, 500.0 + 0.03 * t)), Class::Leak);
    expect(
        &of(&|t| heap(0.003 * t, 500.0 + 0.03 * t)),
        Class::Undetermined,
    );
    // Drift that comes to an end.
    let ends = |t: f64| 500.0 + 2.0 * (1.0 - f64::exp(-t / 15.0));
    expect(&of(&|t| heap(1.0, ends(t))), Class::None);
}

#[test]
fn rates_have_headers_and_rounding() {
    let found = of(&|t| {
        let tiny = (HEAP, "tiny", false, t * 32_000.0, 1000 * t as u64);
        Moment {
            memory: resident(260.0 + t * 48_000.0 / MIB, 2.0, 0.0),
            sites: vec![tiny],
            ..Moment::default()
        }
    });
    expect(&found, Class::Leak);
    assert_eq!(found.verdicts[0].grade, Grade::B);
    for verdict in &found.verdicts {
        assert_rate(verdict, 48_000.0);
    }
}

#[test]
fn what_fills_a_buffer_shows_between_its_steps() {
    let filled = |steady: bool| {
        of(&|t| {
            // A vector doubles whenever it is full.
            let buffer = (t * 0.08).max(0.5).log2().floor().exp2() * 2.0;
            let grown = if steady { t * 0.08 } else { buffer };
            Moment {
                memory: resident(10.0 + grown, 2.0, 0.0),
                sites: vec![
                    site(HEAP, "work", 1.0),
                    (HEAP, "buffer", false, buffer * MIB, 1),
                ],
                ..Moment::default()
            }
        })
    };
    let steady = filled(true);
    expect(&steady, Class::Leak);
    assert_eq!(steady.verdicts[1].grade, Grade::C);
    let rate = steady.verdicts[1].rate.unwrap();
    assert!((rate / MIB - 0.08).abs() < 0.01, "{rate}");
    assert!(steady.verdicts[1].next.contains(&Advice::LimitBuffer));
    let stepped = filled(false);
    assert!(
        !stepped
            .verdicts
            .iter()
            .any(|verdict| verdict.class.is_leak())
    );
}

#[test]
fn a_table_that_is_large_enough_does_not_fill() {
    let found = of(&|t| {
        // Enlarged at 25 s and at 30 s.
        let table = match t {
            _ if t < 25.0 => 2.0,
            _ if t < 30.0 => 4.0,
            _ => 8.0,
        };
        Moment {
            memory: resident(10.0 + t * 0.08, 2.0, 0.0),
            sites: vec![
                site(HEAP, "work", 1.0),
                (HEAP, "table", false, table * MIB, 1),
            ],
            ..Moment::default()
        }
    });
    assert!(!found.verdicts.iter().any(|verdict| verdict.class.is_leak()));
}

#[test]
fn what_fills_arenas_shows_between_their_steps() {
    let filled = |steady: bool| {
        of(&|t| {
            let arenas = (t / 26.0).floor();
            let grown = if steady { t * 0.04 } else { arenas };
            Moment {
                memory: resident(10.0 + grown, 2.0, 0.0),
                sites: vec![
                    site(HEAP, "work", 1.0),
                    (Layer::Python, "arena", false, arenas * MIB, arenas as u64),
                ],
                ..Moment::default()
            }
        })
    };
    let steady = filled(true);
    expect(&steady, Class::Leak);
    assert_rate(&steady.verdicts[0], 0.04 * MIB);
    assert_eq!(steady.verdicts[1].grade, Grade::C);
    assert_rate(&steady.verdicts[1], 0.04 * MIB);
    expect(&filled(false), Class::Undetermined);
}
