//! Completeness of the stacks, for scripts.

use serde_json::{Map, Value, json};

use crate::view::health::{Counts, Health, name};

/// The object `stack_health`: `failed` has every reason, `by_module` those that occurred.
pub(super) fn object(health: &Health) -> Value {
    let modules: Map<String, Value> = health
        .modules
        .iter()
        .map(|module| (module.path.clone(), counts(&module.ends)))
        .collect();
    json!({
        "complete": health.complete,
        "truncated": health.truncated,
        "failed": counts(&health.failed),
        "by_module": modules,
    })
}

fn counts(counts: &Counts) -> Value {
    let counts = counts.iter();
    let counts: Map<_, _> = counts
        .map(|(end, count)| (name(*end).to_owned(), json!(count)))
        .collect();
    Value::Object(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{Filter, fixture};
    use memtrace_common::unwind::End;

    #[test]
    fn every_end_is_counted_under_its_own_name() {
        let mut snapshot = fixture::snapshot();
        let template = snapshot.sites[0].clone();
        let ends = || End::ALL.into_iter().map(Some).chain([None]);
        snapshot.sites.clear();
        for (n, end) in (1..).zip(ends()) {
            let mut site = template.clone();
            site.totals.alloc_count = n;
            site.key.stack.0 = 100 + n as u32;
            if let Some(end) = end {
                snapshot.stacks.put(site.key.stack, end, None, []);
            }
            snapshot.sites.push(site);
        }
        let health = Health::of(&snapshot, &Filter::default());
        let value = object(&health);
        assert_eq!(value["complete"], 1);
        assert_eq!(value["truncated"], 2);
        for (n, end) in (1..).zip(ends()).skip(2) {
            assert_eq!(value["failed"][name(end)], n, "{value}");
        }
        assert_eq!(
            value["failed"].as_object().unwrap().len(),
            End::ALL.len() - 1
        );
    }
}
