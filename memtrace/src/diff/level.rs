//! The levels at which sites match.

/// The way in which two sites were matched, the surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// The same files (build id) and places in them, frame by frame.
    BuildId,
    /// The same functions of the same modules, frame by frame.
    Symbol,
    /// The same functions at the leaf, up to the nearest Python frame; callers differ.
    Leaf,
    /// The same modules and Python functions: a name is missing, or differs between builds.
    Module,
}

impl Level {
    pub(crate) const ALL: [Level; 4] = [Level::BuildId, Level::Symbol, Level::Leaf, Level::Module];

    /// In JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Level::BuildId => "L0",
            Level::Symbol => "L1",
            Level::Leaf => "L1-leaf",
            Level::Module => "L2",
        }
    }

    /// For people.
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Level::BuildId => "the same code, build id and offset",
            Level::Symbol => "the same functions of the same modules",
            Level::Leaf => "the same functions at the leaf",
            Level::Module => "the same modules only",
        }
    }
}
