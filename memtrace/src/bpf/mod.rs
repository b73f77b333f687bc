//! The kernel side as the user side sees it: loading, attaching, its maps, its
//! records. Knows what an event looks like, not what it means.

mod abi;
mod attach;
pub mod btf;
pub mod code_maps;
pub mod decode;
mod error;
mod interpreters;
pub mod inventory;
mod maps;
mod multi;
mod raw;
pub mod rows;
mod semaphore;
mod stops;
mod tracefs;
mod tracer;

pub use attach::{Link, detach};
pub use error::TracerError;
pub use stops::OpenStopMaps;
pub use tracer::{Losses, Options, RING_BYTES, Tracer};
