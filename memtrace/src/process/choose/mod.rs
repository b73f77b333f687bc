//! Chooses running processes by their control group, container, pod, systemd unit, program or user: one file per source.
//! Everything comes from `/proc` and from files of the container runtimes; no runtime's socket is used.

mod candidate;
mod cgroup;
mod container;
mod criterion;
mod error;
mod group;
mod pod;
mod program;
mod unit;
mod user;

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    path::Path,
};

pub(crate) use self::error::ChooseError;
use self::{candidate::Candidate, criterion::Criterion};
use super::{job, memory, target};
use crate::{escape::clean, process_root, units};

/// Most chosen processes that are listed.
const LISTED: usize = 10;

/// Names listed when nothing matches, and how like the wanted one they are at least (Jaro–Winkler, 0 to 1).
const NEAREST: usize = 3;
const LIKE: f64 = 0.7;

/// Which processes are chosen: those that match every part that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) cgroup: Option<String>,
    pub(crate) container: Option<String>,
    pub(crate) pod: Option<String>,
    pub(crate) unit: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) user: Option<String>,
}

/// A chosen process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) pid: u32,
    pub(crate) comm: String,
}

/// `2 processes: 812 (`nginx`), 813 (`nginx`)`.
pub(crate) fn listed(chosen: &[Chosen]) -> String {
    let names = chosen.iter().take(LISTED);
    let mut names: Vec<String> = names
        .map(|of| format!("{} (`{}`)", of.pid, clean(&of.comm)))
        .collect();
    if chosen.len() > LISTED {
        names.push(format!("and {} more", chosen.len() - LISTED));
    }
    format!("{}: {}", processes(chosen.len()), names.join(", "))
}

fn processes(count: usize) -> String {
    match count {
        1 => "1 process".to_owned(),
        count => format!("{} processes", units::grouped(count as u64)),
    }
}

/// A part of a choice, with the option as given.
struct Part<'a> {
    option: &'static str,
    value: &'a str,
    criterion: Box<dyn Criterion>,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = self.given().into_iter();
        let given: Vec<String> = given
            .map(|(option, value)| format!("`{option} {value}`"))
            .collect();
        write!(f, "{}", given.join(" and "))
    }
}

impl Choice {
    /// The given options with their values.
    fn given(&self) -> Vec<(&'static str, &str)> {
        let all = [
            ("--cgroup", &self.cgroup),
            ("--container", &self.container),
            ("--pod", &self.pod),
            ("--unit", &self.unit),
            ("--name", &self.name),
            ("--user", &self.user),
        ];
        let given = all.into_iter();
        given
            .filter_map(|(option, value)| Some((option, value.as_deref()?)))
            .collect()
    }

    /// `root` has the files of the system and of the container runtimes.
    fn parts(&self, root: &Path) -> Result<Vec<Part<'_>>, ChooseError> {
        let parts = self.given().into_iter().map(|(option, value)| {
            let criterion: Box<dyn Criterion> = match option {
                "--cgroup" => Box::new(cgroup::InGroup::new(value)?),
                "--container" => Box::new(container::InContainer::new(value, root)),
                "--pod" => Box::new(pod::InPod::new(value, root)),
                "--unit" => Box::new(unit::InUnit::new(value)),
                "--name" => Box::new(program::Named::new(value)),
                _ => Box::new(user::OfUser::new(value, root)?),
            };
            Ok(Part {
                option,
                value,
                criterion,
            })
        });
        parts.collect()
    }

    /// The running processes that match; never memtrace itself, its ancestors, or kernel threads. `with_descendants`:
    /// without those that descend from another one, because they are followed in any case.
    ///
    /// # Errors
    /// None matches, or the choice has no meaning on this machine.
    pub(crate) fn find(&self, with_descendants: bool) -> Result<Vec<Chosen>, ChooseError> {
        let parts = self.parts(Path::new("/"))?;
        let processes = candidates();
        let chosen = choose(&processes, &parts)?;
        Ok(match with_descendants {
            true => without_descendants(&chosen, &processes),
            false => chosen.into_iter().map(Chosen::from).collect(),
        })
    }
}

