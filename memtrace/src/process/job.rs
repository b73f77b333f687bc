//! The job of a process: the processes it has started, directly or not, that are still alive.

use std::{
    collections::{HashMap, HashSet},
    process,
};

use procfs::process::all_processes;

/// Living descendants of `roots`, parents before their children. Excluded are memtrace itself, its
/// own ancestors (a shell, sudo), and its children.
pub(crate) fn descendants(roots: &[u32]) -> Vec<u32> {
    let mut parents = HashMap::new();
    for process in all_processes().into_iter().flatten().flatten() {
        // A process that has ended meanwhile is skipped. Its name may be any bytes: `stat` is read
        // lossily.
        if let Ok(stat) = process.stat()
            && let (Ok(pid), Ok(parent)) = (u32::try_from(stat.pid), u32::try_from(stat.ppid))
        {
            parents.insert(pid, parent);
        }
    }
    let mut found = below(roots, &parents, process::id());
    found.retain(|&pid| !super::has_ended(pid));
    found
}

/// As [`descendants`], from the parent of each process; `own` is memtrace.
fn below(roots: &[u32], parents: &HashMap<u32, u32>, own: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for (&pid, &parent) in parents {
        children.entry(parent).or_default().push(pid);
    }
    let mut above = HashSet::new();
    let mut next = Some(own);
    while let Some(pid) = next.filter(|&pid| above.insert(pid)) {
        next = parents.get(&pid).copied();
    }
    let mut seen: HashSet<u32> = roots.iter().copied().collect();
    let mut found = roots.to_vec();
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        at += 1;
        let mut of_parent = children.remove(&parent).unwrap_or_default();
        of_parent.sort_unstable();
        found.extend(
            of_parent
                .into_iter()
                .filter(|&pid| pid != own && seen.insert(pid)),
        );
    }
    found.retain(|pid| !roots.contains(pid) && !above.contains(pid));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_excludes_memtrace_and_its_ancestors() {
        // A shell (10) has started a server (20) with two workers, one of which has a child, and
        // sudo (30), which runs memtrace (31), which has a holder (32).
        let parents = HashMap::from([
            (10, 1),
            (20, 10),
            (21, 20),
            (22, 20),
            (23, 22),
            (30, 10),
            (31, 30),
            (32, 31),
            (40, 1),
        ]);
        assert_eq!(below(&[20], &parents, 31), [21, 22, 23]);
        assert_eq!(below(&[10], &parents, 31), [20, 21, 22, 23]);
        assert_eq!(below(&[20, 22], &parents, 31), [21, 23]);
        assert!(below(&[40], &parents, 31).is_empty());
    }

    #[test]
    fn an_ended_child_is_not_part_of_the_job() {
        let mut shell = process::Command::new("sh");
        let mut shell = shell.args(["-c", "true & exec sleep 60"]).spawn().unwrap();
        let zombies = || {
            let stats = all_processes().unwrap().flatten();
            let stats = stats.filter_map(|process| process.stat().ok());
            let of_shell = stats.filter(|stat| stat.ppid == shell.id().cast_signed());
            of_shell.filter(|stat| stat.state == 'Z').count()
        };
        while zombies() == 0 {
            std::thread::yield_now();
        }
        assert!(descendants(&[shell.id()]).is_empty());
        shell.kill().unwrap();
        shell.wait().unwrap();
    }
}
