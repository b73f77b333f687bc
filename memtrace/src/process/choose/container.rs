//! Containers of Docker, Podman, containerd and CRI-O, by ID and by name (`--container`). IDs are read from control
//! groups, names from files of the runtimes:
//!
//! - Podman and CRI-O: the lists of containers/storage, `/var/lib/containers/storage/DRIVER-containers/containers.json`,
//!   and `volatile-containers.json` for `podman run --rm`;
//! - Docker: `/var/lib/docker/containers/ID/config.v2.json`;
//! - containerd for Kubernetes: the annotations in `/run/containerd/io.containerd.runtime.v2.task/NAMESPACE/ID/config.json`
//!   (containerd's `pkg/cri/annotations`).

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{candidate::Candidate, criterion::Criterion, group::Group};

/// Digits of a container's ID; of these, the command lines of the runtimes print the first 12.
const DIGITS: usize = 64;
const SHORT: usize = 12;

/// What the runtimes put before the ID: Docker, Podman, containerd and CRI-O with systemd, Podman also without it.
const PREFIXES: [&str; 4] = ["docker-", "libpod-", "cri-containerd-", "crio-"];

/// Where containers/storage has its lists, for containers that are kept and for those of this boot.
const STORAGE: [&str; 2] = ["var/lib/containers/storage", "run/containers/storage"];
const LISTS: [&str; 2] = ["containers.json", "volatile-containers.json"];

/// The ID of the container that a process with these groups is in.
fn id(groups: &[Group]) -> Option<&str> {
    let mut parts = groups.iter().flat_map(|group| group.parts().rev());
    parts.find_map(id_of)
}

/// The ID in the name of a group, such as `docker-ID.scope` or `ID`.
fn id_of(name: &str) -> Option<&str> {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let prefixes = PREFIXES.iter();
    let id = prefixes
        .filter_map(|prefix| name.strip_prefix(prefix))
        .next()
        .unwrap_or(name);
    is_id(id).then_some(id)
}

