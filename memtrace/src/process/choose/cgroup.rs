//! Processes of a control group, and of the groups below it (`--cgroup PATH`).

use std::path::Path;

use procfs::process::{MountInfo, Process};

use super::{candidate::Candidate, criterion::Criterion, error::ChooseError, group::Group};

/// A mounted hierarchy.
#[derive(Clone, Debug)]
enum Hierarchy {
    /// With the options of its mount, among them its controllers.
    Version1(Vec<String>),
    Version2,
}

impl Hierarchy {
    fn of(mount: &MountInfo) -> Option<Self> {
        let options = mount.super_options.iter();
        let options = options.map(|(key, value)| match value {
            Some(value) => format!("{key}={value}"),
            None => key.clone(),
        });
        match mount.fs_type.as_str() {
            "cgroup" => Some(Self::Version1(options.collect())),
            "cgroup2" => Some(Self::Version2),
            _ => None,
        }
    }

    fn has(&self, group: &Group) -> bool {
        match self {
            Self::Version1(options) => {
                let mut controllers = group.controllers.split(',');
                controllers.any(|name| options.iter().any(|option| option == name))
            }
            Self::Version2 => group.controllers.is_empty(),
        }
    }
}

/// Processes of a group and of those below it.
pub(super) struct InGroup {
    /// `None`: in any one.
    hierarchy: Option<Hierarchy>,
    path: String,
}

impl InGroup {
    /// `given`: a folder below a mount of control groups, or a path as in `/proc/PID/cgroup`.
    pub(super) fn new(given: &str) -> Result<Self, ChooseError> {
        let mounts = Process::myself().and_then(|process| process.mountinfo());
        let group = Self::among(given, mounts.iter().flatten())?;
        match group.hierarchy.is_some() && !Path::new(given).is_dir() {
            true => Err(ChooseError::NoSuchGroup(given.to_owned())),
            false => Ok(group),
        }
    }

    fn among<'a>(
        given: &str,
        mounts: impl Iterator<Item = &'a MountInfo>,
    ) -> Result<Self, ChooseError> {
        let below = mounts.filter_map(|mount| {
            let below = Path::new(given).strip_prefix(&mount.mount_point).ok()?;
            Some((mount, below, Hierarchy::of(mount)?))
        });
        let innermost = below.max_by_key(|(mount, ..)| mount.mount_point.as_os_str().len());
        let (hierarchy, path) = match innermost {
            Some((mount, below, hierarchy)) => {
                (Some(hierarchy), Path::new(&mount.root).join(below))
            }
            None => (None, Path::new("/").join(given)),
        };
        let path = path.to_string_lossy();
        match path.trim_end_matches('/') {
            "" => Err(ChooseError::RootGroup(given.to_owned())),
            path => Ok(Self {
                hierarchy,
                path: path.to_owned(),
            }),
        }
    }

    fn has(&self, group: &Group) -> bool {
        let below = group.path.strip_prefix(&self.path);
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            && self.hierarchy.as_ref().is_none_or(|of| of.has(group))
    }
}

impl Criterion for InGroup {
    fn matches(&self, process: &Candidate) -> bool {
        process.groups.iter().any(|group| self.has(group))
    }

    fn names(&self, process: &Candidate) -> Vec<String> {
        let groups = process.groups.iter();
        let below = groups.filter(|group| group.path != "/");
        below.map(|group| group.path.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::group::groups, *};

    const MOUNTS: [&str; 4] = [
        "1 0 0:1 / /sys/fs/cgroup rw - tmpfs tmpfs rw",
        "2 1 0:2 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
        "3 1 0:3 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd",
        "4 1 0:4 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
    ];

    fn among(given: &str) -> Result<InGroup, ChooseError> {
        let mounts = MOUNTS.map(|line| MountInfo::from_line(line).unwrap());
        InGroup::among(given, mounts.iter())
    }

    fn process(text: &str) -> Candidate {
        Candidate {
            groups: groups(text),
            ..Candidate::default()
        }
    }

    #[test]
    fn a_folder_is_of_its_own_hierarchy() {
        let process = process("4:memory:/app/worker\n1:name=systemd:/app.service\n0::/box\n");
        let is_in = |given: &str| among(given).unwrap().matches(&process);
        assert!(is_in("/sys/fs/cgroup/memory/app/worker"));
        assert!(is_in("/sys/fs/cgroup/memory/app/"));
        assert!(is_in("/sys/fs/cgroup/systemd/app.service"));
        assert!(is_in("/sys/fs/cgroup/unified/box"));
        assert!(!is_in("/sys/fs/cgroup/memory/ap"));
        assert!(!is_in("/sys/fs/cgroup/memory/app.service"));
        assert!(!is_in("/sys/fs/cgroup/unified/app"));
    }

    #[test]
    fn a_path_of_proc_is_of_any_hierarchy() {
        let process = process("4:memory:/app/worker\n0::/box\n");
        for given in ["/app", "app/worker", "/box"] {
            assert!(among(given).unwrap().matches(&process), "{given}");
        }
        assert!(!among("/worker").unwrap().matches(&process));
        let group = among("/x").unwrap();
        assert_eq!(group.names(&process), ["/app/worker", "/box"]);
    }

    #[test]
    fn the_root_is_refused() {
        for given in ["/", "", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/"] {
            assert!(
                matches!(among(given), Err(ChooseError::RootGroup(_))),
                "{given}"
            );
        }
    }
}
