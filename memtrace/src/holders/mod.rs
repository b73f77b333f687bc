//! Who keeps a block alive: a search through the memory of a running process, from the roots (modules, frames, global
//! variables, stacks) to the block. The process keeps running, so a path counts only once each of its references was
//! read again in a short stop, unless the process is stopped.

mod absent;
mod calls;
mod census;
mod circle;
mod dominators;
mod doubts;
mod error;
#[cfg(test)]
mod fuzz;
mod graph;
mod head;
mod links;
mod lost;
mod memory;
mod native;
mod numbers;
mod pools;
mod python;
mod reference;
mod references;
mod retained;
mod retainers;
mod room;
mod scene;
mod search;
mod subject;
mod ways;
mod witness;

pub(crate) use calls::Calls;
pub(crate) use census::{Counted, OfType, Uncounted, count};
pub(crate) use error::Error;
pub(crate) use search::{Examined, Known, OfSites, Sought, Wanted, of_sites, of_sought};
pub(crate) use subject::{Reading, Subject};
