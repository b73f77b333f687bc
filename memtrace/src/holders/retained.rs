//! The bytes that each node alone keeps: its own and those of all nodes it dominates, which would be freed with it.
//! Also finds where memory piles up: the node whose retained bytes are in many small parts.

use super::{dominators::Dominators, graph::NodeId};
use crate::recording::Kept;
use std::{cmp::Reverse, collections::HashSet, ops::Range};

/// Nodes that keep less than this share are not named.
const SHARE: u64 = 100;

/// Nodes that are named.
const MOST: usize = 20;

/// See the module. All lists are by number, see [`Dominators`].
pub(super) struct Retained {
    dominators: Dominators,
    bytes: Vec<u64>,
    blocks: Vec<u32>,
    /// Among the nodes that a node dominates immediately, the one that keeps most; 0: none.
    heaviest: Vec<u32>,
}

/// A node that keeps much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Retainer {
    pub(super) node: NodeId,
    pub(super) kept: Kept,
    /// How many of the named nodes dominate it.
    pub(super) depth: usize,
}

/// A retainer and those that it dominates.
struct Tree {
    number: u32,
    inside: Vec<Tree>,
}

impl Retained {
    /// `size`: a node's own size.
    pub(super) fn new(dominators: Dominators, size: impl Fn(NodeId) -> Kept) -> Self {
        let len = dominators.nodes.len();
        let mut retained = Self {
            bytes: Vec::with_capacity(len),
            blocks: Vec::with_capacity(len),
            heaviest: vec![0; len],
            dominators,
        };
        for &node in &retained.dominators.nodes {
            let Kept { bytes, blocks } = size(node);
            retained.bytes.push(bytes);
            retained.blocks.push(blocks as u32);
        }
        // A dominator comes before whatever it dominates.
        for number in (1..len).rev() {
            let dominator = retained.dominators.dominators[number] as usize;
            retained.bytes[dominator] += retained.bytes[number];
            retained.blocks[dominator] += retained.blocks[number];
            let heaviest = &mut retained.heaviest[dominator];
            if *heaviest == 0 || retained.bytes[number] > retained.bytes[*heaviest as usize] {
                *heaviest = number as u32;
            }
        }
        retained
    }

    fn kept(&self, number: u32) -> Kept {
        Kept {
            bytes: self.bytes[number as usize],
            blocks: self.blocks[number as usize].into(),
        }
    }

    /// All that is reached.
    pub(super) fn total(&self) -> Kept {
        self.kept(0)
    }

    /// The bytes that nodes keep together, shared ones counted once. `None`: none of the nodes is reached.
    pub(super) fn together(&self, nodes: &HashSet<NodeId>) -> Option<Kept> {
        let len = self.dominators.nodes.len();
        let mut is_within = vec![false; len];
        let mut sum = None;
        for number in 0..len {
            let is_one = nodes.contains(&self.dominators.nodes[number]);
            let dominator = self.dominators.dominators[number] as usize;
            let is_counted = number > 0 && is_within[dominator];
            if is_one && !is_counted {
                let sum: &mut Kept = sum.get_or_insert_default();
                let kept = self.kept(number as u32);
                sum.bytes += kept.bytes;
                sum.blocks += kept.blocks;
            }
            is_within[number] = is_one || is_counted;
        }
        sum
    }

    /// The nodes that keep most, the largest first, each followed by those that it dominates.
    pub(super) fn retainers(&self) -> Vec<Retainer> {
        let least = (self.bytes[0] / SHARE).max(1);
        let large = (1..self.bytes.len() as u32).filter(|&it| self.bytes[it as usize] >= least);
        let mut large: Vec<u32> = large.collect();
        let dominator = |&number: &u32| self.dominators.dominators[number as usize];
        large.sort_by_key(|number| (dominator(number), Reverse(self.bytes[*number as usize])));
        let trees = Search {
            of: self,
            large,
            least,
        }
        .below(0, None, true);
        let mut retainers = Vec::new();
        self.flatten(trees, 0, &mut retainers);
        let mut sizes: Vec<u64> = retainers
            .iter()
            .map(|retainer| retainer.kept.bytes)
            .collect();
        sizes.sort_unstable_by_key(|&bytes| Reverse(bytes));
        if let Some(&least) = sizes.get(MOST) {
            retainers.retain(|retainer| retainer.kept.bytes > least);
        }
        retainers
    }

