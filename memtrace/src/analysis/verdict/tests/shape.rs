//! The course of growth, and the verdicts drawn from it.

use super::*;

#[test]
fn growth_that_slows_down_is_a_cache() {
    let fill = |t: f64| 50.0 * (1.0 - f64::exp(-t / 25.0));
    expect(&of(&|t| heap(fill(t), 5.0 + fill(t))), Class::Cache);
    // Full at a third.
    let full = |t: f64| t.min(35.0);
    expect(&of(&|t| heap(full(t), 5.0 + full(t))), Class::Cache);
    // Its blocks took the place of others, or it is too small to matter.
    expect(&of(&|t| heap(full(t), 50.0)), Class::None);
    expect(&of(&|t| heap(full(t) / 200.0, 5.0 + full(t))), Class::None);
}

#[test]
fn growth_of_doubtful_shape_is_undetermined_with_a_time_to_run() {
    let root = |t: f64| 5.0 * t.sqrt();
    let found = of(&|t| heap(root(t), 5.0 + root(t)));
    expect(&found, Class::Undetermined);
    let next = &found.verdicts[0].next;
    let longer =
        |advice: &Advice| matches!(advice, Advice::RecordLonger(of) if of.seconds == 400.0);
    assert!(next.iter().any(longer), "{next:?}");
}

#[test]
fn one_step_more_or_less_does_not_decide() {
    // Once an epoch, and the last epochs were shorter.
    const EPOCHS: [f64; 7] = [15.0, 27.0, 60.0, 63.0, 73.0, 84.0, 91.0];
    let stairs = |t: f64| EPOCHS.iter().filter(|epoch| **epoch <= t).count() as f64 * 4.0;
    let found = of(&|t| heap(stairs(t), 5.0 + stairs(t)));
    expect(&found, Class::Leak);
    // Without steps, growth that becomes faster has only begun.
    for power in [2.2, 3.0] {
        let steep = |t: f64| 40.0 * (t / 100.0).powf(power);
        let found = of(&|t| heap(steep(t), 5.0 + steep(t)));
        expect(&found, Class::Undetermined);
    }
}

#[test]
fn start_up_ends_with_the_last_import() {
    let found = of(&|t| {
        // Two bends: the first is the clearer one.
        let imported = 10.0 * t.min(10.0) + 0.5 * (t.min(40.0) - 10.0).max(0.0);
        Moment {
            memory: resident(5.0 + imported + 0.3 * t, 2.0, 0.0),
            sites: vec![
                site(HEAP, "work;import;main", imported),
                site(HEAP, "grow", 0.3 * t),
            ],
            ..Moment::default()
        }
    });
    expect(&found, Class::Leak);
    assert_eq!(found.accounts[0].from, 43.0);
}
