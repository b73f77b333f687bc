//! The keeper of a site's blocks: seen in memory, or guessed.

use crate::{
    frames::Frame,
    recording::{Collector, Path, Step},
};

/// The holder of a site's blocks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Keeper {
    pub(crate) how: How,
    /// The line that inserts into it, if known; of a leaked reference, the native code on the stack.
    pub(crate) line: Option<Frame>,
    /// The package of that native code, with its version.
    pub(crate) package: Option<String>,
}

impl Keeper {
    pub(crate) const fn new(how: How, line: Option<Frame>) -> Keeper {
        Keeper {
            how,
            line,
            package: None,
        }
    }

    /// Whether it is likely, not certain: a guess, or words that may be left over in memory.
    pub(crate) fn is_likely(&self) -> bool {
        match &self.how {
            How::Container(_) => true,
            How::Path { path, .. } => path.is_of_words(),
            _ => false,
        }
    }

    /// Whether it was seen and not guessed.
    pub(crate) fn is_certain(&self) -> bool {
        let is_lost = matches!(
            self.how,
            How::Nothing { .. } | How::LostWith { .. } | How::LostCycle { .. }
        );
        !is_lost && !self.is_likely()
    }

    /// Whether it is another one of the same search: the same container, or the same way of keeping.
    pub(crate) fn is_same(&self, other: &Keeper) -> bool {
        match (&self.how, &other.how) {
            (How::Path { path, .. }, How::Path { path: other, .. }) => {
                let name = |of| container(of).map(|step| &step.name);
                path.container_number.is_some()
                    && path.container_number == other.container_number
                    && name(path) == name(other)
            }
            (one, other) => one.name() == other.name(),
        }
    }

    /// The container that was seen.
    pub(in super::super) fn container(&self) -> Option<&Step> {
        match &self.how {
            How::Path { path, .. } => container(path),
            _ => None,
        }
    }

    /// Whether a container was seen to grow.
    pub(in super::super) fn has_growing(&self) -> bool {
        self.container().is_some_and(is_growing)
    }

    /// Whether a container was seen that drops what is beyond its limit.
    pub(in super::super) fn has_limit(&self) -> bool {
        self.container().is_some_and(|of| of.limit.is_some())
    }

    /// Whether a container was seen, and the line that fills it is unknown. A linked list has no memory of its own.
    pub(super) fn lacks_line(&self) -> bool {
        let is_list = matches!(&self.how, How::Path { path, .. } if path.chain().is_some());
        self.container().is_some() && self.line.is_none() && !is_list
    }
}

/// How blocks are kept. Shares are of the sampled blocks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum How {
    /// Probably by a container of this type, which grew with them.
    Container(&'static str),
    /// As seen in memory.
    Path { path: Path, share: f64 },
    /// Only by objects of a cycle, as was seen in memory; its steps, if they are known.
    Cycle {
        collector: Collector,
        path: Path,
        share: f64,
    },
    /// By an object, the first step, with a reference that nothing in memory has.
    Surplus { path: Path, share: f64 },
    /// By an object or a block, the first step, that CPython's collector cannot see into.
    Hidden { path: Path, share: f64 },
    /// By nothing that was seen in memory.
    Nothing { share: f64 },
    /// By a block, the first step, to which nothing points.
    LostWith { path: Path, share: f64 },
    /// By lost blocks that point to each other.
    LostCycle { path: Path, share: f64 },
}

impl How {
    /// A stable name, in JSON.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            How::Container(_) => "container",
            How::Path { .. } => "path",
            How::Cycle { .. } => "cycle",
            How::Surplus { .. } => "surplus-reference",
            How::Hidden { .. } => "hidden-reference",
            How::Nothing { .. } => "nothing",
            How::LostWith { .. } => "lost-with",
            How::LostCycle { .. } => "lost-cycle",
        }
    }
}

/// Whether a container got more elements.
pub(super) fn is_growing(container: &Step) -> bool {
    container.growth_per_s.is_some_and(|growth| growth > 0.0)
}

/// The container of a path that grows with the site.
pub(crate) fn container(path: &Path) -> Option<&Step> {
    path.steps.get(path.container?)
}