fn is_id(text: &str) -> bool {
    text.len() == DIGITS
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Processes of a container.
pub(super) struct InContainer {
    value: String,
    root: PathBuf,
    /// By ID: those of containers/storage.
    stored: HashMap<String, Vec<String>>,
}

impl InContainer {
    pub(super) fn new(value: &str, root: &Path) -> Self {
        Self {
            value: value.to_owned(),
            root: root.to_owned(),
            stored: stored(root),
        }
    }

    fn names_of(&self, id: &str) -> Vec<String> {
        let stored = self.stored.get(id).cloned().unwrap_or_default();
        let docker = self.docker(id);
        let mut names: Vec<String> = stored.into_iter().chain(docker).collect();
        // Kubernetes names them `k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT`.
        let short = names.iter().filter_map(|name| {
            let mut parts = name.strip_prefix("k8s_")?.split('_');
            parts.next().map(str::to_owned)
        });
        let short: Vec<String> = short.collect();
        names.extend(short);
        names.extend(self.containerd(id));
        names
    }

    fn docker(&self, id: &str) -> Option<String> {
        let file = format!("var/lib/docker/containers/{id}/config.v2.json");
        let name = json(&self.root.join(file))?;
        let name = name.get("Name")?.as_str()?;
        Some(name.trim_start_matches('/').to_owned())
    }

    fn containerd(&self, id: &str) -> Option<String> {
        let folder = self
            .root
            .join("run/containerd/io.containerd.runtime.v2.task");
        let mut namespaces = fs::read_dir(folder).ok()?.flatten();
        namespaces.find_map(|namespace| {
            let config = json(&namespace.path().join(id).join("config.json"))?;
            let annotations = config.get("annotations")?;
            let name = annotations.get("io.kubernetes.cri.container-name")?;
            Some(name.as_str()?.to_owned())
        })
    }
}

impl Criterion for InContainer {
    fn matches(&self, process: &Candidate) -> bool {
        let Some(id) = id(&process.groups) else {
            return false;
        };
        (self.value.len() >= SHORT && id.starts_with(&self.value))
            || self.names_of(id).contains(&self.value)
    }

    fn names(&self, process: &Candidate) -> Vec<String> {
        let Some(id) = id(&process.groups) else {
            return vec![];
        };
        match self.names_of(id) {
            names if names.is_empty() => vec![id[..SHORT].to_owned()],
            names => names,
        }
    }
}

/// Names of the containers of Podman and CRI-O, by ID.
fn stored(root: &Path) -> HashMap<String, Vec<String>> {
    let folders = STORAGE
        .iter()
        .filter_map(|storage| fs::read_dir(root.join(storage)).ok());
    // `overlay-containers`, or of another driver.
    let folders = folders.flatten().flatten().filter(|folder| {
        let name = folder.file_name();
        name.to_string_lossy().ends_with("-containers")
    });
    let lists = folders.flat_map(|folder| LISTS.map(|list| json(&folder.path().join(list))));
    let mut names = HashMap::new();
    for container in lists.flatten().flat_map(|list| match list {
        Value::Array(containers) => containers,
        _ => vec![],
    }) {
        let texts = |value: &Value| Some(value.as_str()?.to_owned());
        let of = container.get("names").and_then(Value::as_array);
        let of = of.into_iter().flatten().filter_map(texts).collect();
        if let Some(id) = container.get("id").and_then(texts) {
            names.insert(id, of);
        }
    }
    names
}

fn json(path: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::{super::group::groups, *};

    fn with(digit: char) -> String {
        digit.to_string().repeat(DIGITS)
    }

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn ids_of_every_runtime_are_found() {
        let a = with('a');
        for path in [
            format!("/docker/{a}"),
            format!("/system.slice/docker-{a}.scope"),
            format!("/machine.slice/libpod-{a}.scope"),
            format!("/machine.slice/libpod-{a}.scope/container"),
            format!("/libpod_parent/libpod-{a}"),
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod74c13223_5a00_11e9_b385_42010a80018d.slice/cri-containerd-{a}.scope"
            ),
            format!("/kubepods/besteffort/pod74c13223-5a00-11e9-b385-42010a80018d/{a}"),
            format!("/kubepods.slice/kubepods-podx.slice/crio-{a}.scope"),
            // The inner one of a container in a container.
            format!("/docker/{}/docker/{a}", with('b')),
        ] {
            let groups = groups(&format!("4:memory:{path}\n1:cpu:/\n"));
            assert_eq!(id(&groups), Some(a.as_str()), "{path}");
        }
        for path in [
            "/".to_owned(),
            "/user.slice".to_owned(),
            format!("/machine.slice/libpod-conmon-{a}.scope"),
            format!("/crio-conmon-{a}.scope"),
            format!("/docker/{}", &a[1..]),
            format!("/docker/{}", with('g')),
        ] {
            assert_eq!(id(&groups(&format!("0::{path}\n"))), None, "{path}");
        }
    }

    #[test]
    fn names_come_from_the_files_of_the_runtimes() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(
            root,
            "var/lib/containers/storage/vfs-containers/containers.json",
            &format!(r#"[{{"id":"{}","names":["web"]}},{{"id":"x"}}]"#, with('a')),
        );
        write(
            root,
            "var/lib/containers/storage/overlay-containers/volatile-containers.json",
            &format!(
                r#"[{{"id":"{}","names":["k8s_app_pod_ns_uid_0"]}}]"#,
                with('b')
            ),
        );
        write(
            root,
            &format!("var/lib/docker/containers/{}/config.v2.json", with('c')),
            r#"{"Name":"/db"}"#,
        );
        write(
            root,
            &format!(
                "run/containerd/io.containerd.runtime.v2.task/k8s.io/{}/config.json",
                with('d')
            ),
            r#"{"annotations":{"io.kubernetes.cri.container-name":"cache"}}"#,
        );
        write(
            root,
            "var/lib/containers/storage/overlay-containers/containers.json",
            "torn",
        );
        let process = |digit| Candidate {
            groups: groups(&format!("0::/docker/{}\n", with(digit))),
            ..Candidate::default()
        };
        let is_in = |value: &str, digit| InContainer::new(value, root).matches(&process(digit));
        for (name, digit) in [("web", 'a'), ("app", 'b'), ("db", 'c'), ("cache", 'd')] {
            assert!(is_in(name, digit), "{name}");
            assert!(!is_in(name, 'e'), "{name}");
        }
        assert!(is_in(&with('e'), 'e'));
        assert!(is_in(&with('e')[..12], 'e'));
        assert!(!is_in(&with('e')[..11], 'e'), "an ID that is too short");
        assert!(!InContainer::new("web", root).matches(&Candidate::default()));
        let nearest = |digit| InContainer::new("x", root).names(&process(digit));
        assert_eq!(nearest('a'), ["web"]);
        assert_eq!(nearest('e'), ["eeeeeeeeeeee"]);
    }
}
