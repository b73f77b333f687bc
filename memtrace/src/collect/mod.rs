//! The collector: records of the kernel side in, the recording out.
//!
//! It keeps, for each traced process, the meaning of its addresses and its probes; it follows
//! children and new libraries, feeds the ledger, and hands an interval's changes to the store.
//! [`session`] owns the time line: start, waiting, signals, end.

mod accounts;
mod addresses;
mod attach;
mod capture;
mod census;
mod collector;
mod control;
mod course;
mod describe;
mod device_records;
mod early;
mod ending;
pub(crate) mod error;
mod events;
mod exceptions;
mod folding;
mod follow;
mod growing;
pub(crate) mod holders;
mod holes;
mod images;
mod imports;
mod inspection;
pub(crate) mod interruption;
mod interval;
mod job;
mod location;
mod look;
pub(crate) mod missing;
mod modules;
mod naming;
mod output;
mod pausing;
pub(crate) mod plan;
mod pressure;
mod priority;
mod process;
mod processes;
mod python;
mod readiness;
mod records;
mod release;
mod rounds;
mod running;
pub(crate) mod sampling;
pub(crate) mod schedule;
mod searching;
pub(crate) mod session;
mod signals;
mod sink;
mod stacks;
pub(crate) mod start_after;
mod startup;
mod store;
mod tables;
#[cfg(test)]
mod tests;
pub(crate) mod timings;
pub(crate) mod verify;
mod walks;
mod watch;
