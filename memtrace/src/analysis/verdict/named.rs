//! Sites that a screen names although no verdict blames them: where to look first.

use std::ops::RangeInclusive;

use super::{context::Context, thresholds::SITE_FLOOR};
use crate::{
    analysis::series::{Place, SiteSeries, place},
    event::Layer,
    frames::mappings::{self, Use},
    ledger::SiteKey,
};

/// Sites of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Named {
    /// That whose memory grew most, if enough to matter, and its rate in bytes per second; `None` if the process does not
    /// grow at all. Arenas of Python count together: which site requests the next one is chance.
    pub(crate) largest: Option<(SiteKey, f64)>,
    /// That which maps the stacks of new threads most often.
    pub(crate) creates_threads: Option<SiteKey>,
    /// One of the line that starts most of the child processes, if these become more.
    pub(crate) starts_processes: Option<SiteKey>,
    /// That which maps and unmaps about as much as the machine's shared memory rises by, and its rate in bytes per second:
    /// files in shared memory may outlive their mappings.
    pub(crate) maps_shared: Option<(SiteKey, f64)>,
}

/// Rates that are about the same: the machine's memory is counted in another time than that of the program.
const ALIKE: RangeInclusive<f64> = 0.67..=1.5;

impl Named {
    /// `rises`: so does the memory of the process, however slowly. `shared`: bytes per second by which the machine's shared
    /// memory rises steadily.
    pub(super) fn of(context: &Context, rises: bool, shared: Option<f64>) -> Named {
        let window = context.window;
        let most = |value: &dyn Fn(&SiteSeries) -> f64| {
            let sites = context.series.sites.iter();
            let valued = sites.map(|site| (site.key, value(site)));
            let best = valued.max_by(|a, b| a.1.total_cmp(&b.1));
            best.filter(|(_, value)| *value > 0.0)
        };
        let largest = most(&|site| {
            let is_of_program = matches!(
                site.mapping,
                None | Some(Use::Program | Use::Stack | Use::Runtime)
            );
            if !is_of_program || place(&site.key) != Place::Host {
                return 0.0;
            }
            context.touched(site).unwrap_or(1.0) * window.change(&site.live_bytes)
        });
        let of_arenas = most(&|site| match site.key.layer {
            Layer::Python => window.change(&site.live_bytes),
            _ => 0.0,
        });
        let arenas = window.change(&context.series.python);
        let of_arenas = of_arenas.map(|(site, _)| (site, arenas));
        let both = largest.into_iter().chain(of_arenas);
        let largest = both.max_by(|a, b| a.1.total_cmp(&b.1));
        let seconds = window.change(&context.series.times).max(f64::MIN_POSITIVE);
        let largest = largest.filter(|(_, growth)| rises && *growth >= SITE_FLOOR);
        let creates_threads = most(&|site| match site.mapping {
            Some(Use::Stack) => window.change(&site.alloc_count),
            _ => 0.0,
        });
        Named {
            maps_shared: shared.and_then(|rise| maps_shared(context, rise)),
            starts_processes: None,
            largest: largest.map(|(site, growth)| (site, growth / seconds)),
            creates_threads: creates_threads.map(|(site, _)| site),
        }
    }
}

fn maps_shared(context: &Context, rise: f64) -> Option<(SiteKey, f64)> {
    let series = context.series;
    let seconds = series.times.last()? - series.times.first()?;
    let is_of_program = |site: &SiteKey| {
        let frames = context.stacks.get(site.stack);
        site.layer == Layer::Vm && mappings::of(site.by_allocator, frames.frames()) == Use::Program
    };
    let churning = series.churning.iter().filter(|of| is_of_program(&of.site));
    let rates = churning.map(|of| (of.site, of.bytes as f64 / seconds.max(f64::MIN_POSITIVE)));
    let most = rates.max_by(|a, b| a.1.total_cmp(&b.1));
    most.filter(|(_, rate)| ALIKE.contains(&(rate / rise)))
}
