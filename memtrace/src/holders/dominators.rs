//! Which node of a graph every path to another one goes through: immediate dominators by the
//! Semi-NCA algorithm (Georgiadis, "Linear-Time Algorithms for Dominators and Related Problems",
//! 2005), and the bytes that each node alone keeps.

/// References of all nodes, in one list.
#[derive(Debug, Default)]
pub(super) struct Edges {
    /// By node: where its references begin in `targets`, and at last where they end.
    starts: Vec<u32>,
    targets: Vec<u32>,
}

/// Nobody.
const NONE: u32 = u32::MAX;

impl Edges {
    /// Adds the references of the next node.
    pub(super) fn add(&mut self, targets: impl Iterator<Item = u32>) {
        if self.starts.is_empty() {
            self.starts.push(0);
        }
        self.targets.extend(targets);
        self.starts.push(self.targets.len() as u32);
    }

    fn nodes(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    fn of(&self, node: u32) -> &[u32] {
        let from = self.starts[node as usize] as usize;
        let to = self.starts[node as usize + 1] as usize;
        &self.targets[from..to]
    }

    /// The same references the other way round.
    fn reversed(&self) -> Self {
        let mut starts = vec![0; self.nodes() + 1];
        for &target in &self.targets {
            starts[target as usize + 1] += 1;
        }
        for node in 1..starts.len() {
            starts[node] += starts[node - 1];
        }
        let mut next = starts.clone();
        let mut targets = vec![0; self.targets.len()];
        for node in 0..self.nodes() as u32 {
            for &target in self.of(node) {
                let place = &mut next[target as usize];
                targets[*place as usize] = node;
                *place += 1;
            }
        }
        Self { starts, targets }
    }
}

/// What each node keeps.
#[derive(Debug)]
pub(super) struct Retained {
    /// By node: the node that dominates it immediately; of the root and what is not reached none.
    pub(super) dominators: Vec<Option<u32>>,
    /// By node: its own bytes and those of all that it dominates.
    pub(super) bytes: Vec<u64>,
}

/// What nodes of these own `sizes`, in bytes, keep; node 0 is the root.
pub(super) fn retained(edges: &Edges, sizes: &[u64]) -> Retained {
    let order = Preorder::new(edges);
    let idom = order.dominators(&edges.reversed());
    let mut bytes = sizes.to_vec();
    let mut dominators = vec![None; sizes.len()];
    // A dominator comes before whatever it dominates.
    for number in (1..order.nodes.len()).rev() {
        let node = order.nodes[number] as usize;
        let dominator = order.nodes[idom[number] as usize];
        dominators[node] = Some(dominator);
        bytes[dominator as usize] += bytes[node];
    }
    Retained { dominators, bytes }
}

/// Nodes as a depth-first search from the root meets them.
struct Preorder {
    /// By number.
    nodes: Vec<u32>,
    parents: Vec<u32>,
    /// By node.
    numbers: Vec<u32>,
}

impl Preorder {
    fn new(edges: &Edges) -> Self {
        let mut numbers = vec![NONE; edges.nodes()];
        let (mut nodes, mut parents) = (Vec::new(), Vec::new());
        let mut waiting = match edges.nodes() {
            0 => Vec::new(),
            _ => vec![(0, 0)],
        };
        while let Some((node, parent)) = waiting.pop() {
            if numbers[node as usize] != NONE {
                continue;
            }
            let number = nodes.len() as u32;
            numbers[node as usize] = number;
            nodes.push(node);
            parents.push(parent);
            let new = edges.of(node).iter().rev();
            let new = new.filter(|&&target| numbers[target as usize] == NONE);
            waiting.extend(new.map(|&target| (target, number)));
        }
        Self {
            nodes,
            parents,
            numbers,
        }
    }

