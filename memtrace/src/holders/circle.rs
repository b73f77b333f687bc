//! A circle of references through an object that no root reaches: what to break so that reference counts free it.

use super::{
    graph::{Graph, NodeId},
    memory::Memory,
    reference::Link,
    witness::WitnessStep,
};
use crate::hash::FastMap;
use std::collections::VecDeque;

/// Most nodes that are looked at.
const FAR: usize = 1 << 12;

/// The shortest circle: `node`, what it refers to, and so on until `node` again. Empty: there is none nearby.
pub(super) fn through(graph: &Graph<'_>, node: NodeId, memory: &dyn Memory) -> Vec<WitnessStep> {
    let mut from: FastMap<NodeId, (NodeId, Link)> = FastMap::default();
    let mut queue = VecDeque::from([node]);
    while let Some(holder) = queue.pop_front() {
        graph.references(holder, memory, &mut |reference| {
            let Some(target) = graph.referred(reference) else {
                return;
            };
            // Whatever leads back is not reached from a root either.
            if !graph.is_unreached(target) || from.contains_key(&target) || from.len() >= FAR {
                return;
            }
            from.insert(target, (holder, Link::of(reference)));
            queue.push_back(target);
        });
        if from.contains_key(&node) {
            break;
        }
    }
    let mut circle = Vec::new();
    let mut at = node;
    while let Some((holder, link)) = from.remove(&at) {
        circle.push(WitnessStep { node: at, link });
        at = holder;
    }
    if !circle.is_empty() {
        circle.push(WitnessStep {
            node,
            link: Link::default(),
        });
    }
    circle.reverse();
    circle
}
