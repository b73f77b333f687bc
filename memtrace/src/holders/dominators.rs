//! Which node of a graph every path to another one goes through: immediate dominators by the Semi-NCA algorithm
//! (Georgiadis, "Linear-Time Algorithms for Dominators and Related Problems", 2005). Lists are in the order of a
//! depth-first search, so that a dominator comes before whatever it dominates.

use super::references::{Place, References};

/// No node.
const NONE: u32 = u32::MAX;

/// The nodes reachable from a root, and the dominator of each. About 32 bytes a node during construction, 8 afterwards.
#[derive(Debug)]
pub(super) struct Dominators {
    /// By number, the root's first.
    pub(super) nodes: Vec<u32>,
    /// By number: the number of the immediate dominator; the root's is itself.
    pub(super) dominators: Vec<u32>,
}

impl Dominators {
    /// Those of all nodes that `root` leads to; there are less than `nodes`.
    pub(super) fn new(references: References, nodes: usize, root: u32) -> Self {
        let order = Preorder::new(&references, nodes, root);
        let holders = Holders::new(&references, &order);
        drop(references);
        let Preorder { nodes, parents, .. } = order;
        let dominators = dominators(parents, &holders);
        Self { nodes, dominators }
    }
}

/// Nodes as a depth-first search from the root meets them.
struct Preorder {
    /// By number.
    nodes: Vec<u32>,
    /// By number: the number of the node from which it was reached.
    parents: Vec<u32>,
    /// By node.
    numbers: Vec<u32>,
}

impl Preorder {
    fn new(references: &References, nodes: usize, root: u32) -> Self {
        let mut order = Self {
            nodes: vec![root],
            parents: vec![0],
            numbers: vec![NONE; nodes],
        };
        order.numbers[root as usize] = 0;
        // By number: the reference to look at next.
        let mut next = vec![Place::packed(references.first(root))];
        let mut at = 0;
        loop {
            let Some(place) = Place::unpacked(next[at as usize]) else {
                if at == 0 {
                    break;
                }
                at = order.parents[at as usize];
                continue;
            };
            let (node, after) = references.at(place);
            next[at as usize] = Place::packed(after);
            if order.numbers[node as usize] == NONE {
                let number = order.nodes.len() as u32;
                order.numbers[node as usize] = number;
                order.nodes.push(node);
                order.parents.push(at);
                next.push(Place::packed(references.first(node)));
                at = number;
            }
        }
        order
    }
}

/// References the other way round, by number, but for those to the nodes that the search met by them.
struct Holders {
    /// Where the holders of a node begin in `holders`, and at last where they end.
    starts: Vec<u32>,
    holders: Vec<u32>,
}

impl Holders {
    fn new(references: &References, order: &Preorder) -> Self {
        let len = order.nodes.len();
        // The parent of a node counts once as its holder, by itself.
        let each = |with: &mut dyn FnMut(u32, u32)| {
            for (number, &node) in (0_u32..).zip(&order.nodes) {
                for target in references.of(node) {
                    let target = order.numbers[target as usize];
                    if order.parents[target as usize] != number {
                        with(number, target);
                    }
                }
            }
        };
        let mut starts = vec![0_u32; len + 1];
        each(&mut |_, target| starts[target as usize] += 1);
        // From counts to the ends of lists, which are filled from their ends on.
        let mut end = 0;
        for start in &mut starts {
            end += *start;
            *start = end;
        }
        let mut holders = vec![0; end as usize];
        each(&mut |number, target| {
            let place = &mut starts[target as usize];
            *place -= 1;
            holders[*place as usize] = number;
        });
        Self { starts, holders }
    }

    fn of(&self, number: u32) -> &[u32] {
        let from = self.starts[number as usize] as usize;
        let to = self.starts[number as usize + 1] as usize;
        &self.holders[from..to]
    }
}

/// By number: the number of the immediate dominator.
fn dominators(parents: Vec<u32>, holders: &Holders) -> Vec<u32> {
    let len = parents.len() as u32;
    let mut forest = Forest {
        ancestors: parents.clone(),
        labels: (0..len).collect(),
        semi: (0..len).collect(),
        path: Vec::new(),
    };
    for number in (1..len).rev() {
        let mut least = parents[number as usize];
        for &holder in holders.of(number) {
            let label = forest.least(holder, number);
            least = least.min(forest.semi[label as usize]);
        }
        forest.semi[number as usize] = least;
    }
    let mut dominators = parents;
    for number in 1..len as usize {
        let mut dominator = dominators[number];
        while dominator > forest.semi[number] {
            dominator = dominators[dominator as usize];
        }
        dominators[number] = dominator;
    }
    dominators
}

