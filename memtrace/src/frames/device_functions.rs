//! Functions that allocate and free device memory (GPUs), by their whole names: the members of a
//! library of such functions, and their shapes. The tables are elsewhere (`probes`,
//! [`super::caching`]).

use memtrace_common::Layer;
use memtrace_common::function::{Function, Measure, NO_ARGUMENT, Operation, Outcome};
use memtrace_common::usdt::OPERANDS;

use super::functions::Row;

/// A library with functions of its own. It is recognised by their names, and by its file's name if
/// some of them may be missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library {
    /// For people.
    pub name: &'static str,
    /// Beginnings of its files' names, followed by `.` or `-` (wheels add a hash).
    pub files: &'static [&'static str],
    pub rows: &'static [Row],
    /// Alternative names; a version has one of them: the first match is probed.
    pub alternatives: &'static [&'static [&'static str]],
    pub usdt: &'static [UsdtRow],
}

/// A statically defined probe of a library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsdtRow {
    /// `PROVIDER:NAME`.
    pub name: &'static str,
    /// Layer of the blocks that it reports.
    pub layer: Layer,
    /// Positions of the block, the requested bytes and the stream among its arguments.
    pub arguments: [usize; OPERANDS],
}

impl Library {
    /// Whether a file of this name (without folder) is the library, according to its name.
    pub(crate) fn is_named(&self, file: &str) -> bool {
        self.files.iter().any(|stem| {
            file.strip_prefix(stem)
                .is_some_and(|rest| rest.starts_with(['.', '-']))
        })
    }
}

pub(crate) const fn row(name: &'static str, function: Function) -> Row {
    Row { name, function }
}

/// Allocates a block and writes its address to the first argument's target.
pub(crate) const fn to(layer: Layer, size: u8) -> Function {
    Function {
        operation: Operation::Alloc,
        layer,
        outcome: Outcome::ErrorAndOutPointer,
        size,
        count: NO_ARGUMENT,
        block: NO_ARGUMENT,
        measure: Measure::Arguments,
        stream_ordered: false,
        may_throw: false,
        index: 0,
    }
}

pub(crate) const fn streamed(layer: Layer) -> Function {
    Function {
        stream_ordered: true,
        ..to(layer, 1)
    }
}

pub(crate) const fn measured(layer: Layer, measure: Measure, size: u8, count: u8) -> Function {
    Function {
        measure,
        count,
        ..to(layer, size)
    }
}

pub(crate) const fn array(layer: Layer, measure: Measure, levels: u8) -> Function {
    measured(layer, measure, NO_ARGUMENT, levels)
}

pub(crate) const fn physical(layer: Layer) -> Function {
    measured(layer, Measure::Physical, 1, NO_ARGUMENT)
}

pub(crate) const fn foreign(layer: Layer) -> Function {
    measured(layer, Measure::Foreign, NO_ARGUMENT, NO_ARGUMENT)
}

pub(crate) const fn graph_node(layer: Layer) -> Function {
    measured(layer, Measure::GraphNode, NO_ARGUMENT, NO_ARGUMENT)
}

pub(crate) const fn free(layer: Layer, block: u8) -> Function {
    Function {
        operation: Operation::Free,
        block,
        ..to(layer, NO_ARGUMENT)
    }
}

pub(crate) const fn other(layer: Layer, operation: Operation) -> Function {
    Function {
        operation,
        ..to(layer, NO_ARGUMENT)
    }
}

/// Reports a block, with its size and the allocator's totals.
pub(crate) const fn report(layer: Layer, block: u8, size: u8) -> Function {
    Function {
        block,
        size,
        ..other(layer, Operation::Report)
    }
}
