//! Lost blocks that other lost blocks refer to: what is lost first, and cycles that lost blocks are in.

use super::{
    graph::{Graph, NodeId},
    memory::Memory,
    native::{self, Block, Scanner},
};
use crate::hash::FastMap;
use std::cell::OnceCell;

/// Most bytes of lost blocks that are searched for references, and most references that are kept.
const MOST_BYTES: u64 = 1 << 30;
const MOST_REFERENCES: usize = 1 << 22;

/// Most blocks that are looked at on the way to what is lost first.
const FAR: usize = 1 << 12;

/// How a lost block is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// Nothing refers to it.
    Alone,
    /// The first one, to which nothing refers, leads to it.
    With(NodeId),
    /// These refer to each other in a circle, and lead to it.
    Cycle(Vec<NodeId>),
}

/// The blocks of a group that seem lost.
#[derive(Debug, Default)]
pub(super) struct LostOf {
    pub(super) blocks: Vec<(NodeId, Lost)>,
    /// How many more there are to which words with marks may point.
    pub(super) marked: usize,
}

impl LostOf {
    /// Blocks that are in use if one of these is.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let blocks = self.blocks.iter();
        blocks.flat_map(|(block, how)| [*block].into_iter().chain(how.first().iter().copied()))
    }

    /// Leaves out the blocks that are in use if the marked ones are. If these are half of them, the others are alike, and
    /// the words that point to them were missed.
    pub(super) fn leave_out(&mut self, is_marked: impl Fn(NodeId) -> bool) {
        let all = self.blocks.len();
        self.blocks.retain(|(block, how)| {
            !is_marked(*block) && !how.first().iter().any(|&it| is_marked(it))
        });
        if 2 * self.blocks.len() <= all {
            self.blocks.clear();
        }
        self.marked = all - self.blocks.len();
    }
}

impl Lost {
    /// The blocks that keep the block.
    fn first(&self) -> &[NodeId] {
        match self {
            Self::Alone => &[],
            Self::With(first) => std::slice::from_ref(first),
            Self::Cycle(blocks) => blocks,
        }
    }
}

/// The lost blocks of a process. They are read when they are needed.
pub(super) struct LostBlocks<'a> {
    graph: &'a Graph<'a>,
    memory: &'a dyn Memory,
    referrers: OnceCell<FastMap<NodeId, Vec<NodeId>>>,
}

impl<'a> LostBlocks<'a> {
    pub(super) fn new(graph: &'a Graph<'a>, memory: &'a dyn Memory) -> Self {
        Self {
            graph,
            memory,
            referrers: OnceCell::new(),
        }
    }

    /// How the block is lost.
    pub(super) fn how(&self, block: NodeId) -> Lost {
        let referrers = self.referrers.get_or_init(|| self.read());
        how(block, |node| {
            referrers.get(&node).map_or(&[], Vec::as_slice)
        })
    }

    /// For each lost block, the others that refer to it.
    fn read(&self) -> FastMap<NodeId, Vec<NodeId>> {
        let mut referrers: FastMap<NodeId, Vec<NodeId>> = FastMap::default();
        let blocks = self.graph.blocks;
        let is_lost = |number: NodeId| self.graph.holder(number).is_none();
        let mut scanner = Scanner::new(blocks.bounds());
        let (mut bytes, mut count) = (0, 0);
        for number in (0..blocks.len() as NodeId).filter(|&number| is_lost(number)) {
            let block = blocks.block(number as usize);
            if !native::is_allocated(self.memory, block) {
                continue;
            }
            let Block { start, size } = block;
            bytes += size;
            if bytes > MOST_BYTES || count > MOST_REFERENCES {
                break;
            }
            scanner.scan(self.memory, start..start + size, |_, value| {
                let target = blocks.containing(value).map(|target| target as NodeId);
                if let Some(target) = target.filter(|&it| it != number && is_lost(it)) {
                    let known = referrers.entry(target).or_default();
                    if known.last() != Some(&number) {
                        known.push(number);
                        count += 1;
                    }
                }
            });
        }
        referrers
    }
}

/// Goes back from a block along its referrers. If all ways back end in circles, it is kept by one of them.
fn how<'a>(block: NodeId, referrers: impl Fn(NodeId) -> &'a [NodeId]) -> Lost {
    // The way from `block` back to the node that is looked at, and how many of its referrers were taken.
    let mut way: Vec<(NodeId, usize)> = vec![(block, 0)];
    let mut met: FastMap<NodeId, ()> = [(block, ())].into_iter().collect();
    let mut cycle = None;
    while let Some((node, taken)) = way.last_mut() {
        let (node, all) = (*node, referrers(*node));
        let Some(&next) = all.get(*taken) else {
            if all.is_empty() {
                return match node == block {
                    true => Lost::Alone,
                    false => Lost::With(node),
                };
            }
            way.pop();
            continue;
        };
        *taken += 1;
        if let Some(place) = way.iter().position(|(known, _)| *known == next) {
            cycle.get_or_insert_with(|| way[place..].iter().map(|(node, _)| *node).collect());
        } else if met.len() < FAR && met.insert(next, ()).is_none() {
            way.push((next, 0));
        }
    }
    cycle.map_or(Lost::Alone, Lost::Cycle)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `edges`: a block, and one that refers to it.
    fn of(block: NodeId, edges: &[(NodeId, NodeId)]) -> Lost {
        let mut referrers: FastMap<NodeId, Vec<NodeId>> = FastMap::default();
        for &(to, from) in edges {
            referrers.entry(to).or_default().push(from);
        }
        how(block, |node| {
            referrers.get(&node).map_or(&[], Vec::as_slice)
        })
    }

    #[test]
    fn the_first_one_of_a_lost_group_is_found() {
        assert_eq!(of(1, &[]), Lost::Alone);
        assert_eq!(of(1, &[(1, 2), (2, 3)]), Lost::With(3));
        // A circle that something lost leads to is lost with that.
        assert_eq!(of(1, &[(1, 2), (2, 1), (2, 3)]), Lost::With(3));
    }

    #[test]
    fn blocks_to_which_marked_words_point_are_not_lost() {
        let blocks = || {
            let with = [(2, Lost::With(1)), (3, Lost::Cycle(vec![4, 5]))];
            let alone = (10..14).map(|block| (block, Lost::Alone));
            LostOf {
                blocks: with.into_iter().chain(alone).collect(),
                marked: 0,
            }
        };
        assert_eq!(blocks().nodes().count(), 9);
        let left = |marked: &[NodeId]| {
            let mut of = blocks();
            of.leave_out(|node| marked.contains(&node));
            (of.blocks.len(), of.marked)
        };
        assert_eq!(left(&[]), (6, 0));
        assert_eq!(left(&[12]), (5, 1));
        assert_eq!(left(&[1, 5]), (4, 2));
        // Most are, so the others are, too.
        assert_eq!(left(&[1, 5, 10]), (0, 6));
        let mut none = LostOf::default();
        none.leave_out(|_| true);
        assert_eq!((none.blocks.len(), none.marked), (0, 0));
    }

    #[test]
    fn circles_are_found_beside_and_around_a_block() {
        assert_eq!(of(1, &[(1, 2), (2, 1)]), Lost::Cycle(vec![1, 2]));
        assert_eq!(of(1, &[(1, 2), (2, 3), (3, 2)]), Lost::Cycle(vec![2, 3]));
        assert_eq!(of(1, &[(1, 2), (2, 2)]), Lost::Cycle(vec![2]));
    }
}
