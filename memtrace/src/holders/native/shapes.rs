//! Nodes of C++ containers, recognised by how they refer to each other, because they have no virtual table.

use super::super::memory::Memory;
use super::Block;

/// The container that a block is a node of. `None`: not one of these, or it changed meanwhile.
pub(in crate::holders) fn node_of(
    memory: &(impl Memory + ?Sized),
    block: Block,
) -> Option<&'static str> {
    if is_tree_node(memory, block) == Some(true) {
        return Some("node of a std::map or std::set");
    }
    (is_list_node(memory, block) == Some(true)).then_some("node of a linked list")
}

/// `std::_Rb_tree_node_base` of libstdc++: { colour, parent, left, right }.
fn is_tree_node(memory: &(impl Memory + ?Sized), block: Block) -> Option<bool> {
    if block.size <= 32 || memory.half(block.start)? > 1 {
        return Some(false);
    }
    let [parent, left, right] = words(memory, block.start + 8)?;
    // The root's parent is the container itself, whose own parent is the root.
    let is_child =
        parent != 0 && words::<3>(memory, parent.checked_add(8)?)?.contains(&block.start);
    let mut is_parent = true;
    for child in [left, right].into_iter().filter(|&child| child != 0) {
        is_parent &= memory.word(child.checked_add(8)?)? == block.start;
    }
    Some(is_child && is_parent)
}

/// `std::__detail::_List_node_base`, and lists of C that are made alike: { next, previous }.
fn is_list_node(memory: &(impl Memory + ?Sized), block: Block) -> Option<bool> {
    if block.size <= 16 {
        return Some(false);
    }
    let [next, previous] = words(memory, block.start)?;
    let is_linked = next != block.start
        && memory.word(next.checked_add(8)?)? == block.start
        && memory.word(previous)? == block.start;
    Some(is_linked)
}

fn words<const N: usize>(memory: &(impl Memory + ?Sized), address: u64) -> Option<[u64; N]> {
    let mut bytes = [[0; 8]; N];
    memory
        .read(address, bytes.as_flattened_mut())
        .then(|| bytes.map(u64::from_le_bytes))
}

#[cfg(test)]
mod tests {
    use super::{super::tests::fixture::Made, *};

    /// A block of 48 bytes at each multiple of 0x100.
    fn memory(links: &[(u64, [u64; 4])]) -> Made {
        let mut memory = Made::default();
        memory.map(0x1000, 0x1000);
        for &(start, words) in links {
            for (at, word) in (start..).step_by(8).zip(words) {
                memory.put(at, word);
            }
        }
        memory
    }

    fn node(memory: &Made, start: u64) -> Option<&'static str> {
        node_of(memory, Block { start, size: 48 })
    }

    #[test]
    fn nodes_of_a_tree_point_at_each_other() {
        let header = (0x1100, [0, 0x1200, 0x1300, 0x1200]);
        let root = (0x1200, [1, 0x1100, 0x1300, 0]);
        let leaf = (0x1300, [0, 0x1200, 0, 0]);
        let whole = memory(&[header, root, leaf]);
        assert_eq!(node(&whole, 0x1200), Some("node of a std::map or std::set"));
        assert_eq!(node(&whole, 0x1300), Some("node of a std::map or std::set"));
        // A child with another parent, and an invalid colour.
        let torn = memory(&[header, root, (0x1300, [0, 0x1100, 0, 0])]);
        assert_eq!(node(&torn, 0x1200), None);
        assert_eq!(
            node(&memory(&[header, (0x1200, [2, 0x1100, 0, 0])]), 0x1200),
            None
        );
        assert_eq!(node(&memory(&[]), 0x1200), None);
    }

    #[test]
    fn nodes_of_a_list_point_at_each_other() {
        let list = [
            (0x1100, [0x1200, 0x1300, 0, 0]),
            (0x1200, [0x1300, 0x1100, 7, 7]),
            (0x1300, [0x1100, 0x1200, 7, 7]),
        ];
        assert_eq!(node(&memory(&list), 0x1200), Some("node of a linked list"));
        assert_eq!(node(&memory(&list[..2]), 0x1200), None);
        // An empty list is a container, no node.
        assert_eq!(
            node(&memory(&[(0x1100, [0x1100, 0x1100, 0, 0])]), 0x1100),
            None
        );
    }
}
