//! The processed profile of Firefox Profiler: a track for each layer of each process. Its samples are the sites with
//! their live bytes, and its native allocations the sites with all bytes that they ever allocated.

mod format;
mod libraries;
mod track;

use std::{collections::BTreeMap, io::Write};

use self::{
    format::{CATEGORIES, Meta, Profile, milliseconds},
    libraries::Libraries,
    track::Track,
};
use super::{Part, exporter};
use crate::{
    escape::clean,
    ledger::ProcessId,
    recording::Snapshot,
    render::{Error, json_lines::print},
    view::{Filter, Metric},
};

/// Of the format.
const VERSION: u32 = 55;
/// Tracks that are shown at first: a viewer of thousands is slow. The others are in its menu.
const VISIBLE: usize = 15;

/// Writes a profile of the sites that pass `filter`, and returns how many of them have allocated something.
///
/// # Errors
///
/// When ages are requested but unknown, or when the output cannot be written.
pub(crate) fn firefox(
    out: &mut impl Write,
    snapshot: &Snapshot,
    filter: &Filter,
) -> Result<usize, Error> {
    let mut selection = filter.select(snapshot, Metric::LiveBytes)?;
    let sites = &mut selection.sites;
    sites.retain(|shown| shown.live_bytes > 0 || shown.site.totals.alloc_bytes > 0);
    // The viewer expects samples in order of time.
    sites.sort_by_key(|shown| shown.site.first_ns);
    let mut libraries = Libraries::default();
    let mut tracks: BTreeMap<(Part, ProcessId), Track> = BTreeMap::new();
    for shown in &*sites {
        let key = (Part::of(shown), shown.site.key.process);
        let number = tracks.len();
        let track = tracks.entry(key);
        let track = track.or_insert_with(|| Track::new(shown, &snapshot.meta, number));
        track.add(shown, filter, &mut libraries);
    }
    let mut visible: Vec<(usize, u64)> =
        tracks.values().map(Track::live_bytes).enumerate().collect();
    // In the order of their layers if they are equal.
    visible.sort_by_key(|(_, live)| std::cmp::Reverse(*live));
    visible.truncate(VISIBLE);
    let profile = Profile {
        meta: Meta {
            preprocessed_profile_version: VERSION,
            version: 0,
            product: exporter(snapshot),
            oscpu: format!("Linux {}", clean(&snapshot.meta.kernel)),
            start_time: milliseconds(snapshot.meta.started_unix_ns),
            interval: milliseconds(snapshot.meta.interval_ns),
            process_type: 0,
            symbolicated: true,
            uses_only_one_stack_type: true,
            source_code_is_not_on_searchfox: true,
            categories: CATEGORIES,
            marker_schema: [],
            initial_visible_threads: visible.iter().map(|(at, _)| *at).collect(),
            initial_selected_threads: (!tracks.is_empty()).then_some(0).into_iter().collect(),
        },
        libs: libraries.all,
        pages: [],
        counters: [],
        threads: tracks.into_values().map(Track::into_thread).collect(),
    };
    print(out, &profile)?;
    Ok(sites.len())
}

#[cfg(test)]
mod tests;
