//! The parts of a detector: a description of its class, and the rules that decide when a verdict
//! belongs to it. `detectors/mod.rs` has the order of all rules.

use super::{
    advice::{Advice, Longer},
    class::{Class, Grade},
    context::Context,
    finding::Finding,
    shape::Shape,
    subjects::{Found, Growing, Grown, Judging, OnDevice, OutOfMemory, Part, SiteFinding},
};
use crate::analysis::series::SiteSeries;

/// Description of a class.
pub(super) struct Description {
    /// Stable name in JSON and text.
    pub(super) name: &'static str,
    /// The meaning, in a few words.
    pub(super) meaning: &'static str,
    /// The class it is most often mistaken for.
    pub(super) mistaken_for: Option<Class>,
    /// What to try next for a process of this class.
    pub(super) next: &'static [Advice],
    /// Memory that is never freed.
    pub(super) is_leak: bool,
    /// It is about the machine, not about the process.
    pub(super) of_machine: bool,
    /// Its caching allocator of device memory can give unused memory back.
    pub(super) unused: bool,
    /// Settings that make the process's allocator give memory back help.
    pub(super) allocator: bool,
    /// Settings of the process's caching allocator of device memory help.
    pub(super) cache: bool,
    /// A longer recording helps.
    pub(super) longer: bool,
    /// Number of evidence sentences to show on the first screen, if no line of the program is to
    /// blame.
    pub(super) on_screen: usize,
    /// What to try next for a site of this class; `None`: a longer recording.
    pub(super) next_of_site: Option<fn(&Context, &SiteSeries, Longer) -> Advice>,
}

/// Most of it left open.
pub(super) const DESCRIPTION: Description = Description {
    name: "",
    meaning: "",
    mistaken_for: None,
    next: &[],
    is_leak: false,
    of_machine: false,
    unused: false,
    allocator: false,
    cache: false,
    longer: false,
    on_screen: 0,
    next_of_site: None,
};

/// One way to find a class.
pub(super) struct Rule<F> {
    pub(super) class: Class,
    /// The evidence it needs, for the documentation.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "a unit test compares the document with it")
    )]
    pub(super) evidence: &'static str,
    pub(super) find: F,
}

/// Rules that answer one question.
pub(super) struct Question<F: 'static> {
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "a unit test compares the document with it")
    )]
    pub(super) asks: &'static str,
    pub(super) rules: &'static [Rule<F>],
}

/// The evidence that all rules of [`OfProcess::Sites`] need.
pub(super) const OF_SITES: &str = "live memory at sites with this verdict";

/// The use of a rule on a process.
pub(super) enum OfProcess {
    /// The figures do not allow a verdict: checked before anything else.
    Unreliable(fn(&Unreliable) -> Option<Finding>),
    /// For each failed allocation on a device, in addition to the rest.
    Failed(fn(&OutOfMemory) -> Option<Found>),
    /// For each device, in addition to the process's own memory.
    Device(fn(&OnDevice) -> Option<Finding>),
    /// On its whole course, whether or not it grows.
    Always(fn(&Judging) -> Option<Finding>),
    /// If its growth does not last: nothing else is said of its memory.
    Passing(fn(&Judging) -> Option<Finding>),
    /// If it grows: all parts are found, and the largest counts.
    Part(fn(&Growing) -> Option<Part>),
    /// The same for live memory: the part at sites of the class.
    Sites,
    /// The same, if no single site has much of that: all together have one of these shapes.
    Spread(&'static [Shape], Grade),
    /// If it grows: parts of the growth that live allocations do not explain; the first match
    /// counts.
    Unexplained(fn(&Growing) -> Option<Part>),
    /// Whether or not its memory grows, in addition to the rest.
    Beside(fn(&Judging) -> Option<Finding>),
    /// If it does not grow: each that is found, one of a class.
    Flat(fn(&Judging) -> Option<Finding>),
    /// If it does not grow, on its whole course: the first match counts.
    State(fn(&Judging) -> Option<Finding>),
    /// Nothing else was found.
    Otherwise(fn(&Judging) -> Finding),
}

/// The use of a rule on a site.
pub(super) enum OfSite {
    Growing(fn(&Grown) -> Option<SiteFinding>),
    Flat(fn(&Grown) -> Option<SiteFinding>),
}

/// Limits of a process's figures.
pub(super) struct Unreliable {
    /// Total points, if there are too few after the start-up.
    pub(super) too_few: Option<usize>,
    /// Its lifetime and the least lifetime needed, seconds, if it was too short.
    pub(super) too_short: Option<(f64, f64)>,
    /// Records lost, of all.
    pub(super) lost: f64,
}
