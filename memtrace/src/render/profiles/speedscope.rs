//! speedscope's own format: a sampled profile for each layer and metric, and frames that all of them share.

use std::{collections::BTreeMap, io::Write};

use serde::Serialize;

use super::{Part, exporter, labels::Labels};
use crate::{
    recording::Snapshot,
    render::{Error, collapsed, json_lines::print},
    view::{Filter, Metric},
};

/// Names the version of the format too.
const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Serialize)]
struct File {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: String,
    shared: Shared,
    profiles: Vec<Profile>,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<Frame>,
}

#[derive(Serialize)]
struct Frame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    /// The sum of the weights.
    end_value: u64,
    /// Each is a stack: places in the list of frames, the root first.
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

/// Writes a profile of each metric for each layer of the sites that pass `filter`, below their processes, and returns
/// how many sites have any of it.
///
/// # Errors
///
/// When ages are requested but unknown, or when the output cannot be written.
pub(crate) fn speedscope(
    out: &mut impl Write,
    snapshot: &Snapshot,
    filter: &Filter,
    metrics: &[Metric],
) -> Result<usize, Error> {
    let selection = filter.select(snapshot, Metric::LiveBytes)?;
    let mut labels = Labels::default();
    let mut profiles: BTreeMap<(Part, usize), Profile> = BTreeMap::new();
    let mut sites = 0;
    for shown in &selection.sites {
        let totals = shown.totals();
        let values = metrics.iter().map(|metric| metric.of(&totals)).enumerate();
        let values: Vec<_> = values.filter(|(_, value)| *value > 0).collect();
        if values.is_empty() {
            continue;
        }
        sites += 1;
        let mut stack = vec![labels.note(collapsed::process(shown))];
        stack.extend(labels.stack(shown, filter));
        let part = Part::of(shown);
        for (at, value) in values {
            let profile = profiles.entry((part.clone(), at));
            let profile = profile.or_insert_with(|| empty(&part, metrics[at]));
            profile.end_value += value;
            profile.samples.push(stack.clone());
            profile.weights.push(value);
        }
    }
    let frames = labels.all.into_iter();
    let frames = frames.map(|label| Frame {
        name: label.name,
        file: label.file,
        line: label.line,
    });
    let file = File {
        schema: SCHEMA,
        exporter: exporter(snapshot),
        shared: Shared {
            frames: frames.collect(),
        },
        profiles: profiles.into_values().collect(),
    };
    print(out, &file)?;
    Ok(sites)
}

fn empty(part: &Part, metric: Metric) -> Profile {
    Profile {
        r#type: "sampled",
        name: format!("{}, {metric}", part.layer),
        unit: match metric.unit() {
            "bytes" => "bytes",
            _ => "none",
        },
        start_value: 0,
        end_value: 0,
        samples: Vec::new(),
        weights: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        render::sums::{Sums, add, reported},
        view::fixture,
    };

    fn written(snapshot: &Snapshot, filter: &Filter, metrics: &[Metric]) -> (Value, usize) {
        let mut out = Vec::new();
        let sites = speedscope(&mut out, snapshot, filter, metrics).unwrap();
        (serde_json::from_slice(&out).unwrap(), sites)
    }

    /// The stacks of a profile, as names.
    fn stacks(file: &Value, profile: usize) -> Vec<Vec<&str>> {
        let name = |place: &Value| {
            let frame = &file["shared"]["frames"][place.as_u64().unwrap() as usize];
            frame["name"].as_str().unwrap()
        };
        let samples = file["profiles"][profile]["samples"].as_array().unwrap();
        let stacks = samples.iter().map(|stack| stack.as_array().unwrap());
        stacks
            .map(|stack| stack.iter().map(name).collect())
            .collect()
    }

    #[test]
    fn totals_are_those_of_the_report() {
        let snapshot = fixture::snapshot();
        let metrics = [
            Metric::AllocBytes,
            Metric::AllocCount,
            Metric::LiveBytes,
            Metric::LiveCount,
        ];
        let (file, sites) = written(&snapshot, &Filter::default(), &metrics);
        assert_eq!(sites, 4);
        let mut sums = Sums::new();
        for profile in file["profiles"].as_array().unwrap() {
            let weights = profile["weights"].as_array().unwrap().iter();
            let sum: u64 = weights.map(|weight| weight.as_u64().unwrap()).sum();
            assert_eq!(profile["endValue"], sum);
            let (layer, metric) = profile["name"].as_str().unwrap().split_once(", ").unwrap();
            let sum = metrics.map(|of| if of.name() == metric { sum } else { 0 });
            add(&mut sums, layer, sum);
        }
        assert_eq!(sums, reported(&snapshot, &Filter::default()));
    }

    #[test]
    fn a_profile_is_a_layer_and_address_space_comes_last() {
        let snapshot = fixture::snapshot();
        let metrics = [Metric::LiveBytes, Metric::AllocCount];
        let (file, _) = written(&snapshot, &Filter::default(), &metrics);
        let profiles = file["profiles"].as_array().unwrap().iter();
        let kinds: Vec<_> = profiles.map(|of| (&of["name"], &of["unit"])).collect();
        let expected = [
            ("heap, live-bytes", "bytes"),
            ("heap, alloc-count", "none"),
            ("vm (by allocator), live-bytes", "bytes"),
            ("vm (by allocator), alloc-count", "none"),
        ]
        .map(|(name, unit)| (json!(name), json!(unit)));
        let expected = expected.iter().map(|(name, unit)| (name, unit));
        assert_eq!(kinds, expected.collect::<Vec<_>>());
    }

    #[test]
    fn a_stack_goes_from_its_process_to_its_leaf() {
        let live = [Metric::LiveBytes];
        let snapshot = fixture::snapshot();
        let (file, _) = written(&snapshot, &Filter::default(), &live);
        let native = ["main", "leaker+0x1234", "fill", "grow;it"];
        let truncated = [&["leaker (4242)", "[incomplete: truncated]"][..], &native].concat();
        let expected = [truncated, vec!["leaker (4243)", "[no stack]"]];
        assert_eq!(stacks(&file, 0), expected);

        let by_thread = Filter {
            by_thread: true,
            ..Filter::default()
        };
        let snapshot = fixture::snapshot_of_python();
        let (file, _) = written(&snapshot, &by_thread, &live);
        let frames = ["<module>", "Cache.fill", "list_resize"];
        let python = [&["leaker (4242)", "thread worker"][..], &frames].concat();
        assert_eq!(stacks(&file, 0)[0], python);
        let listed = file["shared"]["frames"].as_array().unwrap();
        let of_cache = json!({ "name": "Cache.fill", "file": "/src/cache;1.py", "line": 41 });
        let found = listed.iter().filter(|frame| **frame == of_cache).count();
        assert_eq!(found, 1, "each frame is listed once");
    }
}
