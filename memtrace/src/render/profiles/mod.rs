//! Profiles for the viewers of other tools. Layers overlap, so each profile keeps them apart.

mod pprof;
#[cfg(test)]
mod tests;

pub(crate) use pprof::pprof;

use crate::recording::Snapshot;

/// The program that wrote a profile.
fn exporter(snapshot: &Snapshot) -> String {
    format!("memtrace {}", snapshot.meta.version)
}
