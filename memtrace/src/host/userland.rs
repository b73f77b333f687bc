//! The system that a process finds below its root: its release, and marks of container runtimes.

use std::path::Path;

use crate::process_root::Root;

/// What the files of a process's root say about the system there.
#[derive(Debug)]
pub(super) struct System {
    /// Of os-release.
    pub(super) release: String,
    pub(super) of_podman: bool,
    pub(super) of_docker: bool,
}

impl System {
    pub(super) fn read(root: &Root) -> Self {
        let has = |file| root.has(Path::new(file));
        let releases = ["/etc/os-release", "/usr/lib/os-release"];
        let mut releases = releases.iter().map(Path::new);
        Self {
            release: releases
                .find_map(|file| root.read(file))
                .unwrap_or_default(),
            of_podman: has("/run/.containerenv"),
            of_docker: has("/.dockerenv"),
        }
    }
}
