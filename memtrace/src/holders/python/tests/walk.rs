//! All objects that are reachable, each by its cheapest path.

use super::{
    super::{super::reference::Label, *},
    Memory,
};
use crate::hash::FastMap;
use std::{cmp::Reverse, collections::BinaryHeap};

/// How an object was reached.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) cost: u32,
    pub(super) from: Option<u64>,
    root: Option<Root>,
    label: Label,
}

pub(super) struct Walk {
    pub(super) reached: FastMap<u64, Step>,
}

impl Walk {
    pub(super) fn new(python: &Python, memory: &dyn Memory) -> Walk {
        let mut reached: FastMap<u64, Step> = FastMap::default();
        let mut queue = BinaryHeap::new();
        python.roots(memory, &mut |root, reference| {
            let step = Step {
                cost: reference.cost,
                from: None,
                root: Some(root),
                label: reference.label,
            };
            let known = reached.get(&reference.target);
            if known.is_none_or(|known| known.cost > step.cost) {
                queue.push((Reverse(step.cost), reference.target));
                reached.insert(reference.target, step);
            }
        });
        while let Some((Reverse(cost), object)) = queue.pop() {
            if reached[&object].cost != cost {
                continue;
            }
            python.references(memory, object, &mut |reference| {
                if reference.label == Label::Buffer {
                    return;
                }
                let cost = cost + reference.cost;
                let known = reached.get(&reference.target);
                if known.is_none_or(|known| known.cost > cost) {
                    queue.push((Reverse(cost), reference.target));
                    let step = Step {
                        cost,
                        from: Some(object),
                        root: None,
                        label: reference.label,
                    };
                    reached.insert(reference.target, step);
                }
            });
        }
        Walk { reached }
    }

    /// The path to an object.
    pub(super) fn path(
        &self,
        python: &Python,
        memory: &dyn Memory,
        object: u64,
        is_redacted: bool,
    ) -> Shown {
        let mut labels = Vec::new();
        let mut step = &self.reached[&object];
        while let Some(from) = step.from {
            labels.push(step.label);
            step = &self.reached[&from];
        }
        let root = step.root.unwrap();
        if !matches!(root, Root::Module(_)) {
            labels.push(step.label);
        }
        labels.reverse();
        let begin = python.show_root(memory, root, is_redacted);
        let end = python.show(memory, &labels, is_redacted);
        Shown {
            text: begin.text + &end.text,
            is_expression: begin.is_expression && end.is_expression,
        }
    }
}
