//! The control groups that a process is in, versions 1 and 2.

/// A control group of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// As in `/proc/PID/cgroup`: separated by commas, such as `cpu,cpuacct` or `name=systemd`; empty in version 2.
    pub(super) controllers: String,
    pub(super) path: String,
}

impl Group {
    /// The names on the path, the outermost first.
    pub(super) fn parts(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.path.split('/').filter(|part| !part.is_empty())
    }

    /// Whether systemd names the groups of this hierarchy.
    pub(super) fn is_of_systemd(&self) -> bool {
        ["", "name=systemd"].contains(&self.controllers.as_str())
    }
}

/// The groups of a `/proc/PID/cgroup`: lines `NUMBER:CONTROLLERS:PATH` (cgroups(7)).
pub(super) fn groups(text: &str) -> Vec<Group> {
    let groups = text.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        Some(Group {
            controllers: controllers.to_owned(),
            path: path.to_owned(),
        })
    });
    groups.collect()
}
