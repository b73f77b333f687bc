//! What keeps the blocks of a site, as it was seen in the memory of the process.

use crate::ledger::SiteKey;

/// What was found out about the blocks of one site, or of one process where it is not known which site's.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Holders {
    pub(crate) site: SiteKey,
    /// Blocks that were looked at, a sample.
    pub(crate) sampled: u32,
    /// The ways in which they are held, the most frequent first. Their counts may add up to less than
    /// `sampled`: of the others it is not known what holds them.
    pub(crate) ways: Vec<Way>,
}

/// One way in which blocks are held.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Way {
    /// Blocks held so.
    pub(crate) blocks: u32,
    pub(crate) held: Held,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Held {
    /// By a path whose every reference was read again while the process was stopped.
    Path(Path),
    /// Only by objects of a cycle that nothing else holds, which CPython's collector would free.
    Cycle,
    /// By nothing that was found.
    Nothing,
}

/// From what is always reachable to the block.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path {
    /// The root first.
    pub(crate) steps: Vec<Step>,
    /// Which of the steps is the container that grows with the site.
    pub(crate) container: Option<usize>,
    /// An expression in Python for what one of the blocks belongs to, where all of the path can be written so.
    pub(crate) expression: Option<String>,
}

/// An object or a block on the way. Names are of modules, attributes, variables and types, and the keys of dicts,
/// cut; nothing else of what the program has in memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) kind: StepKind,
    /// How its holder refers to it: `.history`, `[i]`, `['key']`; of a root its name:
    /// `__main__`, `libfoo.so: g_cache + 0x10`, `thread worker-3: stack of serve()`.
    pub(crate) name: String,
    /// `list`, `torch.Tensor`, `c10::StorageImpl`.
    pub(crate) type_name: Option<String>,
    /// Elements of a container.
    pub(crate) length: Option<u64>,
    /// Elements a second, from two readings.
    pub(crate) growth_per_s: Option<f64>,
    /// Blocks or objects in a row that are alike, and stand for one step: nodes of a linked list.
    pub(crate) repeated: u64,
    /// The site of its own memory (the array of a list), whose stack is the line that made it grow last.
    pub(crate) buffer: Option<SiteKey>,
}

/// What a [`Step`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepKind {
    Module,
    Frame,
    /// Another root of the interpreter.
    Interpreter,
    /// A Python object.
    Object,
    /// A variable of a program or a library.
    Global,
    Stack,
    Register,
    ThreadLocal,
    /// Memory that no allocator gave: a mapping.
    Mapping,
    /// A block of malloc.
    Block,
}

impl StepKind {
    /// As recordings and JSON have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Module => "module",
            Self::Frame => "frame",
            Self::Interpreter => "interpreter",
            Self::Object => "object",
            Self::Global => "global",
            Self::Stack => "stack",
            Self::Register => "register",
            Self::ThreadLocal => "thread local",
            Self::Mapping => "mapping",
            Self::Block => "block",
        }
    }
}
