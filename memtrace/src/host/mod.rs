//! The fingerprint: facts about the machine and its processes that may explain why a program
//! behaves differently elsewhere, and the memory use of both over time.
//!
//! Everything comes from `/proc`, `/sys` and files; nothing is executed and no network is used. By
//! allow-list: facts not named here are not read, except the names of other variables and hashes of
//! their values. `docs/reference/fingerprint.md` lists the fields.

pub(crate) mod cgroup;
mod descriptors;
mod environment;
mod facts;
#[cfg(test)]
mod fixture;
mod gpu;
mod isa;
mod level;
pub(crate) mod libraries;
mod machine;
pub(crate) mod malloc;
mod process;
pub(crate) mod python;
mod redact;
mod room;
mod source;
pub(crate) mod system;
mod userland;

pub(crate) use crate::recording::Fact;
pub(crate) use facts::Facts;
pub(crate) use machine::facts as machine;
pub(crate) use process::facts as process;
pub(crate) use redact::Redactor;
pub(crate) use room::room;
pub(crate) use source::Source;
