//! A process that may be chosen: what the parts of a choice look at.

use super::group::Group;

/// A process, as far as choices are about it.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidate {
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) comm: String,
    /// See [`super::program::programs`].
    pub(super) programs: Vec<String>,
    pub(super) groups: Vec<Group>,
    /// The effective user ID.
    pub(super) user: u32,
    /// `HOSTNAME` of a process in a pod.
    pub(super) hostname: Option<String>,
}
