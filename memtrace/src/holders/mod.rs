//! Who keeps a block alive: a search through the memory of a running process, from what is always
//! reachable (modules, frames, global variables, stacks) to the block. The process runs on meanwhile,
//! so a path counts only once each of its references was read again in a short stop.

#![expect(dead_code, reason = "the search that uses it comes next")]

mod memory;
mod reference;
mod search;

pub(crate) use search::{Error, Found, Request, Wanted, search};
