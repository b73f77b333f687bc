//! A control group that ends with the test, in version 1 or 2.

use crate::until;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

pub struct ControlGroup(PathBuf);

impl ControlGroup {
    /// In the hierarchy of systemd.
    ///
    /// # Panics
    /// Without control groups at their usual place.
    pub fn new(name: &str) -> Self {
        Self::below("/sys/fs/cgroup/systemd", name)
    }

    /// In the hierarchy of the controller of memory, with this limit, bytes, and without swap.
    ///
    /// # Panics
    /// As [`ControlGroup::new`], and if memory cannot be limited.
    pub fn limited(name: &str, bytes: u64) -> Self {
        let group = Self::below("/sys/fs/cgroup/memory", name);
        let version1 = group.0.join("memory.limit_in_bytes");
        if version1.exists() {
            fs::write(version1, bytes.to_string()).unwrap();
        } else {
            fs::write(group.0.join("memory.max"), bytes.to_string())
                .expect("`memory` is in cgroup.subtree_control");
            let _ = fs::write(group.0.join("memory.swap.max"), "0");
        }
        group
    }

    /// `hierarchy` is that of version 1.
    fn below(hierarchy: &str, name: &str) -> Self {
        let hierarchies = [hierarchy, "/sys/fs/cgroup"].map(Path::new);
        let hierarchy = hierarchies
            .into_iter()
            .find(|path| path.join("cgroup.procs").is_file())
            .expect("control groups are mounted at /sys/fs/cgroup");
        let path = hierarchy.join(name);
        fs::create_dir(&path).expect("root may make a control group");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The same program with the same arguments, which joins the group before it begins.
    pub fn command(&self, inner: &Command) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""])
            .arg(&self.0)
            .arg(inner.get_program())
            .args(inner.get_args());
        command
    }

    /// How often the kernel killed one of its processes for its memory.
    ///
    /// # Panics
    /// If the group's memory is not limited.
    pub fn kills(&self) -> u64 {
        let files = ["memory.oom_control", "memory.events"].map(|name| self.0.join(name));
        let events = files.iter().find_map(|file| fs::read_to_string(file).ok());
        let events = events.expect("events of memory");
        let count = events
            .lines()
            .find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.parse().ok()).expect("a count")
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // The kernel removes it when its last process is gone.
        until("the end of a control group", || {
            fs::remove_dir(&self.0).ok()
        });
    }
}
