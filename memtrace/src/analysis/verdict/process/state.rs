//! States that a process is in though it does not grow (any more): memory that
//! looks used and is not, or is not its own doing.

use super::Finding;
use crate::{
    analysis::{
        account::Window,
        series::{Figure, ProcessSeries},
        verdict::{
            Class, Grade,
            evidence::{bytes, percent, signed},
            thresholds::{LATELY, OF_RESIDUAL, REPORTED, STATE_FLOOR},
        },
    },
    frames::mappings::Use,
    recording::Origin,
};

/// A forked child whose pages became its own while it allocated little.
pub(super) fn copy_on_write(series: &ProcessSeries, whole: Window) -> Option<Finding> {
    if series.row.origin != Origin::Child {
        return None;
    }
    let change = |figure| series.figure(figure).map(|values| whole.change(values));
    let own = change(Figure::PrivateDirty)?;
    let shared = change(Figure::SharedDirty)?;
    let live = whole.change(&series.live());
    if own < STATE_FLOOR || -shared < OF_RESIDUAL * own || live > REPORTED * own {
        return None;
    }
    Some(Finding {
        class: Class::CopyOnWrite,
        grade: Grade::B,
        evidence: vec![
            format!(
                "private dirty pages {}, shared ones {}",
                signed(own),
                signed(shared)
            ),
            format!("its own allocations {}", signed(live)),
        ],
        runner_up: Some(Class::Leak),
        rate: None,
    })
}

/// Memory that is held and not live, at the end.
pub(super) fn held(series: &ProcessSeries) -> Option<Finding> {
    let end = |values: &[f64]| values.last().copied().unwrap_or(0.0);
    let figure = |figure| series.figure(figure).map_or(0.0, end);
    let anonymous = figure(Figure::Anon) + figure(Figure::Swap);
    if anonymous < STATE_FLOOR {
        return None;
    }
    let lazy = figure(Figure::LazyFree);
    if lazy >= OF_RESIDUAL * anonymous {
        return Some(Finding {
            class: Class::MadvFree,
            grade: Grade::C,
            evidence: vec![format!(
                "{} of {} anonymous memory is freed lazily (LazyFree)",
                bytes(lazy),
                bytes(anonymous)
            )],
            runner_up: Some(Class::Retention),
            rate: None,
        });
    }
    let live = series.live();
    let largest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let lately = (live.len() as f64 * (1.0 - LATELY)) as usize;
    // Not what a load that comes and goes has freed for the moment.
    let (peak, now) = (largest(&live), largest(&live[lately.min(live.len())..]));
    let mapped = end(&series.mapped(Use::Program));
    let kept = anonymous - now - mapped;
    let freed = peak - now;
    if freed >= STATE_FLOOR && freed >= OF_RESIDUAL * peak && kept >= OF_RESIDUAL * anonymous {
        return Some(Finding {
            class: Class::Retention,
            grade: Grade::C,
            evidence: vec![
                format!("live memory fell from {} to {}", bytes(peak), bytes(now)),
                format!(
                    "resident anonymous memory stays at {}: {} of it ({}) is not live",
                    bytes(anonymous),
                    bytes(kept),
                    percent(kept / anonymous)
                ),
            ],
            runner_up: Some(Class::None),
            rate: None,
        });
    }
    None
}
