//! Memory that sites request in steps: Python's arenas, and chunks of a runtime's heap. Which site takes the next step is
//! chance, so those of a kind are judged together.

use super::{
    class::{Class, Grade},
    context::Context,
    detectors::cache,
    evidence::{Amount, Statement, grown},
    shape::{Judged, Shape},
    subjects::SiteFinding,
    thresholds::{OF_LEVEL, PROCESS_FLOOR, REPORTED, SITE_FLOOR},
};
use crate::{analysis::series::SiteSeries, event::Layer, frames::mappings::Use};

static ARENAS_OF_SITE: Statement = Statement {
    name: "site_took_arenas",
    sentence: "{growth} in arenas of Python's object allocator were requested here",
};

static ARENAS: Statement = Statement {
    name: "arenas_grow",
    sentence: "all arenas: {growth} in {length}, {rate}",
};

static ARENA: Statement = Statement {
    name: "arena_of_many",
    sentence: "an arena holds many objects: this line merely triggered a new one",
};

static CHUNKS_OF_SITE: Statement = Statement {
    name: "site_took_chunks",
    sentence: "{growth} in chunks of the heap of {heap} were requested here",
};

static CHUNKS: Statement = Statement {
    name: "chunks_grow",
    sentence: "all chunks: {growth} in {length}, {rate}",
};

/// Memory that is requested in steps.
pub(super) struct All {
    course: Judged,
    /// Bytes requested in the window.
    growth: f64,
    /// Whether most of what fills them is certainly kept, in a process that grows steadily.
    is_kept: bool,
}

/// See the module. `None`: the recording is too short.
pub(super) struct Stepped {
    arenas: Option<All>,
    chunks: Option<All>,
}

impl Stepped {
    pub(super) fn of(context: &Context) -> Stepped {
        let series = context.series;
        let chunks = series.mapped(Use::Runtime);
        let all = |values: &[f64], filled: Option<Judged>, is_kept: bool| {
            let growth = context.window.change(values);
            // At most one step as large was there before, partly filled.
            let fills = |filled: &Judged| {
                filled.shape() == Shape::Steady && filled.trend.growth() <= 2.0 * growth
            };
            let requested = judged(context, values, SITE_FLOOR)?;
            let course = filled.filter(fills).unwrap_or(requested);
            Some(All {
                course,
                growth,
                is_kept,
            })
        };
        // Where objects fill arenas at a steady rate, what is resident beyond the blocks of malloc shows it better.
        let filled = series.beyond_blocks();
        let filled = filled.and_then(|beyond| judged(context, &beyond, PROCESS_FLOOR));
        let arenas = context.window.change(&series.python);
        let objects = context.kept_objects();
        let is_kept = objects.is_some_and(|objects| objects >= REPORTED * arenas);
        Stepped {
            arenas: all(&series.python, filled, is_kept && context.is_steady()),
            chunks: all(&chunks, None, false),
        }
    }

    /// `None`: the site is judged by itself.
    pub(super) fn with(&self, site: &SiteSeries) -> Option<&All> {
        match (site.key.layer, site.mapping) {
            (Layer::Python, _) => self.arenas.as_ref(),
            (_, Some(Use::Runtime)) => self.chunks.as_ref(),
            _ => None,
        }
    }
}

impl All {
    /// A site's part of it; `None` if all of it does not grow enough to matter, or the site's part.
    pub(super) fn part(
        &self,
        context: &Context,
        site: &SiteSeries,
    ) -> Option<(Class, SiteFinding)> {
        let trend = &self.course.trend;
        let growth = context.window.change(&site.live_bytes);
        if !self.course.is_material() || growth < SITE_FLOOR || growth < OF_LEVEL * trend.growth() {
            return None;
        }
        let runtime = site.code.runtime.filter(|_| site.key.layer == Layer::Vm);
        let share = growth / self.growth.max(growth);
        let limited = cache::limited(context, &site.key);
        let (class, runner_up) = match self.course.shape() {
            _ if limited.is_some() => (Class::Cache, Class::Leak),
            Shape::Steady if runtime.is_some_and(|of| of.is_lazy) => {
                (Class::Undetermined, Class::Leak)
            }
            Shape::Steady => (Class::Leak, Class::Cache),
            // Arenas come in steps, and may have had room before.
            Shape::Slowing | Shape::Between | Shape::Stepped if self.is_kept => {
                (Class::Leak, Class::Cache)
            }
            Shape::Slowing if runtime.is_none() => (Class::Cache, Class::Leak),
            _ => (Class::Undetermined, Class::Leak),
        };
        let of_site = ("growth", Amount::Change(growth));
        let mut evidence = match runtime {
            None => vec![
                ARENAS_OF_SITE.with([of_site]),
                ARENAS.with(grown(trend)),
                ARENA.with([]),
            ],
            Some(heap) => vec![
                CHUNKS_OF_SITE.with([of_site, ("heap", Amount::Word(heap.name))]),
                CHUNKS.with(grown(trend)),
            ],
        };
        evidence.extend(limited);
        let found = SiteFinding {
            grade: match class {
                Class::Undetermined => Grade::D,
                _ => Grade::C,
            },
            evidence,
            runner_up,
            rate: Some(share * trend.slope),
            growth: share * trend.growth(),
        };
        Some((class, found))
    }
}

fn judged(context: &Context, values: &[f64], floor: f64) -> Option<Judged> {
    Judged::of(&context.series.times, values, context.window.from, floor).ok()
}
