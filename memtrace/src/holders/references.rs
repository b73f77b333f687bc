//! All references that a search has met, and the bytes of Python's objects: the input for dominators. About 4 bytes
//! a node and 4 a reference.

/// Set in the last reference of a node.
const LAST: u32 = 1 << 31;

/// In place of a number: no references.
const NONE: u32 = u32::MAX;

/// See the module. Nodes are numbers below 2³¹.
#[derive(Debug, Default)]
pub(super) struct References {
    /// By node: where its references begin in `targets`.
    starts: Vec<u32>,
    targets: Vec<u32>,
    /// The node whose references are being added.
    node: u32,
    is_full: bool,
}

impl References {
    /// The references of another node follow.
    pub(super) fn begin(&mut self, node: u32) {
        self.end();
        self.node = node;
        if self.starts.len() <= node as usize {
            self.starts.resize(node as usize + 1, NONE);
        }
    }

    /// Adds a reference. Several in a row to the same node are kept as one.
    pub(super) fn add(&mut self, target: u32) {
        let start = &mut self.starts[self.node as usize];
        if *start != NONE && self.targets.last() == Some(&target) {
            return;
        }
        let Some(place) = u32::try_from(self.targets.len())
            .ok()
            .filter(|&place| place != NONE)
        else {
            self.is_full = true;
            return;
        };
        if *start == NONE {
            *start = place;
        }
        self.targets.push(target);
    }

    /// Marks the last reference of the node.
    pub(super) fn end(&mut self) {
        let start = self.starts.get(self.node as usize);
        if start.is_some_and(|&start| start != NONE)
            && let Some(last) = self.targets.last_mut()
        {
            *last |= LAST;
        }
    }

    /// Whether there were too many to keep all of them.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// The first reference of a node, for [`References::at`].
    pub(super) fn first(&self, node: u32) -> Option<Place> {
        let start = self.starts.get(node as usize).copied();
        start.filter(|&start| start != NONE).map(Place)
    }

    /// A reference, and the place of the node's next one.
    pub(super) fn at(&self, Place(place): Place) -> (u32, Option<Place>) {
        let target = self.targets[place as usize];
        let is_last = target & LAST != 0;
        (target & !LAST, (!is_last).then(|| Place(place + 1)))
    }

    /// The references of a node.
    pub(super) fn of(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let mut next = self.first(node);
        std::iter::from_fn(move || {
            let (target, after) = self.at(next?);
            next = after;
            Some(target)
        })
    }
}

/// All that a search meets.
#[derive(Debug, Default)]
pub(super) struct Met {
    references: References,
    /// Nodes that roots refer to.
    roots: Vec<u32>,
    /// Objects that CPython's collector tracks and no root reaches.
    garbage: Vec<u32>,
    /// By number of the object: its bytes that are in no block.
    sizes: Vec<u32>,
}

impl Met {
    /// The references of a node follow.
    pub(super) fn begin(&mut self, node: u32) {
        self.references.begin(node);
    }

    /// Adds a reference of the node.
    pub(super) fn add(&mut self, target: u32) {
        self.references.add(target);
    }

    /// Adds a reference of a root, or an object that only garbage holds.
    pub(super) fn add_root(&mut self, target: u32, is_garbage: bool) {
        match is_garbage {
            true => self.garbage.push(target),
            false => self.roots.push(target),
        }
    }

    /// Adds to the bytes of an object.
    pub(super) fn add_size(&mut self, object: usize, bytes: u64) {
        if self.sizes.len() <= object {
            self.sizes.resize(object + 1, 0);
        }
        let size = &mut self.sizes[object];
        *size = size.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// All references, and the bytes of objects by their numbers. `root` refers to everything that roots
    /// refer to, and to `garbage`, which refers to the rest; both are numbers above all others.
    pub(super) fn finish(self, root: u32, garbage: u32) -> (References, Vec<u32>) {
        let mut references = self.references;
        for (node, mut targets) in [(root, self.roots), (garbage, self.garbage)] {
            targets.sort_unstable();
            references.begin(node);
            targets.iter().for_each(|&target| references.add(target));
            if node == root {
                references.add(garbage);
            }
        }
        references.end();
        (references, self.sizes)
    }
}

/// Where a reference is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(u32);

impl Place {
    /// As a number, for lists that have millions; [`Place::unpacked`] undoes it.
    pub(super) fn packed(place: Option<Self>) -> u32 {
        place.map_or(NONE, |Place(place)| place)
    }

    pub(super) fn unpacked(place: u32) -> Option<Self> {
        (place != NONE).then_some(Place(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_those_that_were_added() {
        let mut references = References::default();
        for (node, targets) in [(3, &[1, 1, 2, 1][..]), (0, &[3]), (7, &[]), (1, &[3, 0])] {
            references.begin(node);
            targets.iter().for_each(|&target| references.add(target));
        }
        references.end();
        let of = |node| references.of(node).collect::<Vec<u32>>();
        assert_eq!(of(3), [1, 2, 1]);
        assert_eq!((of(0), of(1)), (vec![3], vec![3, 0]));
        for none in [2, 7, 8, 1000] {
            assert_eq!(of(none), Vec::<u32>::new());
        }
    }
}
