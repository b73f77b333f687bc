//! The name of a process or of its program (`--name`).

use std::path::Path;

use super::{Candidate, Criterion};

/// Added by the kernel to the path of a removed executable.
const REMOVED: &str = " (deleted)";

/// Base names of the executable and of the first argument.
pub(super) fn programs(executable: Option<&Path>, arguments: &[String]) -> Vec<String> {
    let first = arguments.first().map(Path::new);
    let names = [executable, first].into_iter().flatten();
    let names = names.filter_map(Path::file_name).map(|name| {
        let name = name.to_string_lossy();
        name.strip_suffix(REMOVED).unwrap_or(&name).to_owned()
    });
    names.collect()
}

/// Processes of a name.
pub(super) struct Named {
    name: String,
}

impl Named {
    pub(super) fn new(value: &str) -> Self {
        Self {
            name: value.to_owned(),
        }
    }
}

impl Criterion for Named {
    fn matches(&self, process: &Candidate) -> bool {
        process.comm == self.name || process.programs.contains(&self.name)
    }

    fn names(&self, process: &Candidate) -> Vec<String> {
        vec![process.comm.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_the_names_of_its_program_too() {
        let arguments = ["postgres: writer".to_owned()];
        let programs = programs(Some(Path::new("/usr/bin/postgres (deleted)")), &arguments);
        assert_eq!(programs, ["postgres", "postgres: writer"]);
        let process = Candidate {
            comm: "pg-writer".to_owned(),
            programs,
            ..Candidate::default()
        };
        for name in ["pg-writer", "postgres"] {
            assert!(Named::new(name).matches(&process), "{name}");
        }
        for name in ["pg", "postgre", ""] {
            assert!(!Named::new(name).matches(&process), "{name}");
        }
        assert!(super::programs(None, &[]).is_empty());
    }
}
