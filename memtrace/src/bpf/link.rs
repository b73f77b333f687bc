//! A link: a program of the kernel side where it is attached.

use std::os::fd::OwnedFd;

use aya::programs::trace_point::TracePointLink;

/// Attached programs; dropping it detaches them.
#[expect(dead_code, reason = "they are held to be dropped")]
#[derive(Debug)]
pub(crate) enum Link {
    /// Any number of places of one file.
    Multi(OwnedFd),
    /// One place.
    Event(OwnedFd),
    Tracepoint(TracePointLink),
}
