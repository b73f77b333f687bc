//! The name of a process or of its program (`--name`).

use std::path::Path;

use super::{candidate::Candidate, criterion::Criterion};

/// Added by the kernel to the path of a removed executable.
const REMOVED: &str = " (deleted)";

/// Programs that run scripts, without a version, and their options that have a value in the next argument.
const INTERPRETERS: [(&str, &[&str]); 8] = [
    ("python", &["-W", "-X"]),
    ("pypy", &["-W", "-X"]),
    ("perl", &[]),
    ("ruby", &["-r"]),
    ("node", &["-r", "--require", "--import"]),
    ("sh", &["-o"]),
    ("bash", &["-o", "-O", "--rcfile"]),
    ("dash", &["-o"]),
];

/// Base names of the executable, of the first argument, and of the script or module that an interpreter runs.
pub(super) fn programs(executable: Option<&Path>, arguments: &[String]) -> Vec<String> {
    let first = arguments.first().map(Path::new);
    let files = [executable, first, script(arguments)];
    let names = files.into_iter().flatten().filter_map(Path::file_name);
    let names = names.map(|name| {
        let name = name.to_string_lossy();
        name.strip_suffix(REMOVED).unwrap_or(&name).to_owned()
    });
    names.collect()
}

/// What an interpreter was started to run: a file, or a module of Python.
fn script(arguments: &[String]) -> Option<&Path> {
    let (program, rest) = arguments.split_first()?;
    let name = Path::new(program).file_name()?.to_str()?;
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let (_, with_value) = INTERPRETERS
        .iter()
        .find(|(interpreter, _)| *interpreter == name)?;
    let mut rest = rest.iter().map(String::as_str);
    while let Some(argument) = rest.next() {
        match argument {
            // The code itself.
            "-c" | "-e" | "-" => return None,
            "-m" | "--" => return rest.next().map(Path::new),
            option if with_value.contains(&option) => drop(rest.next()),
            option if option.starts_with('-') => {}
            script => return Some(Path::new(script)),
        }
    }
    None
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
        let programs = process.programs.iter().cloned();
        programs.chain([process.comm.clone()]).collect()
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

    #[test]
    fn an_interpreter_has_the_name_of_its_script() {
        let script = |line: &str| {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            script(&arguments).map(|path| path.to_str().unwrap().to_owned())
        };
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(script("python3 -u train.py --lr 1"), some("train.py"));
        let with_value = "/usr/bin/python3.11 -X dev /srv/app.py";
        assert_eq!(script(with_value), some("/srv/app.py"));
        assert_eq!(
            script("python -m torch.distributed.run x.py"),
            some("torch.distributed.run")
        );
        assert_eq!(script("bash run.sh"), some("run.sh"));
        for none in ["python3 -c pass x", "python3", "sleep 60", "postgres -D x"] {
            assert_eq!(script(none), None, "{none}");
        }
    }
}
