//! Units of systemd (`--unit`), which are control groups of its own hierarchy.

use super::{candidate::Candidate, criterion::Criterion, group::Group};

/// Processes of a unit.
pub(super) struct InUnit {
    /// With its type, such as `.service`.
    unit: String,
}

/// Types of units that have processes (systemd.resource-control(5)).
const TYPES: [&str; 6] = ["service", "scope", "slice", "socket", "mount", "swap"];

fn is_unit(name: &str) -> bool {
    let kind = name.rsplit_once('.').map(|(_, kind)| kind);
    kind.is_some_and(|kind| TYPES.contains(&kind))
}

impl InUnit {
    /// As for systemctl, a name without a type is that of a service.
    pub(super) fn new(value: &str) -> Self {
        let unit = match is_unit(value) {
            true => value.to_owned(),
            false => format!("{value}.service"),
        };
        Self { unit }
    }
}

fn units(process: &Candidate) -> impl Iterator<Item = &str> {
    let groups = process.groups.iter().filter(|group| group.is_of_systemd());
    groups.flat_map(Group::parts).filter(|part| is_unit(part))
}

impl Criterion for InUnit {
    fn matches(&self, process: &Candidate) -> bool {
        units(process).any(|unit| unit == self.unit)
    }

    fn names(&self, process: &Candidate) -> Vec<String> {
        units(process).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::group::groups, *};

    #[test]
    fn units_are_groups_of_either_version() {
        for path in [
            "1:name=systemd:/system.slice/nginx.service\n0::/\n",
            "0::/system.slice/nginx.service/worker\n",
        ] {
            let process = Candidate {
                groups: groups(path),
                ..Candidate::default()
            };
            let is_in = |unit: &str| InUnit::new(unit).matches(&process);
            for unit in ["nginx", "nginx.service", "system.slice"] {
                assert!(is_in(unit), "{unit} {path}");
            }
            for unit in ["ngin", "nginx.scope", "worker", "system"] {
                assert!(!is_in(unit), "{unit} {path}");
            }
            let names = InUnit::new("x").names(&process);
            assert_eq!(names, ["system.slice", "nginx.service"]);
        }
        let elsewhere = Candidate {
            groups: groups("4:memory:/nginx.service\n"),
            ..Candidate::default()
        };
        assert!(!InUnit::new("nginx").matches(&elsewhere));
    }
}
