//! CPython's objects, read from outside: which objects and blocks an object refers to, and how Python would write that.
//! Versions 3.9 to 3.14 with the GIL. Every function returns, whatever memory holds: an address without an object has
//! no references.

mod attributes;
mod base;
mod containers;
mod dict;
mod frames;
mod gc;
mod known;
mod layout;
mod literal;
mod open;
mod pieces;
mod references;
mod roots;
mod show;
#[cfg(test)]
mod tests;
mod text;
mod types;
mod words;

pub(super) use known::OF_LRU;
pub(super) use open::NotRecognised;
pub(super) use pieces::Finder;
pub(super) use references::Object;
pub(super) use roots::Root;
pub(super) use show::Shown;

use super::memory::Memory;
use layout::{Layout, Managed};
use memtrace_common::python::Interpreter;
use types::Types;

/// The interpreter of a process.
pub(super) struct Python {
    /// Where its state and its frames are.
    at: Interpreter,
    layout: Layout,
    types: Types,
}

/// Number of elements of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Length {
    pub(super) value: u64,
    /// Address of the word that has it.
    pub(super) place: u64,
}

impl Python {
    /// The address of `_PyRuntime`.
    pub(super) fn state(&self) -> u64 {
        self.at.runtime
    }

    /// 11 for Python 3.11.
    pub(super) fn minor(&self) -> u32 {
        self.layout.minor
    }

    /// Whether there is an object at an address that may be any.
    pub(super) fn is_object(&self, memory: &dyn Memory, address: u64) -> bool {
        self.types.of(memory, address).is_some()
    }

    /// The name of an object's type, with its module unless it is a builtin: `train.Trainer`.
    pub(super) fn type_name(&self, memory: &dyn Memory, address: u64) -> Option<String> {
        self.types.name(memory, address).map(Into::into)
    }

    /// Whether the type of an object has this name, with its module or without.
    pub(super) fn is_of_type(&self, memory: &dyn Memory, address: u64, name: &str) -> bool {
        self.types.is_named(memory, address, name)
    }
}
