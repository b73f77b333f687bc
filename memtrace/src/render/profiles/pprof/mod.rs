//! pprof's format: a compressed protobuf with one sample for each site.

pub(super) mod message;
mod tables;

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use prost::Message;

use self::{
    message::{Label, Profile, Sample, ValueType},
    tables::Tables,
};
use super::exporter;
use crate::{
    recording::Snapshot,
    render::{Error, collapsed, until_closed},
    view::{Filter, Metric, Shown},
};

/// The types of samples, under the names of Go's heap profiles, which viewers know.
const VALUES: [(&str, &str, Metric); 4] = [
    ("alloc_objects", "count", Metric::AllocCount),
    ("alloc_space", "bytes", Metric::AllocBytes),
    ("inuse_objects", "count", Metric::LiveCount),
    ("inuse_space", "bytes", Metric::LiveBytes),
];
const DEFAULT: &str = "inuse_space";

/// Writes a sample with every metric for each site that passes `filter` and has any of them, labelled with its process,
/// thread, layer and device, and returns how many these are.
///
/// # Errors
///
/// When ages are requested but unknown, or when the output cannot be written.
pub(crate) fn pprof(
    out: &mut impl Write,
    snapshot: &Snapshot,
    filter: &Filter,
) -> Result<usize, Error> {
    let profile = profile(snapshot, filter)?;
    let mut compressed = GzEncoder::new(&mut *out, Compression::default());
    let written = compressed
        .write_all(&profile.encode_to_vec())
        .and_then(|()| compressed.finish().map(drop))
        .and_then(|()| out.flush());
    until_closed(written)?;
    Ok(profile.sample.len())
}

/// The profile, which other protobuf formats are made from.
///
/// # Errors
///
/// When ages are requested but unknown.
pub(super) fn profile(snapshot: &Snapshot, filter: &Filter) -> Result<Profile, Error> {
    let selection = filter.select(snapshot, Metric::LiveBytes)?;
    let mut tables = Tables::default();
    let mut samples = Vec::new();
    for shown in &selection.sites {
        let totals = shown.totals();
        let value = VALUES.map(|(_, _, metric)| signed(metric.of(&totals)));
        if value != [0; VALUES.len()] {
            samples.push(Sample {
                location_id: locations(&mut tables, shown, filter),
                value: value.to_vec(),
                label: labels(&mut tables, shown),
            });
        }
    }
    let mut value_type = |name, unit| ValueType {
        r#type: tables.strings.place(name),
        unit: tables.strings.place(unit),
    };
    let sample_type = VALUES.map(|(name, unit, _)| value_type(name, unit));
    let period_type = value_type("space", "bytes");
    let comments = [
        exporter(snapshot),
        "layers are views of the same memory: look at one, as with -tagfocus=layer=heap".into(),
    ];
    let comment = comments.map(|comment| tables.strings.place(&comment));
    let started_ns = snapshot.meta.started_ns;
    let reaches_ns = snapshot.finished_ns.or(snapshot.time_ns);
    Ok(Profile {
        sample_type: sample_type.to_vec(),
        sample: samples,
        time_nanos: signed(snapshot.meta.started_unix_ns),
        duration_nanos: signed(reaches_ns.map_or(0, |end| end.saturating_sub(started_ns))),
        period_type: Some(period_type),
        // Nothing is left out.
        period: 1,
        comment: comment.to_vec(),
        default_sample_type: tables.strings.place(DEFAULT),
        ..tables.into_profile()
    })
}

fn locations<'a>(tables: &mut Tables<'a>, shown: &Shown<'a>, filter: &Filter) -> Vec<u64> {
    let mut locations = tables.locations(&filter.frames(shown.stack));
    let missing = collapsed::missing(shown.stack);
    locations.extend(missing.iter().rev().map(|note| tables.note(note)));
    locations
}

fn labels(tables: &mut Tables, shown: &Shown) -> Vec<Label> {
    let device = shown.site.key.device.map(|device| device.to_string());
    let texts = [
        ("process", Some(collapsed::program(shown))),
        ("thread", shown.stack.thread().map(crate::escape::clean)),
        ("layer", Some(collapsed::layer(shown))),
        ("device", device),
    ];
    let texts = texts.into_iter().filter_map(|(key, text)| {
        Some(Label {
            key: tables.strings.place(key),
            str: tables.strings.place(&text?),
            num: 0,
        })
    });
    let mut labels: Vec<Label> = texts.collect();
    // A group of processes has none.
    if shown.tgid() != 0 {
        labels.push(Label {
            key: tables.strings.place("pid"),
            str: 0,
            num: shown.tgid().into(),
        });
    }
    labels
}

pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