impl From<&Candidate> for Chosen {
    fn from(process: &Candidate) -> Self {
        Self {
            pid: process.pid,
            comm: process.comm.clone(),
        }
    }
}

/// All processes that a choice may be about. One that ends meanwhile is left out.
fn candidates() -> Vec<Candidate> {
    // The first processes of the machine and the kernel have the parent 0.
    let pids = job::descendants(&[0]).into_iter();
    pids.filter_map(candidate).collect()
}

fn candidate(pid: u32) -> Option<Candidate> {
    let stat = memory::stat(pid).ok()?;
    if target::is_kernel_thread(&stat) {
        return None;
    }
    let status = memory::read(pid, "status").ok()?;
    let groups = group::groups(&memory::read(pid, "cgroup").ok()?);
    let arguments = memory::arguments(&process_root::read_memory(pid, "cmdline").ok()?);
    let executable = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let hostname = pod::of(&groups).and_then(|_| pod::hostname(pid));
    Some(Candidate {
        pid,
        parent: stat.ppid.try_into().unwrap_or(0),
        programs: program::programs(executable.as_deref(), &arguments),
        comm: stat.comm,
        groups,
        user: user::effective(&status)?,
        hostname,
    })
}

/// Those that match every part.
fn choose<'a>(
    processes: &'a [Candidate],
    parts: &[Part],
) -> Result<Vec<&'a Candidate>, ChooseError> {
    let mut counts = Vec::new();
    for Part {
        option,
        value,
        criterion,
    } in parts
    {
        let matching = processes.iter().filter(|of| criterion.matches(of)).count();
        if matching == 0 {
            let names = processes.iter().flat_map(|of| criterion.names(of));
            let (names, value) = (BTreeSet::from_iter(names), (*value).to_owned());
            return Err(match names.is_empty() && *option == "--unit" {
                true => ChooseError::NoUnits(value),
                false => ChooseError::None {
                    option,
                    near: similar(&value, names),
                    value,
                },
            });
        }
        counts.push(format!(
            "`{option} {value}` ({})",
            self::processes(matching)
        ));
    }
    let all = |process: &&Candidate| parts.iter().all(|part| part.criterion.matches(process));
    let chosen: Vec<&Candidate> = processes.iter().filter(all).collect();
    match chosen.is_empty() {
        true => Err(ChooseError::NotTogether(counts)),
        false => Ok(chosen),
    }
}

/// The names most like `value`, quoted.
fn similar(value: &str, names: BTreeSet<String>) -> Vec<String> {
    let wanted = value.to_lowercase();
    let likeness = |name: &str| {
        let name = name.to_lowercase();
        match name.contains(&wanted) || wanted.contains(&name) {
            true => 1.0,
            false => strsim::jaro_winkler(&wanted, &name),
        }
    };
    let mut names: Vec<(f64, String)> = names
        .into_iter()
        .filter(|name| !name.is_empty())
        .map(|name| (likeness(&name), name))
        .collect();
    names.retain(|(likeness, _)| *likeness >= LIKE);
    names.sort_by(|a, b| b.0.total_cmp(&a.0));
    names.truncate(NEAREST);
    let quoted = names.into_iter();
    quoted
        .map(|(_, name)| format!("`{}`", clean(&name)))
        .collect()
}

