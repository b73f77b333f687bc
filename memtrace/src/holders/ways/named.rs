//! A step of a path with its name.

use crate::{holders::graph::NodeId, ledger::SiteKey, recording::Step};

/// Words of a variable that are an array whatever their distances: a structure rarely has as many that lead to the same.
const MANY: usize = 8;

/// Whether words of one variable are elements of an array, and not members of a structure, such as the two ends of a list.
pub(super) fn are_elements(mut words: Vec<u64>) -> bool {
    words.sort_unstable();
    words.dedup();
    let mut distances = words.windows(2).map(|pair| pair[1] - pair[0]);
    let first = distances.next();
    words.len() >= MANY || words.len() >= 3 && distances.all(|distance| Some(distance) == first)
}

/// A step, before similar ones are merged.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) step: Step,
    /// As the step's name, with `[i]` for whatever index or key.
    pub(super) general: String,
    /// `None` for the root.
    pub(super) node: Option<NodeId>,
    pub(super) is_expression: bool,
    /// Of a root that is a word of memory: its address.
    pub(super) word: Option<u64>,
}

impl Named {
    /// Makes the function of an `lru_cache` one step with the dict that is the cache.
    pub(super) fn be_cache(&mut self, dict: Self) {
        self.node = dict.node;
        self.step.type_name = Some("lru_cache".to_owned());
        self.step.length = dict.step.length;
        self.step.growth_per_s = dict.step.growth_per_s;
        self.step.buffer = dict.step.buffer;
    }

    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.step.kind == other.step.kind
            && self.general == other.general
            && self.step.type_name == other.step.type_name
    }
}

/// The site of the memory of containers that are shown as one: the one that all have whose site is known.
pub(super) fn buffer_of_all<'a>(alike: impl Iterator<Item = &'a Named>) -> Option<SiteKey> {
    let mut sites = alike.filter_map(|named| named.step.buffer);
    let first = sites.next()?;
    sites.all(|site| site == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{Layer, StackId},
        ledger::ProcessId,
        recording::StepKind,
    };

    fn with_buffer(stack: Option<u32>) -> Named {
        let buffer = stack.map(|stack| SiteKey {
            process: ProcessId(1),
            layer: Layer::Heap,
            stack: StackId(stack),
            by_allocator: false,
            device: None,
        });
        Named {
            step: Step {
                buffer,
                ..Step::new(StepKind::Object, "[key]".to_owned())
            },
            general: "[key]".to_owned(),
            node: None,
            is_expression: true,
            word: None,
        }
    }

    #[test]
    fn containers_filled_by_different_lines_have_no_line_in_common() {
        let of_all = |stacks: &[Option<u32>]| {
            let named: Vec<Named> = stacks.iter().map(|stack| with_buffer(*stack)).collect();
            buffer_of_all(named.iter()).map(|site| site.stack)
        };
        // One of them has moved.
        assert_eq!(of_all(&[None, Some(7), Some(7)]), Some(StackId(7)));
        assert_eq!(of_all(&[Some(7), Some(8), None]), None);
        assert_eq!(of_all(&[None]), None);
    }

    #[test]
    fn the_ends_of_a_list_are_no_elements_of_an_array() {
        assert!(!are_elements(vec![0x80, 0x78, 0x80]));
        assert!(!are_elements(vec![0x10, 0x78, 0x80]));
        assert!(!are_elements(vec![]));
        // A ring, and buckets of a hash table.
        assert!(are_elements(vec![0x28, 0x10, 0x40, 0x10]));
        assert!(are_elements(
            (0..10).map(|key| 8 * (key * key % 64)).collect()
        ));
    }
}
