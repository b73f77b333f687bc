//! The nodes that alone keep most of a process's memory, named as programmers know them.

use super::{
    dominators::Dominators,
    error::Error,
    graph::{Graph, NodeId},
    memory::{Cached, Live},
    retained::Retained,
    scene::Scene,
    ways,
    witness::{Witness, Witnesses},
};
use crate::recording::{Kept, Path, Retainer, Retainers, Step, StepKind, WayKind};
use std::collections::HashSet;

/// Computes the bytes that each node reached by a search keeps. Drops the cache of `memory`, because the computation
/// needs the room.
///
/// # Errors
/// There are more references than can be numbered.
pub(super) fn retained(graph: &mut Graph<'_>, memory: &Cached<Live>) -> Result<Retained, Error> {
    memory.forget();
    let met = graph.take_met().unwrap_or_default();
    let (root, garbage) = virtual_nodes(graph);
    let (references, sizes) = met.finish(root, garbage);
    if references.is_full() {
        return Err(Error::TooMany);
    }
    let dominators = Dominators::new(references, garbage as usize + 1, root);
    Ok(Retained::new(dominators, |node| match node >= root {
        true => Kept::default(),
        false => size(graph, &sizes, node),
    }))
}

/// The node above everything reachable from roots, and the one above everything that only garbage holds.
fn virtual_nodes(graph: &Graph<'_>) -> (NodeId, NodeId) {
    let root = graph.len() as NodeId;
    (root, root + 1)
}

/// A node's own size. An object in a block is counted as that block.
fn size(graph: &Graph<'_>, sizes: &[u32], node: NodeId) -> Kept {
    let Some(object) = graph.object(node) else {
        let block = graph.blocks.block(node as usize);
        return Kept {
            bytes: block.size,
            blocks: 1,
        };
    };
    let number = graph.number(node);
    let own = number.and_then(|number| sizes.get(number)).copied();
    Kept {
        bytes: own.unwrap_or(0).into(),
        blocks: graph.blocks.containing(object).is_none().into(),
    }
}

impl Scene<'_> {
    /// The bytes that objects and blocks keep together; `None`: not requested, or none of them is reached.
    pub(super) fn kept(&self, addresses: &[u64]) -> Option<Kept> {
        let nodes = addresses.iter();
        let nodes: HashSet<NodeId> = nodes.filter_map(|&at| self.graph.reached(at)).collect();
        self.retained.as_ref()?.together(&nodes)
    }

    /// The nodes that keep most; `None`: not requested.
    pub(super) fn retainers(&self) -> Option<Retainers> {
        let retained = self.retained.as_ref()?;
        let (_, garbage) = virtual_nodes(self.graph);
        let largest = retained.retainers();
        let nodes: Vec<NodeId> = largest.iter().map(|retainer| retainer.node).collect();
        // Garbage as a whole is not a node of the graph.
        let known: Vec<NodeId> = nodes.iter().copied().filter(|&it| it != garbage).collect();
        let witnesses = Witnesses::new(self.graph, &known, self.cached.now().clone());
        let found = nodes.iter().enumerate().filter_map(|(index, &node)| {
            let witness = (node != garbage).then(|| witnesses.witness(node))?;
            Some((index, witness.ok()?))
        });
        let found: Vec<(usize, Witness)> = found.collect();
        let (lengths, growth) = self.lengths(&found);
        let naming = self.naming();
        let mut names: Vec<Option<WayKind>> = nodes.iter().map(|_| None).collect();
        for (index, witness) in &found {
            let ways = ways::ways(&naming, &[witness], &lengths, &growth);
            names[*index] = ways.into_iter().next().map(|way| way.held);
        }
        let largest = largest
            .into_iter()
            .zip(names)
            .map(|(retainer, held)| Retainer {
                kept: retainer.kept,
                depth: retainer.depth,
                held: match held {
                    Some(held) => held,
                    None if retainer.node == garbage => {
                        WayKind::Cycle(naming.collector(), Path::of(Vec::new()))
                    }
                    None => self.unnamed(retainer.node),
                },
            });
        let lost = self.lost();
        Some(Retainers {
            reachable: retained.total(),
            lost: Kept {
                bytes: lost.iter().map(|block| block.size).sum(),
                blocks: lost.len() as u64,
            },
            largest: largest.collect(),
        })
    }

    /// A node without a path, named by its address.
    fn unnamed(&self, node: NodeId) -> WayKind {
        let is_object = self.graph.object(node).is_some();
        let kind = match is_object {
            true => StepKind::Object,
            false => StepKind::Block,
        };
        let name = format!("{:#x}", self.graph.address(node));
        WayKind::Path(Path::of(vec![Step::new(kind, name)]))
    }
}