    /// By number: the number of the immediate dominator.
    fn dominators(&self, reversed: &Edges) -> Vec<u32> {
        let len = self.nodes.len();
        let mut forest = Forest {
            ancestors: vec![NONE; len],
            labels: (0..len as u32).collect(),
            path: Vec::new(),
        };
        let mut semi: Vec<u32> = (0..len as u32).collect();
        for number in (1..len as u32).rev() {
            let mut least = self.parents[number as usize];
            for &holder in reversed.of(self.nodes[number as usize]) {
                let holder = self.numbers[holder as usize];
                if holder != NONE {
                    let label = forest.least(holder, number, &semi);
                    least = least.min(semi[label as usize]);
                }
            }
            semi[number as usize] = least;
            forest.ancestors[number as usize] = self.parents[number as usize];
        }
        let mut dominators = self.parents.clone();
        for number in 1..len {
            let mut dominator = dominators[number];
            while dominator > semi[number] {
                dominator = dominators[dominator as usize];
            }
            dominators[number] = dominator;
        }
        dominators
    }
}

/// Nodes that have been dealt with, as trees whose paths get shorter with use.
struct Forest {
    ancestors: Vec<u32>,
    labels: Vec<u32>,
    /// Kept, so that nothing is allocated for each node.
    path: Vec<u32>,
}

impl Forest {
    /// The node with the least semidominator on the path up from `node`, the tree's root left out;
    /// `node` itself if it is before `current` and thus in no tree.
    fn least(&mut self, node: u32, current: u32, semi: &[u32]) -> u32 {
        if node < current || self.ancestors[node as usize] == NONE {
            return node;
        }
        let mut at = node;
        while self.ancestors[self.ancestors[at as usize] as usize] != NONE {
            self.path.push(at);
            at = self.ancestors[at as usize];
        }
        while let Some(below) = self.path.pop() {
            let above = self.ancestors[below as usize] as usize;
            let label = self.labels[above];
            if semi[label as usize] < semi[self.labels[below as usize] as usize] {
                self.labels[below as usize] = label;
            }
            self.ancestors[below as usize] = self.ancestors[above];
        }
        self.labels[node as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::{Edges, retained};

    fn edges(lists: &[Vec<u32>]) -> Edges {
        let mut edges = Edges::default();
        for list in lists {
            edges.add(list.iter().copied());
        }
        edges
    }

    #[test]
    fn what_two_hold_is_kept_by_what_holds_both() {
        // A root with two branches that meet, and a chain below.
        let edges = edges(&[vec![1, 2], vec![3], vec![3], vec![4], vec![], vec![4]]);
        let kept = retained(&edges, &[1, 10, 100, 1000, 10_000, 100_000]);
        let expected = [None, Some(0), Some(0), Some(0), Some(3), None];
        assert_eq!(kept.dominators, expected);
        assert_eq!(kept.bytes, [11_111, 10, 100, 11_000, 10_000, 100_000]);
    }

    #[test]
    fn a_long_list_linked_both_ways_is_kept_by_its_first_node() {
        let len = 1_000_000_u32;
        let links = |node: u32| [node.wrapping_sub(1), node + 1].into_iter();
        let mut edges = Edges::default();
        for node in 0..len {
            edges.add(links(node).filter(|&other| other < len));
        }
        let kept = retained(&edges, &vec![1; len as usize]);
        assert_eq!(kept.bytes[1], u64::from(len) - 1);
        assert_eq!(kept.dominators[999_999], Some(999_998));
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
    fn a_node_keeps_what_nothing_else_leads_to() {
        let mut random = fastrand::Rng::with_seed(19);
        for _ in 0..2000 {
            let mut list = || -> Vec<u32> {
                let len = random.usize(0..4);
                std::iter::repeat_with(|| random.u32(0..30))
                    .take(len)
                    .collect()
            };
            let lists: Vec<Vec<u32>> = (0..30).map(|_| list()).collect();
            let kept = retained(&edges(&lists), &[1; 30]);
            let all = reached(&lists, None);
            for node in 1..30 {
                let without = reached(&lists, Some(node));
                let only = (0..30)
                    .filter(|&other| all[other] && !without[other])
                    .count() as u64;
                let expected = if all[node as usize] { only } else { 1 };
                assert_eq!(
                    kept.bytes[node as usize], expected,
                    "node {node} of {lists:?}"
                );
            }
        }
    }
}
