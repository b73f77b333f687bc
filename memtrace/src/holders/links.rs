//! The references along paths, as memory is now. Many paths go through the same container, which is read once for all
//! of them.

use super::{
    graph::{Graph, NodeId},
    memory::Memory,
    reference::Link,
};
use crate::hash::FastMap;

/// For each holder, the cheapest reference to each wanted node, and its cost.
pub(super) struct Links(FastMap<NodeId, FastMap<NodeId, Option<(u32, Link)>>>);

impl Links {
    /// Looks for the second node of each pair in the first one.
    pub(super) fn new(
        graph: &Graph<'_>,
        pairs: impl Iterator<Item = (NodeId, NodeId)>,
        memory: &dyn Memory,
    ) -> Self {
        let mut links = Self(FastMap::default());
        for (holder, node) in pairs {
            links.0.entry(holder).or_default().insert(node, None);
        }
        for (holder, nodes) in &mut links.0 {
            graph.references(*holder, memory, &mut |reference| {
                let node = graph.referred(reference);
                let Some(best) = node.and_then(|node| nodes.get_mut(&node)) else {
                    return;
                };
                if best.as_ref().is_none_or(|(cost, _)| reference.cost < *cost) {
                    *best = Some((reference.cost, Link::of(reference)));
                }
            });
        }
        links
    }

    /// The reference from `holder` to `node`; `None`: it is gone.
    pub(super) fn get(&self, holder: NodeId, node: NodeId) -> Option<&Link> {
        let (_, link) = self.0.get(&holder)?.get(&node)?.as_ref()?;
        Some(link)
    }
}