/// Nodes that have been dealt with, as trees whose paths get shorter with use.
struct Forest {
    ancestors: Vec<u32>,
    labels: Vec<u32>,
    /// Semidominators.
    semi: Vec<u32>,
    /// Kept, so that nothing is allocated for each node.
    path: Vec<u32>,
}

impl Forest {
    /// The node with the least semidominator on the path up from `node`, the tree's root left out. Nodes up to
    /// `current` are in no tree yet, and are it themselves.
    fn least(&mut self, node: u32, current: u32) -> u32 {
        if node <= current {
            return node;
        }
        let mut at = node;
        while self.ancestors[at as usize] > current {
            self.path.push(at);
            at = self.ancestors[at as usize];
        }
        while let Some(below) = self.path.pop() {
            let above = self.ancestors[below as usize] as usize;
            let label = self.labels[above];
            if self.semi[label as usize] < self.semi[self.labels[below as usize] as usize] {
                self.labels[below as usize] = label;
            }
            self.ancestors[below as usize] = self.ancestors[above];
        }
        self.labels[node as usize]
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// References of nodes by number.
    pub(in super::super) fn references(lists: &[Vec<u32>]) -> References {
        let mut references = References::default();
        for (node, list) in (0..).zip(lists) {
            references.begin(node);
            list.iter().for_each(|&target| references.add(target));
        }
        references.end();
        references
    }

    /// By node; `None` for the root, node 0, and for unreachable nodes.
    fn by_node(references: References, nodes: usize) -> Vec<Option<u32>> {
        let found = Dominators::new(references, nodes, 0);
        let mut dominators = vec![None; nodes];
        for (&node, &dominator) in found.nodes.iter().zip(&found.dominators).skip(1) {
            dominators[node as usize] = Some(found.nodes[dominator as usize]);
        }
        dominators
    }

    #[test]
    fn a_shared_node_is_dominated_by_the_common_holder() {
        // A root with two branches that meet, and a chain below.
        let lists = [vec![1, 2], vec![3], vec![3], vec![4], vec![], vec![4]];
        let expected = [None, Some(0), Some(0), Some(0), Some(3), None];
        assert_eq!(by_node(references(&lists), 6), expected);
    }

    #[test]
    fn a_long_list_linked_both_ways_is_dominated_by_its_first_node() {
        let len = 1_000_000_u32;
        let mut references = References::default();
        for node in 0..len {
            references.begin(node);
            let links = [node.wrapping_sub(1), node + 1].into_iter();
            let links = links.filter(|&other| other < len);
            links.for_each(|other| references.add(other));
        }
        references.end();
        let dominators = by_node(references, len as usize);
        assert_eq!(dominators[999_999], Some(999_998));
        assert_eq!(dominators[1], Some(0));
    }

    /// Nodes that are reached if paths may not go through `without`.
    fn reached(lists: &[Vec<u32>], without: Option<u32>) -> Vec<bool> {
        let mut reached = vec![false; lists.len()];
        let mut waiting = vec![0];
        while let Some(node) = waiting.pop() {
            if Some(node) == without || reached[node as usize] {
                continue;
            }
            reached[node as usize] = true;
            waiting.extend(&lists[node as usize]);
        }
        reached
    }

    #[test]
    fn a_node_dominates_nodes_reachable_only_through_it() {
        const NODES: u32 = 30;
        let mut random = fastrand::Rng::with_seed(19);
        for _ in 0..2000 {
            let mut list = || -> Vec<u32> {
                let len = random.usize(0..4);
                std::iter::repeat_with(|| random.u32(0..NODES))
                    .take(len)
                    .collect()
            };
            let lists: Vec<Vec<u32>> = (0..NODES).map(|_| list()).collect();
            let dominators = by_node(references(&lists), lists.len());
            let all = reached(&lists, None);
            let is_below = |mut node: u32, above: u32| {
                while let Some(dominator) = dominators[node as usize] {
                    if dominator == above {
                        return true;
                    }
                    node = dominator;
                }
                false
            };
            for above in 1..NODES {
                let without = reached(&lists, Some(above));
                for node in (0..NODES).filter(|&node| node != above && all[node as usize]) {
                    assert_eq!(
                        is_below(node, above),
                        all[above as usize] && !without[node as usize],
                        "{above} and {node} of {lists:?}"
                    );
                }
            }
        }
    }
}
