//! What is measured of stack walks: whether they are right, and how long they take.

use super::{timings::Timings, verify::Verifier};
use std::io;

/// See the module.
pub(super) struct Walks {
    /// Only if walks are to be verified.
    pub(super) verifier: Option<Verifier>,
    pub(super) timings: Timings,
}

impl Walks {
    pub(super) fn start(verifies: bool) -> io::Result<Self> {
        Ok(Self {
            verifier: verifies.then(Verifier::start).transpose()?,
            timings: Timings::default(),
        })
    }
}
