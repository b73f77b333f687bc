//! Why holders are not known, in words.

use crate::{
    analysis::verdict::Absent,
    escape::clean,
    recording::{Unknown, Unsearched},
};

/// Why the keeper of a site's blocks is not known.
pub(in super::super) fn absent(why: &Absent) -> String {
    match why {
        Absent::Unsearched(Unsearched::NotRequested) => {
            "the memory was not searched (`--no-holders` or `--no-stop`)".to_owned()
        }
        Absent::Unsearched(Unsearched::CutShort) => "the search was ended early".to_owned(),
        Absent::Unsearched(Unsearched::Failed(error)) => {
            format!("the search failed: {}", clean(error))
        }
        Absent::Ended => "the process ended before its memory could be searched".to_owned(),
        Absent::BehindOthers => "they are reached only through memory from before the recording, or of an allocator of the program's own".to_owned(),
        Absent::OthersFirst => "only the sites that grow most were searched for".to_owned(),
        Absent::Unknown(why) => unknown(*why).to_owned(),
        Absent::Several => "in several ways, and none of them for nearly all blocks".to_owned(),
    }
}

/// Why a search did not find the holders of some blocks.
pub(super) const fn unknown(why: Unknown) -> &'static str {
    match why {
        Unknown::Changing => "the references to them changed while they were read",
        Unknown::Unclear => "words point to them that may or may not be references",
        Unknown::Marked => "words with marks in their upper bits may point to them",
        Unknown::OtherAllocator => {
            "no pointer to them was found, but an allocator that is not glibc's may have freed them since"
        }
        Unknown::Gone => "they are free again, or of an allocator whose blocks are not known",
        Unknown::NoObject => "no object in these arenas was reached",
    }
}
