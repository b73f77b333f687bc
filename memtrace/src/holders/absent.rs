//! Pages that a file system of a user's would have to supply (FUSE). Its process may never answer, and a thread that waits
//! for it cannot be killed.

use std::{collections::HashSet, ops::Range};

use procfs::{ProcResult, process::Process};

use crate::process::{maps::Mapping, pagemap::ResidentPages};

/// The absent pages of mapped files, if their file system is FUSE or is not mounted for the process.
pub(super) fn ranges(pid: u32, mappings: &[Mapping]) -> Vec<Range<u64>> {
    let known = known(pid);
    // Those of disks have a major number.
    let files = mappings
        .iter()
        .filter(|mapping| mapping.ino != 0 && mapping.dev >> 20 == 0);
    let mut pages = ResidentPages::open(pid).ok();
    let mut absent = Vec::new();
    for mapping in files.filter(|mapping| !known.contains(&mapping.dev)) {
        let whole = mapping.start..mapping.end;
        let parts = pages
            .as_mut()
            .and_then(|pages| pages.absent(whole.clone()).ok());
        absent.extend(parts.unwrap_or_else(|| vec![whole]));
    }
    absent
}

/// The devices of all other mounted file systems. This process's mounts count too: the files of a container may be those of
/// the host. An overlay that only the process has mounted may have a layer on FUSE.
fn known(pid: u32) -> HashSet<u32> {
    let mounts = |of: ProcResult<Process>| of.and_then(|process| process.mountinfo());
    let own = mounts(Process::myself()).into_iter().flatten();
    let theirs = mounts(Process::new(pid.cast_signed()))
        .into_iter()
        .flatten();
    let theirs = theirs.filter(|mount| mount.fs_type != "overlay");
    own.chain(theirs)
        .filter(|mount| !mount.fs_type.starts_with("fuse"))
        .filter_map(|mount| {
            let (major, minor) = mount.majmin.split_once(':')?;
            Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
        })
        .collect()
}
