//! Pods of Kubernetes, by UID and by name (`--pod`). UIDs are read from control groups. Names are read from the kubelet's
//! folders `/var/log/pods/NAMESPACE_NAME_UID` and from `HOSTNAME` in a process's environment, which is the pod's name
//! unless the pod has the host's network or sets a host name.

use std::{collections::HashMap, fs, path::Path};

use super::{candidate::Candidate, criterion::Criterion, group::Group};
use crate::process_root;

/// The UID of the pod that a process with these groups is in. With systemd, the group is
/// `kubepods-burstable-podUID.slice` with `_` for `-`, otherwise `podUID` (the kubelet's `pkg/kubelet/cm`).
pub(super) fn of(groups: &[Group]) -> Option<String> {
    let in_kubepods = groups.iter().filter(|group| {
        let mut parts = group.parts();
        parts.any(|part| part.starts_with("kubepods"))
    });
    let mut parts = in_kubepods.flat_map(Group::parts);
    parts.find_map(|part| {
        let name = part.strip_suffix(".slice").unwrap_or(part);
        let uid = match name.strip_prefix("pod") {
            Some(uid) => uid,
            None => name.strip_prefix("kubepods-")?.rsplit_once("pod")?.1,
        };
        // That of a static pod is a hash without `-`.
        let is_uid = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b'-' | b'_');
        let is_whole = uid.len() >= 32 && uid.bytes().all(is_uid);
        is_whole.then(|| uid.replace('_', "-"))
    })
}

/// `HOSTNAME` in the environment of a process.
pub(super) fn hostname(pid: u32) -> Option<String> {
    let environment = process_root::read_memory(pid, "environ").ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let name = variables.find_map(|variable| variable.strip_prefix(b"HOSTNAME="))?;
    Some(String::from_utf8_lossy(name).into_owned())
}

/// Processes of a pod.
pub(super) struct InPod {
    value: String,
    /// Namespace and name, by UID.
    named: HashMap<String, (String, String)>,
}

impl InPod {
    pub(super) fn new(value: &str, root: &Path) -> Self {
        let folders = fs::read_dir(root.join("var/log/pods"));
        let folders = folders.into_iter().flatten().flatten();
        let named = folders.filter_map(|folder| {
            // None of the three has a `_`.
            let folder = folder.file_name().into_string().ok()?;
            let (namespace, rest) = folder.split_once('_')?;
            let (name, uid) = rest.split_once('_')?;
            Some((uid.to_owned(), (namespace.to_owned(), name.to_owned())))
        });
        Self {
            value: value.to_owned(),
            named: named.collect(),
        }
    }
}

impl Criterion for InPod {
    fn matches(&self, process: &Candidate) -> bool {
        let Some(uid) = of(&process.groups) else {
            return false;
        };
        let by_name = match self.named.get(&uid) {
            Some((namespace, name)) => {
                self.value == *name || self.value == format!("{namespace}/{name}")
            }
            None => process.hostname.as_ref() == Some(&self.value),
        };
        by_name || self.value == uid
    }

    fn names(&self, process: &Candidate) -> Vec<String> {
        let Some(uid) = of(&process.groups) else {
            return vec![];
        };
        let named = self.named.get(&uid).map(|(_, name)| name);
        let name = named.or(process.hostname.as_ref()).unwrap_or(&uid);
        vec![name.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::{super::group::groups, *};

    const UID: &str = "74c13223-5a00-11e9-b385-42010a80018d";

    fn process(path: &str) -> Candidate {
        Candidate {
            groups: groups(&format!("4:memory:/\n0::{path}\n")),
            hostname: Some("api-0".to_owned()),
            ..Candidate::default()
        }
    }

    #[test]
    fn uids_are_found_with_and_without_systemd() {
        let with_systemd = format!("pod{}.slice", UID.replace('-', "_"));
        for path in [
            format!("/kubepods/burstable/pod{UID}/abc"),
            format!("/kubepods/pod{UID}"),
            format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-{with_systemd}/x"),
            format!("/kubepods.slice/kubepods-{with_systemd}/crio-x.scope"),
        ] {
            assert_eq!(of(&process(&path).groups).as_deref(), Some(UID), "{path}");
        }
        let hash = "0123456789abcdef0123456789abcdef";
        let fixed = process(&format!("/kubepods/pod{hash}"));
        assert_eq!(of(&fixed.groups).as_deref(), Some(hash));
        for path in ["/", "/kubepods/podcast", "/system.slice/pod.service"] {
            assert_eq!(of(&process(path).groups), None, "{path}");
        }
        assert_eq!(of(&groups(&format!("0::/pod{UID}\n"))), None);
    }

    #[test]
    fn a_pod_has_the_name_of_its_folder_or_else_its_host_name() {
        let root = tempfile::tempdir().unwrap();
        let pods = root.path().join("var/log/pods");
        let process = process(&format!("/kubepods/pod{UID}"));
        let is_in = |value: &str| InPod::new(value, root.path()).matches(&process);
        assert!(is_in(UID));
        assert!(is_in("api-0"));
        fs::create_dir_all(pods.join(format!("shop_web-1_{UID}"))).unwrap();
        assert!(is_in(UID));
        assert!(is_in("web-1"));
        assert!(is_in("shop/web-1"));
        for other in ["api-0", "web", "other/web-1"] {
            assert!(!is_in(other), "{other}");
        }
        assert_eq!(InPod::new("", root.path()).names(&process), ["web-1"]);
    }
}
