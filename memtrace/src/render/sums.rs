//! The sums of a report, with which the tests of other formats compare theirs.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    analysis::verdict::Diagnosis,
    recording::Snapshot,
    render,
    view::{Filter, Metric},
};

/// Bytes and blocks by layer: allocated, then live.
pub(crate) type Sums = BTreeMap<String, [u64; 4]>;

/// Sums of the sites of the report in JSON, whose live bytes are those of its totals.
pub(crate) fn reported(snapshot: &Snapshot, filter: &Filter) -> Sums {
    let mut out = Vec::new();
    let none = Diagnosis::default();
    render::json(&mut out, snapshot, filter, Metric::LiveBytes, None, &none).unwrap();
    let report: Value = serde_json::from_slice(&out).unwrap();
    let list = |name: &str| report[name].as_array().unwrap().clone();
    let mut sums = Sums::new();
    for site in list("sites") {
        let figures = ["alloc_bytes", "alloc_count", "live_bytes", "live_count"];
        add(&mut sums, layer(&site), figures.map(|of| number(&site[of])));
    }
    for (layer_name, sums) in &sums {
        let totals = list("totals");
        let totals = totals.iter().filter(|total| layer(total) == *layer_name);
        let live: u64 = totals.map(|total| number(&total["live_bytes"])).sum();
        assert_eq!(sums[2], live, "{layer_name}");
    }
    sums
}

/// Adds to the sums of a layer, with the mappings by allocators, which the report's totals contain.
pub(crate) fn add(sums: &mut Sums, layer: &str, figures: [u64; 4]) {
    let layer = layer.trim_end_matches(" (by allocator)");
    let sums = sums.entry(layer.to_owned()).or_default();
    for (sum, figure) in sums.iter_mut().zip(figures) {
        *sum += figure;
    }
}

fn layer(of: &Value) -> &str {
    of["layer"].as_str().unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}
