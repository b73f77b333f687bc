//! The step of a path that grows with the site: a container, or the first node of a chain.

use super::named::Named;
use crate::recording::{LEAST_CHAIN, StepKind};
use std::ops::RangeInclusive;

/// The step of `path` where the paths of its shape diverge is `common`, if there are several.
pub(super) fn of(path: &[Named], common: usize) -> Option<usize> {
    let grows = |named: &Named| named.step.growth_per_s.is_some_and(|growth| growth > 0.0);
    let has_length = |named: &Named| named.step.length.is_some();
    let growing = (common..path.len()).find(|&index| grows(&path[index]));
    if growing.is_some() {
        return growing;
    }
    let last = path.len() - 1;
    let chain = chain(path, common);
    let with_length = (0..=common).rev().find(|&index| has_length(&path[index]));
    // One that all paths pass by the same element got no other: it is not what grows.
    let with_length = with_length.filter(|&index| index == common || common == last);
    // A block has no known length: it is a container if the paths of several blocks diverge at it.
    let parts = common < last && path[common].step.kind == StepKind::Block;
    // Nodes of a linked list are alike: the first one stands for it.
    let is_first = |&index: &usize| index == 0 || !path[index].is_like(&path[index - 1]);
    chain
        .map(|chain| *chain.start())
        .max(with_length)
        .or_else(|| parts.then(|| (0..=common).rev().find(is_first))?)
}

/// The nodes of a linked list, the last one of the path, if the paths diverge in it.
pub(super) fn chain(path: &[Named], common: usize) -> Option<RangeInclusive<usize>> {
    let last = path.len() - 1;
    let mut end = last;
    while end > 0 {
        let mut start = end;
        while start > 1 && follows(&path[end], &path[start - 1]) {
            start -= 1;
        }
        let is_after_node = |index: usize| index > 1 && is_node(&path[index], &path[index - 1]);
        // The first node has another holder, and so mostly another name.
        let mut first = start - usize::from(is_after_node(start));
        let nodes: u64 = path[first..=end].iter().map(|it| it.step.repeated).sum();
        if nodes >= LEAST_CHAIN {
            // A ring begins with a node of its own, and is entered on both sides. Blocks without a type may be anything.
            while is_after_node(first) && path[first].step.type_name.is_some() {
                first -= 1;
            }
            let has_parting = common == last || (first..=end).contains(&common);
            return has_parting.then_some(first..=end);
        }
        end = start - 1;
    }
    None
}

/// Whether two steps are nodes of one list whose holders refer to them in the same way. Those of a tree do so in two.
fn follows(one: &Named, other: &Named) -> bool {
    one.is_like(other) && one.step.name == other.step.name
}

/// Whether two steps may be nodes of one list.
fn is_node(one: &Named, other: &Named) -> bool {
    one.step.kind == other.step.kind && one.step.type_name == other.step.type_name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::fixture::step;

    fn named(kind: StepKind, name: &str, of_type: &str) -> Named {
        Named {
            step: step(kind, name, of_type),
            general: name.to_owned(),
            node: None,
            is_expression: true,
            word: None,
        }
    }

    /// `s.head.link.link…payload`, the list with this many nodes.
    fn list(nodes: usize) -> Vec<Named> {
        let mut path = vec![
            named(StepKind::Module, "__main__", ""),
            named(StepKind::Object, ".s", "Scheduler"),
            named(StepKind::Object, ".head", "Node"),
        ];
        let link = named(StepKind::Object, ".link", "Node");
        path.extend(vec![link; nodes - 1]);
        path.push(named(StepKind::Object, ".payload", "bytearray"));
        path
    }

    #[test]
    fn objects_that_refer_to_one_another_are_a_chain() {
        let path = list(10);
        assert_eq!(chain(&path, 4), Some(2..=11));
        assert_eq!(of(&path, 4), Some(2));
        // One path, and one whose nodes in the middle are left out.
        assert_eq!(of(&path, path.len() - 1), Some(2));
        let mut cut = list(3);
        cut[3].step.repeated = 300;
        assert_eq!(chain(&cut, 2), Some(2..=4));
        // A ring.
        let mut ring = list(10);
        ring.insert(2, named(StepKind::Object, ".root", "Node"));
        assert_eq!(chain(&ring, 5), Some(2..=12));
        let mut queue = vec![named(StepKind::Global, "app: server", "")];
        queue.extend(["", "+0x28", "+0x8"].map(|name| named(StepKind::Block, name, "")));
        queue.extend(vec![named(StepKind::Block, "+0x10", ""); 10]);
        assert_eq!(chain(&queue, 8), Some(3..=13));
        // Too few, and paths that diverge before or after.
        assert_eq!(chain(&list(7), 4), None);
        assert_eq!(chain(&path, 1), None);
        let mut longer = path;
        longer.push(named(StepKind::Block, "", ""));
        assert_eq!(chain(&longer, 12), None);
    }

    #[test]
    fn trees_and_nested_lists_are_no_chains() {
        for names in [["+0x8", "+0x10"], ["[0]", "[7]"]] {
            let mut path = vec![named(StepKind::Global, "app: root", "")];
            for name in names.repeat(10) {
                let mut node = named(StepKind::Block, name, "");
                node.general = "any".to_owned();
                path.push(node);
            }
            assert_eq!(chain(&path, 3), None);
        }
    }

    #[test]
    fn a_container_of_which_all_blocks_are_in_one_element_is_not_what_grows() {
        let mut path = list(3);
        path[1].step.length = Some(16);
        assert_eq!(of(&path, 1), Some(1));
        assert_eq!(of(&path, 2), None);
        // Of a single block nothing else is known.
        assert_eq!(of(&path, path.len() - 1), Some(1));
        path[3].step.growth_per_s = Some(2.0);
        assert_eq!(of(&path, 1), Some(3));
        assert_eq!(of(&path, 2), Some(3));
    }
}
