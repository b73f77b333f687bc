//! A comparison for programs. Sizes are bytes, rates bytes per unit, frames leaf first. Names are
//! stable: they are only added to.

use std::{io::Write, sync::Arc};

use serde_json::{Value, json};

use crate::{
    diff::{Absence, Comparison, Growth, Level, Matched, Memory, SiteDifference, isa},
    frames::Frame,
    render::until_closed,
};

/// Writes a comparison, with the first `top` sites.
pub(crate) fn json(
    out: &mut impl Write,
    comparison: &Comparison,
    top: Option<usize>,
) -> std::io::Result<()> {
    let text = serde_json::to_string_pretty(&value(comparison, top.unwrap_or(usize::MAX)))?;
    let text = crate::escape::in_json(&text);
    until_closed(writeln!(out, "{text}").and_then(|()| out.flush()))
}

fn value(comparison: &Comparison, top: usize) -> Value {
    let levels = Level::ALL.iter().zip(&comparison.matched);
    let mut by_level: Vec<Value> = levels
        .map(|(level, row)| matched(level.name(), row))
        .collect();
    by_level.push(matched("none", &comparison.unmatched));
    let all = || comparison.matched.iter().chain([&comparison.unmatched]);
    let facts = comparison.fingerprint.iter().map(|difference| {
        let related = difference.related_sites.iter().filter(|site| **site < top);
        json!({
            "field": difference.field,
            "baseline": difference.baseline,
            "new": difference.new,
            "absence": difference.absence.map(Absence::name),
            "related_sites": related.collect::<Vec<_>>(),
        })
    });
    json!({
        "per": comparison.per.unit(),
        "baselines": comparison.baselines,
        "new": comparison.new,
        "memory": {
            "baseline": memory(&comparison.memory[0]),
            "new": memory(&comparison.memory[1]),
        },
        "fingerprint": facts.collect::<Vec<_>>(),
        "not_compared": comparison.not_compared.iter().map(|gap| json!({
            "recording": gap.run,
            "what": gap.what,
        })).collect::<Vec<_>>(),
        "workload": comparison.workload.map(|workload| json!({
            "baseline_allocations_per_unit": workload.baseline,
            "new_allocations_per_unit": workload.new,
            "different": workload.differs(),
        })),
        "sites": comparison.sites.iter().take(top).map(site).collect::<Vec<_>>(),
        "allocator_mappings": comparison.mappings.iter().take(top).map(site).collect::<Vec<_>>(),
        "hidden_sites": comparison.sites.len().saturating_sub(top),
        "matched_bytes": comparison.matched_bytes(),
        "unmatched_bytes": comparison.unmatched_bytes(),
        "total_bytes": comparison.matched_bytes() + comparison.unmatched_bytes(),
        "baseline_total_bytes": all().map(|row| row.baseline_bytes).sum::<u64>(),
        "new_total_bytes": all().map(|row| row.new_bytes).sum::<u64>(),
        "matching": by_level,
        "losses": comparison.losses.iter().map(|(run, reasons)| json!({
            "recording": run,
            "reasons": reasons,
        })).collect::<Vec<_>>(),
        "too_short": comparison.short,
    })
}

fn memory(of: &Memory) -> Value {
    json!({
        "resident_bytes": of.resident,
        "growth_bytes_per_s": of.growth,
        "free_in_allocators_bytes_per_s": of.free,
        "class": of.verdict.map(|(class, _)| class.name()),
        "grade": of.verdict.map(|(_, grade)| grade.name()),
    })
}

fn matched(level: &str, row: &Matched) -> Value {
    json!({
        "match_level": level,
        "sites": row.sites,
        "baseline_bytes": row.baseline_bytes,
        "new_bytes": row.new_bytes,
    })
}

pub(in crate::render) fn site(site: &SiteDifference) -> Value {
    let side = match (&site.baseline_stack, &site.new_stack) {
        (Some(_), Some(_)) => "both",
        (Some(_), None) => "baseline",
        (None, _) => "new",
    };
    // If both are the same, one is enough.
    let differ = site.baseline_stack != site.new_stack && side == "both";
    let baseline = site.baseline_stack.as_deref();
    json!({
        "layer": site.layer.name(),
        "side": side,
        "match_level": site.level.map_or("none", Level::name),
        "baseline_bytes_per_s": site.baseline.rate,
        "new_bytes_per_s": site.new.rate,
        "delta_bytes_per_s": site.delta.rate,
        "interval": interval(&site.delta),
        "baseline_interval": interval(&site.baseline),
        "new_interval": interval(&site.new),
        "baseline_bytes": site.baseline_bytes,
        "new_bytes": site.new_bytes,
        "frames": frames(site.frames()),
        "baseline_frames": baseline.filter(|_| differ).map(|stack| frames(&stack.frames)),
    })
}

fn interval(growth: &Growth) -> Value {
    json!(growth.interval.map(|(low, high)| [low, high]))
}

fn frames(frames: &[Arc<Frame>]) -> Vec<Value> {
    let with_isa = |frame: &Arc<Frame>| {
        let mut value = json!(**frame);
        let found = isa(frame);
        if !found.is_empty() {
            value["isa"] = json!(found);
        }
        value
    };
    frames.iter().map(with_isa).collect()
}
