//! Which recorded facts separate the hosts whose memory grows from those whose memory does not, and how likely chance
//! would separate them as well. Pure. `docs/reference/fleet.md` explains the claims.

mod chance;
#[cfg(test)]
pub(crate) mod fixture;
mod group;
mod host;
mod hosts;
mod order;
mod rivals;
mod separate;
mod split;
#[cfg(test)]
mod tests;

pub(crate) use group::{Fleet, Group, Reading, judge};
pub(crate) use host::Facts;
pub(crate) use rivals::Decisive;
pub(crate) use separate::{Cause, Separation, Share};
pub(crate) use split::{Condition, Is};
