//! What a detector consists of: a description of its class, and rules that tell
//! when a verdict is of it. `detectors/mod.rs` has the order of all rules.

use super::{
    Class, Evidence, Grade,
    advice::Advice,
    device::OnDevice,
    growth::{Growing, Part},
    out_of_memory::{Found, OutOfMemory},
    process::Judging,
    shape::Shape,
    site::{Grown, SiteFinding},
};

/// What there is to say of a class.
pub(super) struct Description {
    /// Stable name in JSON and text.
    pub(super) name: &'static str,
    /// What happens, in a few words.
    pub(super) meaning: &'static str,
    /// What it is mistaken for most often.
    pub(super) mistaken_for: Option<Class>,
    /// What to try next where a process is of it; `PID` stands for the process's, `GIVE_BACK` for what its
    /// caching allocator of device memory offers.
    pub(super) next: &'static [&'static str],
    /// What makes the process's allocator give memory back helps.
    pub(super) allocator: bool,
    /// What the process's caching allocator of device memory offers helps.
    pub(super) cache: bool,
    /// A longer recording helps.
    pub(super) longer: bool,
    /// So many sentences of evidence belong on the first screen: no line of the program says it.
    pub(super) on_screen: usize,
    /// What to try next where a site is of it; `None`: a longer recording.
    pub(super) next_of_site: Option<fn(&Advice) -> String>,
}

/// Most of it left open.
pub(super) const DESCRIPTION: Description = Description {
    name: "",
    meaning: "",
    mistaken_for: None,
    next: &[],
    allocator: false,
    cache: false,
    longer: false,
    on_screen: 0,
    next_of_site: None,
};

/// One way to find a class.
pub(super) struct Rule<F> {
    pub(super) class: Class,
    /// What it looks at, for the documentation.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "a unit test compares docs/verdicts.md with it")
    )]
    pub(super) evidence: &'static str,
    pub(super) find: F,
}

/// Rules that answer one question.
pub(super) struct Question<F: 'static> {
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "a unit test compares docs/verdicts.md with it")
    )]
    pub(super) asks: &'static str,
    pub(super) rules: &'static [Rule<F>],
}

/// What rules of [`OfProcess::Sites`] look at, all of them.
pub(super) const OF_SITES: &str = "live memory at sites with this verdict";

/// How a rule on a process is used.
pub(super) enum OfProcess {
    /// The figures do not allow more: asked before anything else.
    Unreliable(fn(&Unreliable) -> Option<Finding>),
    /// Of each failed allocation of a device, beside all else.
    Failed(fn(&OutOfMemory) -> Option<Found>),
    /// Of each device, beside the process's own memory.
    Device(fn(&OnDevice) -> Option<Finding>),
    /// Of its whole course, whether or not it grows.
    Always(fn(&Judging) -> Option<Finding>),
    /// Where it grows: all parts are found, and the largest counts.
    Part(fn(&Growing) -> Option<Part>),
    /// The same, of outstanding memory: the part that sites of the class have.
    Sites,
    /// The same, where no site by itself has much of that: all together have one of these shapes.
    Spread(&'static [Shape], Grade),
    /// Where it grows: parts of what nothing outstanding explains, of which the first counts.
    Unexplained(fn(&Growing) -> Option<Part>),
    /// Where it does not grow.
    Flat(fn(&Judging) -> Option<Finding>),
    /// Where it does not grow, of its whole course.
    State(fn(&Judging) -> Option<Finding>),
    /// Nothing else was found.
    Otherwise(fn(&Judging) -> Finding),
}

/// How a rule on a site is used.
pub(super) enum OfSite {
    Growing(fn(&Grown) -> Option<SiteFinding>),
    Flat(fn(&Grown) -> Option<SiteFinding>),
}

/// How far a process's figures go.
pub(super) struct Unreliable {
    /// Points in all, where those after the start are too few.
    pub(super) too_few: Option<usize>,
    /// How long it lived, and should have, seconds, where that is too short.
    pub(super) too_short: Option<(f64, f64)>,
    /// Records lost, of all.
    pub(super) lost: f64,
}

/// What is found of a process before it becomes a verdict.
pub(super) struct Finding {
    pub(super) class: Class,
    pub(super) grade: Grade,
    pub(super) evidence: Vec<Evidence>,
    pub(super) runner_up: Option<Class>,
    /// Bytes per second; `None` where it is not about bytes.
    pub(super) rate: Option<f64>,
}
