//! Groups of sites for scripts.

use serde_json::{Value, json};

use crate::{
    event::Layer,
    view::group::{self, Group, Sums},
};

fn sums(layer: Layer, sums: &Sums) -> Value {
    json!({
        "layer": layer.name(),
        "live_bytes": sums.totals.live_bytes,
        "live_count": sums.totals.live_count,
        "inherited_bytes": sums.totals.inherited_bytes,
        "inherited_count": sums.totals.inherited_count,
        "alloc_bytes": sums.totals.alloc_bytes,
        "alloc_count": sums.totals.alloc_count,
        "free_bytes": sums.totals.free_bytes,
        "free_count": sums.totals.free_count,
        "sites": sums.sites,
        "processes": sums.processes(),
    })
}

/// The list `groups`.
pub(in crate::render) fn listed(groups: &[Group]) -> Value {
    let groups = groups.iter().map(|group| {
        let mut value = sums(group.layer, &group.sums);
        value["key"] = json!(group.key);
        value
    });
    groups.collect()
}

/// The list `rest`: with `groups`, nothing is missing.
pub(super) fn rest(unlisted: &[Group]) -> Value {
    let layers = group::rest(unlisted).into_iter();
    let layers = layers.map(|(layer, rest)| {
        let mut value = sums(layer, &rest.sums);
        value["groups"] = json!(rest.groups);
        value
    });
    layers.collect()
}
