//! What holds the blocks of sites that grow.

use std::time::Duration;

use crate::{
    ledger::{Extent, SiteKey},
    recording::Holders,
};

/// What is to be found out about one process.
pub(crate) struct Request<'a> {
    pub(crate) sites: Vec<Wanted>,
    /// All live blocks of malloc as the ledger has them, in no order.
    pub(crate) blocks: &'a mut dyn Iterator<Item = Extent>,
    /// The ledger has every block since the process began.
    pub(crate) has_ledger_since_start: bool,
    /// The site of the live block of malloc at an address.
    pub(crate) site_of: &'a dyn Fn(u64) -> Option<SiteKey>,
    /// Leave names out, but for those of types.
    pub(crate) redact: bool,
    /// Whether the user has ended the search; to be asked now and then.
    pub(crate) is_over: &'a dyn Fn() -> bool,
}

/// A site whose blocks are looked for.
pub(crate) struct Wanted {
    pub(crate) site: SiteKey,
    /// A sample of blocks, the oldest first.
    pub(crate) addresses: Vec<Extent>,
    /// How many blocks more it has each second.
    pub(crate) blocks_per_s: f64,
}

/// What was found out.
pub(crate) struct Found {
    pub(crate) holders: Vec<Holders>,
    /// The longest time for which the process was stopped.
    pub(crate) longest_stop: Duration,
    pub(crate) took: Duration,
    /// What could not be looked at, and why.
    pub(crate) notes: Vec<String>,
}

/// Why nothing was found out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the search is not there yet")]
    NotThereYet,
}

/// Looks for what holds blocks of the process `pid`.
pub(crate) fn search(_: u32, _: &mut Request<'_>) -> Result<Found, Error> {
    Err(Error::NotThereYet)
}
