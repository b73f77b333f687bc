//! Why the keeper of a site's blocks is not known.

use crate::recording::{Unknown, Unsearched};

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Absent {
    /// Its process was not searched.
    Unsearched(Unsearched),
    /// Its process ended before.
    Ended,
    /// Other sites of its process grew more, and those were searched for.
    OthersFirst,
    /// Memory of unknown use leads to them, such as blocks from before the recording.
    BehindOthers,
    /// The search found nothing.
    Unknown(Unknown),
    /// Several ways were found, and none of them for most blocks.
    Several,
}
