//! The ways to part hosts by one fact.

use std::collections::BTreeSet;

use super::{
    host::{Facts, Host},
    hosts::Hosts,
    order,
};
use crate::{
    diff::{is_of_session, is_unread, rank},
    hash::FastMap,
    recording::variables::{ALL, NAMES},
};

/// A field with more values describes each host, and not a kind of host.
const MOST_VALUES: usize = 64;

/// Facts of what a host either has or has not.
const OPTIONAL: [&str; 6] = [
    "lib.",
    "python.package.",
    "conda.package.",
    "kernel.option.",
    "kernel.module.",
    "container.",
];

/// What a host may meet. The order is that of how often such facts explain growth.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Condition {
    rank: u32,
    pub(crate) field: String,
    pub(crate) is: Is,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Is {
    Value(String),
    Absent,
    AtLeast(String),
    Below(String),
    Not(String),
    Present,
}

/// Two sides of the hosts whose value is known.
#[derive(Clone, Debug)]
pub(super) struct Split {
    pub(super) known: Hosts,
    pub(super) has: Hosts,
    /// Which exactly the hosts in `has` meet.
    pub(super) conditions: Vec<Condition>,
}

impl Split {
    /// Whether both are by the same field.
    pub(super) fn is_of_one_fact(&self, other: &Self) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.any(|of| other.conditions.iter().any(|other| other.field == of.field))
    }
}

/// All that part the hosts.
pub(super) fn splits(hosts: &[Host]) -> Vec<Split> {
    let fields: BTreeSet<&str> = hosts
        .iter()
        .flat_map(|host| host.facts.keys().map(String::as_str))
        // A state at the end, and not a setting.
        .filter(|field| !is_of_session(field) && ![NAMES, "descriptors.most"].contains(field))
        .collect();
    merged(fields.into_iter().flat_map(|field| of_field(hosts, field)))
}

/// The same for some of the hosts.
pub(super) fn within(splits: &[Split], hosts: &Hosts) -> Vec<Split> {
    let parts = splits.iter().map(|split| Split {
        known: split.known.both(hosts),
        has: split.has.both(hosts),
        conditions: split.conditions.clone(),
    });
    merged(parts)
}

/// The number of fields.
pub(super) fn fields(splits: &[Split]) -> usize {
    let conditions = splits.iter().flat_map(|split| &split.conditions);
    let fields: BTreeSet<&str> = conditions.map(|of| &*of.field).collect();
    fields.len()
}

/// Facts that part the hosts in the same way are one. What does not part them is left out.
fn merged(splits: impl Iterator<Item = Split>) -> Vec<Split> {
    let mut alike: FastMap<(Hosts, Hosts), Vec<Condition>> = FastMap::default();
    for split in splits {
        let has = split.has.len();
        if has > 0 && has < split.known.len() {
            let conditions = alike.entry((split.known, split.has)).or_default();
            conditions.extend(split.conditions);
        }
    }
    let mut splits: Vec<Split> = alike
        .into_iter()
        .map(|((known, has), mut conditions)| {
            conditions.sort();
            Split {
                known,
                has,
                conditions,
            }
        })
        .collect();
    splits.sort_by(|a, b| a.conditions.cmp(&b.conditions));
    splits
}

fn of_field(hosts: &[Host], field: &str) -> Vec<Split> {
    let values: Vec<Option<Value>> = hosts.iter().map(|host| value(&host.facts, field)).collect();
    let distinct: BTreeSet<&Value> = values.iter().flatten().collect();
    if distinct.len() < 2 || distinct.len() > MOST_VALUES {
        return Vec::new();
    }
    let known = Hosts::of(hosts.len(), |host| values[host].is_some());
    let is_unread = distinct
        .iter()
        .any(|value| value.text().is_some_and(is_unread));
    let split = |is: Is, meets: &dyn Fn(&Value) -> bool| Split {
        known: known.clone(),
        has: Hosts::of(hosts.len(), |host| values[host].as_ref().is_some_and(meets)),
        conditions: vec![Condition {
            rank: rank(field, is_unread),
            field: field.to_owned(),
            is,
        }],
    };
    let has_more = distinct.len() > 2;
    let mut splits = Vec::new();
    for value in &distinct {
        let (is, other) = match value {
            Value::Absent => (Is::Absent, Is::Present),
            Value::Is(text) => (Is::Value(text.clone()), Is::Not(text.clone())),
        };
        splits.push(split(is, &|of| of == *value));
        if has_more {
            splits.push(split(other, &|of| of != *value));
        }
    }
    let texts: Option<Vec<&str>> = distinct.iter().map(|value| value.text()).collect();
    let Some(mut texts) =
        texts.filter(|texts| has_more && order::is_ordered(field, texts.iter().copied()))
    else {
        return splits;
    };
    texts.sort_by(|a, b| order::compare(a, b));
    for least in texts.into_iter().skip(1) {
        let is_below = |of: &Value| {
            of.text()
                .is_some_and(|of| order::compare(of, least).is_lt())
        };
        splits.push(split(Is::Below(least.to_owned()), &is_below));
        splits.push(split(Is::AtLeast(least.to_owned()), &|of| !is_below(of)));
    }
    splits
}

/// The value of a field on a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Absent,
    Is(String),
}

impl Value {
    fn text(&self) -> Option<&str> {
        match self {
            Value::Absent => None,
            Value::Is(text) => Some(text),
        }
    }
}

/// `None`: not known.
fn value(facts: &Facts, field: &str) -> Option<Value> {
    if let Some(values) = facts.get(field) {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        return Some(Value::Is(values.join(" | ")));
    }
    let is_optional = match field.starts_with("env.") {
        true => facts.get(NAMES).is_some_and(|names| names.iter().eq([ALL])),
        false => OPTIONAL.iter().any(|family| field.starts_with(family)),
    };
    is_optional.then_some(Value::Absent)
}