    fn flatten(&self, mut trees: Vec<Tree>, depth: usize, retainers: &mut Vec<Retainer>) {
        trees.sort_by_key(|tree| Reverse(self.bytes[tree.number as usize]));
        for tree in trees {
            retainers.push(Retainer {
                node: self.dominators.nodes[tree.number as usize],
                kept: self.kept(tree.number),
                depth,
            });
            self.flatten(tree.inside, depth + 1, retainers);
        }
    }

    /// The bytes that a node keeps beyond its heaviest part.
    fn drop_below(&self, number: u32) -> u64 {
        let bytes = self.bytes[number as usize];
        match self.heaviest[number as usize] {
            0 => bytes,
            heaviest => bytes - self.bytes[heaviest as usize],
        }
    }
}

/// Finds the place where bytes pile up.
struct Search<'a> {
    of: &'a Retained,
    /// Nodes that keep [`Search::least`], by their dominators, and the largest first.
    large: Vec<u32>,
    least: u64,
}

impl Search<'_> {
    /// The bytes that a node keeps in small parts, itself included.
    fn small_below(&self, number: u32) -> u64 {
        let most = self.of.drop_below(number);
        if most < self.least {
            return most;
        }
        let large = self.large_below(number);
        let large: u64 = large.iter().map(|&it| self.of.bytes[it as usize]).sum();
        self.of.bytes[number as usize] - large
    }

    /// The large ones of those that a node dominates immediately.
    fn large_below(&self, number: u32) -> &[u32] {
        let dominator = |it: &u32| self.of.dominators.dominators[*it as usize];
        let from = self.large.partition_point(|it| dominator(it) < number);
        let to = self.large.partition_point(|it| dominator(it) <= number);
        &self.large[from..to]
    }

    /// Retainers among those that a node dominates immediately, but for one. Each of them `is_named`, or those only
    /// under which much piles up.
    fn below(&self, number: u32, but: Option<u32>, is_named: bool) -> Vec<Tree> {
        let all = self.large_below(number).iter();
        let others = all.filter(|&&number| Some(number) != but);
        others
            .flat_map(|&number| self.from(number, is_named))
            .collect()
    }

    /// From a node down to where its memory piles up, and everything else that is large on the way.
    fn from(&self, number: u32, is_named: bool) -> Vec<Tree> {
        let of = self.of;
        let half = of.bytes[number as usize].div_ceil(2).max(self.least);
        let mut way = vec![number];
        let mut at = number;
        loop {
            at = of.heaviest[at as usize];
            if at == 0 || of.bytes[at as usize] < half {
                break;
            }
            way.push(at);
        }
        let piled = (0..way.len()).find(|&index| self.small_below(way[index]) >= self.least);
        let is_named = is_named || piled.is_some();
        let besides = |indices: Range<usize>, is_named| -> Vec<Tree> {
            // One that keeps little beside the next has nothing large beside it.
            let is_last = |index| index + 1 == way.len();
            let nodes =
                indices.filter(|&index| is_last(index) || of.drop_below(way[index]) >= self.least);
            let parts = nodes.flat_map(|index| {
                let next = way.get(index + 1).copied();
                self.below(way[index], next, is_named)
            });
            parts.collect()
        };
        let (index, inside) = match piled {
            Some(index) => (index, self.below(way[index], None, false)),
            // The parts of a linked list are all alike: the first is named.
            None => (0, besides(0..way.len(), false)),
        };
        let mut trees = besides(0..index, is_named);
        match is_named {
            true => trees.push(Tree {
                number: way[index],
                inside,
            }),
            false => trees.extend(inside),
        }
        trees
    }
}

#[cfg(test)]
mod tests {
    use super::{super::dominators::tests::references, *};

    /// A graph from lists of references and sizes; node 0 is the root.
    fn retained(lists: &[Vec<u32>], sizes: &[u64]) -> Retained {
        let dominators = Dominators::new(references(lists), lists.len(), 0);
        Retained::new(dominators, |node| Kept {
            bytes: sizes[node as usize],
            blocks: 1,
        })
    }

    fn retainers(of: &Retained) -> Vec<(u32, u64, usize)> {
        let retainers = of.retainers().into_iter();
        retainers
            .map(|retainer| (retainer.node, retainer.kept.bytes, retainer.depth))
            .collect()
    }

