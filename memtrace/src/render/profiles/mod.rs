//! Profiles for the viewers of other tools. Layers overlap, so each profile keeps them apart.

mod firefox;
mod labels;
mod otlp;
mod perfetto;
mod pprof;
mod speedscope;
mod strings;

pub(crate) use firefox::firefox;
pub(crate) use otlp::otlp;
pub(crate) use perfetto::{Course, perfetto};
pub(crate) use pprof::pprof;
pub(crate) use speedscope::speedscope;

use crate::{event::Layer, recording::Snapshot, render::collapsed, view::Shown};

/// The sites that may be added up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    /// Address space comes last: it contains others.
    is_vm: bool,
    layer: String,
}

impl Part {
    fn of(shown: &Shown) -> Part {
        Part {
            is_vm: shown.site.key.layer == Layer::Vm,
            layer: collapsed::layer(shown),
        }
    }
}

/// The program that wrote a profile.
fn exporter(snapshot: &Snapshot) -> String {
    format!("memtrace {}", snapshot.meta.version)
}
