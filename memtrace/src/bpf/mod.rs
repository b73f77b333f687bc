//! The kernel side as seen by the user side: loading, attaching, its maps, its records. Knows the
//! layout of an event, not its meaning.

mod abi;
mod attach;
mod awaited;
pub(crate) mod btf;
mod changes;
pub(crate) mod code_maps;
mod cookies;
pub(crate) mod decode;
mod elements;
mod error;
mod event;
mod exit;
mod features;
mod grace;
mod interpreters;
pub(crate) mod inventory;
mod kernel;
mod link;
mod maps;
mod multi;
mod object;
mod one_by_one;
mod options;
mod raw;
mod removal;
mod ring;
pub(crate) mod rows;
mod stops;
mod taken;
mod tracefs;
mod tracer;
mod warmth;

pub(crate) use attach::Attached;
pub(crate) use awaited::AwaitedCalls;
pub(crate) use error::TracerError;
pub(crate) use exit::remove_probes;
pub(crate) use features::{Feature, missing_feature};
#[cfg(test)]
pub(crate) use kernel::Losses;
pub(crate) use kernel::{Abilities, Kernel};
pub(crate) use link::Link;
pub(crate) use object::needs_legacy;
pub(crate) use options::{Options, RING_BYTES};
pub(crate) use removal::{Removal, detach, detach_all};
pub(crate) use ring::Ring;
pub(crate) use stops::OpenStopMaps;
pub(crate) use taken::other_tracer;
pub(crate) use tracer::Tracer;