/// Those of the chosen that no other one has started, directly or not.
fn without_descendants(chosen: &[&Candidate], processes: &[Candidate]) -> Vec<Chosen> {
    let parents: HashMap<u32, u32> = processes.iter().map(|of| (of.pid, of.parent)).collect();
    let is_chosen = |pid: &u32| chosen.iter().any(|of| of.pid == *pid);
    // Processes are read one after another: with a reused pid, the parents may form a circle.
    let is_below = |process: &&&Candidate| {
        std::iter::successors(Some(process.parent), |pid| parents.get(pid).copied())
            .take(processes.len())
            .any(|pid| pid != process.pid && is_chosen(&pid))
    };
    let first = chosen.iter().filter(|process| !is_below(process));
    first.copied().map(Chosen::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32, comm: &str, user: u32) -> Candidate {
        Candidate {
            pid,
            parent,
            comm: comm.to_owned(),
            user,
            ..Candidate::default()
        }
    }

    fn found(choice: &Choice, processes: &[Candidate]) -> Result<Vec<u32>, String> {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        std::fs::write(root.path().join("etc/passwd"), "www:x:33:33::/:/bin/sh\n").unwrap();
        let parts = choice
            .parts(root.path())
            .map_err(|error| error.to_string())?;
        let chosen = choose(processes, &parts).map_err(|error| error.to_string())?;
        let first = without_descendants(&chosen, processes);
        Ok(first.iter().map(|of| of.pid).collect())
    }

    fn named(name: &str) -> Choice {
        Choice {
            name: Some(name.to_owned()),
            ..Choice::default()
        }
    }

    #[test]
    fn every_part_must_match_and_descendants_are_left_out() {
        let processes = [
            process(10, 1, "nginx", 0),
            process(11, 10, "sh", 0),
            process(12, 11, "nginx", 33),
            process(20, 1, "nginx", 33),
            process(30, 1, "python3", 7),
        ];
        assert_eq!(found(&named("nginx"), &processes), Ok(vec![10, 20]));
        let both = Choice {
            user: Some("www".to_owned()),
            ..named("nginx")
        };
        assert_eq!(both.to_string(), "`--name nginx` and `--user www`");
        assert_eq!(found(&both, &processes), Ok(vec![12, 20]));
        let apart = Choice {
            user: Some("7".to_owned()),
            ..named("nginx")
        };
        let error = found(&apart, &processes).unwrap_err();
        assert_eq!(
            error,
            "no process matches all of `--name nginx` (3 processes) and `--user 7` (1 process)"
        );
    }

    #[test]
    fn parents_that_form_a_circle_are_no_descendants_for_ever() {
        let processes = [process(5, 6, "a", 0), process(6, 5, "b", 0)];
        assert_eq!(found(&named("a"), &processes), Ok(vec![5]));
    }

    #[test]
    fn chosen_processes_are_listed_up_to_a_number() {
        let of = |n: u32| -> Vec<Chosen> {
            let chosen = (1..=n).map(|pid| Chosen {
                pid,
                comm: "nginx".to_owned(),
            });
            chosen.collect()
        };
        assert_eq!(listed(&of(1)), "1 process: 1 (`nginx`)");
        let many = listed(&of(12));
        assert!(many.starts_with("12 processes: 1 (`nginx`), 2 "), "{many}");
        assert!(many.ends_with("10 (`nginx`), and 2 more"), "{many}");
    }

    #[test]
    fn the_nearest_names_are_listed_if_nothing_matches() {
        let processes = [
            process(1, 0, "python3", 0),
            process(2, 0, "gunicorn", 0),
            process(3, 0, "postgres", 0),
            process(4, 0, "bash", 0),
        ];
        let error = found(&named("pyton"), &processes).unwrap_err();
        assert!(
            error.starts_with("no process matches `--name pyton`; nearest: `python3`"),
            "{error}"
        );
        let hostile = [process(5, 0, "pyth\u{1b}[2Jon", 0)];
        let error = found(&named("python"), &hostile).unwrap_err();
        assert!(
            !error.contains('\u{1b}') && error.contains("on`"),
            "{error:?}"
        );
        let error = found(&named("x"), &[]).unwrap_err();
        assert_eq!(error, "no process matches `--name x`");
        let error = found(&named("zzz"), &processes).unwrap_err();
        assert_eq!(error, "no process matches `--name zzz`");
        let nobody = Choice {
            user: Some("nobdy".to_owned()),
            ..Choice::default()
        };
        assert!(
            found(&nobody, &processes)
                .unwrap_err()
                .contains("no such user")
        );
    }

    #[test]
    fn the_running_processes_include_neither_this_one_nor_its_ancestors() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        // Children of memtrace are its helpers.
        let pids: Vec<u32> = candidates().iter().map(|of| of.pid).collect();
        for pid in [std::process::id(), child.id(), 1] {
            assert!(!pids.contains(&pid), "{pid}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
