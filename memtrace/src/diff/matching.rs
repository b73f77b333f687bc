//! Matches the sites of two recordings.
//!
//! A cascade: sites paired in one step are invisible to later ones. A step pairs all sites of both
//! sides that it cannot distinguish, so no arbitrary choice among them is made.

use std::collections::{BTreeMap, HashSet};

use super::{
    Level, Site,
    keys::{Keys, Step},
};
use crate::event::Layer;

/// Sites of both sides (indices; 0: baseline) that are one site, or of one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// `None`: on one side only.
    pub(super) level: Option<Level>,
    pub(super) sites: [Vec<usize>; 2],
}

/// Every site of both sides in exactly one group. Exchanging the sides exchanges the groups' sides
/// and changes nothing else.
pub(super) fn groups(sides: [&[Site]; 2], templates: bool) -> Vec<Group> {
    let mut keys = Keys::new(sides, templates);
    let mut left = sides.map(|sites| (0..sites.len()).collect::<Vec<_>>());
    let mut groups = Vec::new();
    for step in Step::ALL {
        let mut matched = by_key(&mut keys, sides, &left, step, step == Step::Modules);
        matched.retain(|_, [baseline, new]| !baseline.is_empty() && !new.is_empty());
        for (side, left) in left.iter_mut().enumerate() {
            let gone = matched.values().flat_map(|sites| &sites[side]);
            let gone: HashSet<usize> = gone.copied().collect();
            left.retain(|site| !gone.contains(site));
        }
        for sites in matched.into_values() {
            let parts = match step {
                Step::Exact => vec![sites],
                _ => by_line(sides, sites),
            };
            groups.extend(parts.into_iter().map(|sites| Group {
                level: Some(step.level()),
                sites,
            }));
        }
    }
    // Sites of one side only: those of several processes are still one site.
    for side in 0..sides.len() {
        let mut only = [Vec::new(), Vec::new()];
        only[side] = std::mem::take(&mut left[side]);
        let alone = by_key(&mut keys, sides, &only, Step::Exact, true);
        groups.extend(
            alone
                .into_values()
                .map(|sites| Group { level: None, sites }),
        );
    }
    groups
}

type ByKey = BTreeMap<(Layer, bool, Vec<u32>), [Vec<usize>; 2]>;

fn by_key<'a>(
    keys: &mut Keys<'a>,
    sides: [&'a [Site]; 2],
    left: &[Vec<usize>; 2],
    step: Step,
    last: bool,
) -> ByKey {
    let mut groups = ByKey::new();
    for (side, indices) in left.iter().enumerate() {
        for index in indices {
            let site = &sides[side][*index];
            let path = keys.path(side, site, step);
            // Without a stack there is nothing to match by but that.
            if path.is_empty() && !last {
                continue;
            }
            let key = (site.layer, site.is_space, path);
            groups.entry(key).or_default()[side].push(*index);
        }
    }
    groups
}

/// Apart by source lines, if both sides have the same: then the source is.
fn by_line(sides: [&[Site]; 2], sites: [Vec<usize>; 2]) -> Vec<[Vec<usize>; 2]> {
    let mut lines: BTreeMap<Vec<Option<u32>>, [Vec<usize>; 2]> = BTreeMap::new();
    for (side, indices) in sites.iter().enumerate() {
        for index in indices {
            let key = Keys::lines(&sides[side][*index]);
            lines.entry(key).or_default()[side].push(*index);
        }
    }
    let same = lines.values().all(|[a, b]| !a.is_empty() && !b.is_empty());
    match same {
        true => lines.into_values().collect(),
        false => vec![sites],
    }
}