    #[test]
    fn nodes_keep_blocks_reachable_only_through_them() {
        let lists = [
            vec![1, 2],
            vec![3],
            vec![3, 4],
            vec![5],
            vec![],
            vec![],
            vec![1],
        ];
        let of = retained(&lists, &[0, 1, 10, 100, 1000, 10_000, 100_000]);
        assert_eq!(
            of.total(),
            Kept {
                bytes: 11_111,
                blocks: 6
            }
        );
        let kept = |nodes: &[u32]| of.together(&nodes.iter().copied().collect());
        assert_eq!(
            kept(&[2]),
            Some(Kept {
                bytes: 1010,
                blocks: 2
            })
        );
        // Memory below both is counted once.
        assert_eq!(
            kept(&[3, 5]),
            Some(Kept {
                bytes: 10_100,
                blocks: 2
            })
        );
        assert_eq!(
            kept(&[1, 4]),
            Some(Kept {
                bytes: 1001,
                blocks: 2
            })
        );
        assert_eq!(kept(&[0]), Some(of.total()));
        // Node 6 leads into the graph, but nothing leads to it.
        assert_eq!(kept(&[6]), None);
    }

    #[test]
    fn sums_of_parts_are_the_whole() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let mut list = || -> Vec<u32> {
                let len = random.usize(0..4);
                std::iter::repeat_with(|| random.u32(0..40))
                    .take(len)
                    .collect()
            };
            let lists: Vec<Vec<u32>> = (0..40).map(|_| list()).collect();
            let sizes: Vec<u64> = (0..40).map(|node| 1 << node).collect();
            let of = retained(&lists, &sizes);
            let children = 1..of.bytes.len();
            let children = children.filter(|&it| of.dominators.dominators[it] == 0);
            let sum: u64 = children.map(|number| of.bytes[number]).sum();
            assert_eq!(of.total().bytes, sizes[0] + sum);
            let own: u64 = of
                .dominators
                .nodes
                .iter()
                .map(|&node| sizes[node as usize])
                .sum();
            assert_eq!(of.total().bytes, own);
        }
    }

    #[test]
    fn the_container_is_named_not_the_path_to_it() {
        // 0 → 1 → 2 → 3, which has a thousand parts; 1 has another part.
        let mut lists = vec![vec![1], vec![2, 4], vec![3], (5..1005).collect(), vec![]];
        lists.resize(1005, vec![]);
        let mut sizes = vec![1; 1005];
        sizes[4] = 300;
        let of = retained(&lists, &sizes);
        assert_eq!(retainers(&of), [(3, 1001, 0), (4, 300, 0)]);
    }

    #[test]
    fn small_parts_beside_a_large_one_are_named_too() {
        // 1 has a hundred parts, and one that is larger than all of them.
        let mut lists = vec![vec![1], (2..103).collect(), (103..403).collect()];
        lists.resize(403, vec![]);
        let of = retained(&lists, &[1; 403]);
        assert_eq!(retainers(&of), [(1, 402, 0), (2, 301, 1)]);
    }

    #[test]
    fn large_parts_are_named_inside_of_the_whole() {
        // 1 has two containers and many parts of its own.
        let mut lists = vec![
            vec![1],
            (2..104).collect(),
            (104..404).collect(),
            (404..604).collect(),
        ];
        lists.resize(604, vec![]);
        let of = retained(&lists, &[1; 604]);
        assert_eq!(retainers(&of), [(1, 603, 0), (2, 301, 1), (3, 201, 1)]);
    }

    #[test]
    fn the_first_node_of_a_linked_list_is_named() {
        const LEN: u32 = 10_000;
        let mut lists: Vec<Vec<u32>> = (1..=LEN).map(|next| vec![next]).collect();
        lists.push(vec![]);
        let mut sizes = vec![24; lists.len()];
        assert_eq!(
            retainers(&retained(&lists, &sizes)),
            [(1, 24 * u64::from(LEN), 0)]
        );
        // Heavy nodes far down in it are named too.
        sizes[9000] = 100_000;
        let expected = [
            (1, 24 * u64::from(LEN - 1) + 100_000, 0),
            (9000, 124_000, 1),
        ];
        assert_eq!(retainers(&retained(&lists, &sizes)), expected);
    }

    #[test]
    fn the_largest_are_named_if_there_are_many() {
        let lists: Vec<Vec<u32>> = std::iter::once((1..=90).collect())
            .chain(std::iter::repeat_n(vec![], 90))
            .collect();
        let sizes: Vec<u64> = (0..91)
            .map(|node| if node == 0 { 0 } else { 1000 + node })
            .collect();
        let retainers = retainers(&retained(&lists, &sizes));
        let expected: Vec<_> = (71..=90)
            .rev()
            .map(|node| (node, 1000 + u64::from(node), 0))
            .collect();
        assert_eq!(retainers, expected);
    }
}
