//! A reference from one object or block to another: how a programmer would write it, the cost of
//! believing it, and the words of memory that prove it.

/// A word of memory that proves a reference as long as it is as the search found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Check {
    /// Absolute.
    pub(super) address: u64,
    /// Bits of the word that count.
    pub(super) mask: u64,
    pub(super) expected: Expected,
}

/// The expected value of a masked word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Exactly(u64),
    /// The length of a table that has the reference.
    AtLeast(u64),
}

impl Check {
    /// The word at `address` is `value`.
    pub(super) fn equal(address: u64, value: u64) -> Self {
        Self {
            address,
            mask: !0,
            expected: Expected::Exactly(value),
        }
    }

    /// The length at `address` is at least `length`.
    pub(super) fn at_least(address: u64, length: u64) -> Self {
        Self {
            address,
            mask: !0,
            expected: Expected::AtLeast(length),
        }
    }

    /// Whether `word`, read again, still proves it.
    pub(super) fn holds(&self, word: u64) -> bool {
        match self.expected {
            Expected::Exactly(value) => word & self.mask == value,
            Expected::AtLeast(value) => word & self.mask >= value,
        }
    }
}

/// Where a name is in the process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// A `str` object.
    Object(u64),
    /// A string in C.
    Text(u64),
    Known(&'static str),
}

/// How the holder refers to its target. Text is read only when a path is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Label {
    /// `.name`
    Attribute(Name),
    /// `[0]`
    Item(u64),
    /// `['key']`: the key object.
    Value(u64),
    /// The key of a dict.
    Key,
    /// In a set.
    Element,
    /// `.__closure__[0].cell_contents`, and the variable's name.
    Closure(u64, Name),
    /// A local variable of a frame, a generator or a coroutine.
    Local(Name),
    /// A value without a name that a frame is working with: an iterator of a loop, an argument of a call.
    Operand,
    /// The same, or what is left over of one.
    PerhapsOperand,
    /// The dict of the holder's attributes: its values are attributes of the holder.
    Namespace,
    /// A field of a C type that Python has no name for.
    Internal(&'static str),
    /// Memory that belongs to the holder: the array of a list, the table of a dict, the data of a bytearray.
    Buffer,
    /// The word at this offset, bytes, in a block or in an object of unknown structure.
    Word(u64),
    /// A word of a structure in C that hangs in the word of an object at this offset. It may be left over from what the
    /// memory was before.
    Structure(u64),
}

impl Label {
    /// Whether only its value says that it is a reference.
    pub(super) fn is_word(&self) -> bool {
        matches!(self, Self::Word(_) | Self::Structure(_))
    }
}

/// The cost of believing a reference. The cheapest path is shown, so references that a programmer would
/// name are cheap: a word that happens to look like a pointer is never a shortcut past them.
pub(super) mod cost {
    /// One that the holder's type describes.
    pub(in super::super) const TYPED: u32 = 1;
    /// One that exists but explains little: `__class__`, `__mro__`.
    pub(in super::super) const INCIDENTAL: u32 = 50;
    /// A word of a C++ object whose type is known.
    pub(in super::super) const KNOWN_BLOCK: u32 = 5;
    /// A word of any other live block.
    pub(in super::super) const BLOCK: u32 = 20;
    /// What a word costs more that leads into a block, not to its start: most pointers do not, but what is left over
    /// in memory may be any number.
    pub(in super::super) const INTERIOR: u32 = 100;
    /// The same of a word that leads behind a header: SQLite puts the size of each block before it, `new[]` the number of
    /// elements, and a second base class begins there.
    pub(in super::super) const BEHIND_HEADER: u32 = 20;
    /// What a reference costs more from a holder that had changed when an earlier search read it again. Less than a
    /// word on a stack: another path with names is better, and words are not.
    pub(in super::super) const DOUBTED: u32 = 90;
    /// A word on a stack or in a register.
    pub(in super::super) const STACK: u32 = 100;
    /// A word of a Python object that its type does not describe.
    pub(in super::super) const UNTYPED: u32 = 1000;
    /// The address of a device's memory anywhere but in the owner of a tensor's data.
    pub(in super::super) const OF_DEVICE: u32 = 100_000;
    /// A word of memory that may not be in use.
    pub(in super::super) const UNKNOWN: u32 = 2000;
    /// What a word costs more that may be left over: it replaces no other path from a root.
    pub(in super::super) const LEFT_OVER: u32 = 1 << 29;
    /// An unreachable node: more than any path from a root, which it must not replace.
    pub(in super::super) const UNREACHED: u32 = 1 << 30;
    /// From one reason for being unreached to the next: more than any path, too.
    pub(in super::super) const UNREACHED_STEP: u32 = 1 << 27;

    /// The cost of a path of this cost and one more reference. A list of millions stays reachable.
    pub(in super::super) fn with(path: u32, reference: u32) -> u32 {
        match path.saturating_add(reference) {
            sum if path < UNREACHED && reference < UNREACHED => sum.min(UNREACHED - 1),
            sum => sum,
        }
    }
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reference<'a> {
    /// The object, or the address inside a block.
    pub(super) target: u64,
    pub(super) label: Label,
    /// One of [`cost`].
    pub(super) cost: u32,
    pub(super) checks: &'a [Check],
}

impl Reference<'_> {
    /// Whether it is to memory that a container enlarges as elements are added.
    pub(super) fn is_to_elements(&self) -> bool {
        self.label == Label::Buffer && self.cost < cost::INCIDENTAL
    }
}

/// A reference without what proves it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    pub(super) target: u64,
    pub(super) label: Label,
    pub(super) cost: u32,
}

impl Word {
    pub(super) fn of(reference: &Reference<'_>) -> Self {
        let Reference {
            target,
            label,
            cost,
            ..
        } = *reference;
        Self {
            target,
            label,
            cost,
        }
    }

    pub(super) fn reference(&self) -> Reference<'static> {
        let Self {
            target,
            label,
            cost,
        } = *self;
        Reference {
            target,
            label,
            cost,
            checks: &[],
        }
    }
}

/// Takes the references of a holder, one by one.
pub(super) type Visit<'a> = dyn FnMut(&Reference<'_>) + 'a;

/// A reference of a path, as it is now.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) label: Label,
    pub(super) checks: Vec<Check>,
}

impl Link {
    pub(super) fn of(reference: &Reference<'_>) -> Self {
        Self {
            label: reference.label,
            checks: reference.checks.to_vec(),
        }
    }

    /// The word at an offset in a block, which is proven by other means.
    pub(super) fn at(offset: u64) -> Self {
        Self {
            label: Label::Word(offset),
            checks: Vec::new(),
        }
    }
}

impl Default for Link {
    /// A reference about which nothing is known.
    fn default() -> Self {
        Self::at(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_from_a_root_costs_as_much_as_one_that_is_unreachable() {
        assert_eq!(cost::with(20, cost::BLOCK), 40);
        assert_eq!(
            cost::with(cost::UNREACHED - 5, cost::BLOCK),
            cost::UNREACHED - 1
        );
        assert_eq!(
            cost::with(cost::UNREACHED, cost::BLOCK),
            cost::UNREACHED + 20
        );
        assert_eq!(cost::with(u32::MAX, cost::BLOCK), u32::MAX);
    }
}
