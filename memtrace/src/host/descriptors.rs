//! What most open descriptors of a process are: if they leak, these are the ones.

use std::{collections::HashMap, fs, os::unix::fs::MetadataExt, path::Path};

use super::{Facts, Source};
use crate::units::size;

/// Most descriptors that are looked at: the kernel renders the path of each.
const AT_MOST: usize = 4096;

/// Fewer of one kind are no kind worth a name.
const LEAST: u64 = 20;

/// Bytes of a block of `stat`.
const BLOCK: u64 = 512;

#[derive(Default)]
struct Kind {
    count: u64,
    /// Memory behind them.
    bytes: u64,
}

/// Adds `descriptors.most`: the kind that most open descriptors of a process have.
pub(super) fn facts(source: &Source, tgid: u32, facts: &mut Facts) {
    let folder = source.path(&format!("proc/{tgid}/fd"));
    let mut kinds: HashMap<String, Kind> = HashMap::new();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.take(AT_MOST) {
        let Ok(target) = fs::read_link(entry.path()) else {
            continue;
        };
        let kind = kinds.entry(kind(&target)).or_default();
        kind.count += 1;
        // The files of other file systems are not asked: one may never answer.
        if is_memory(&target)
            && let Ok(file) = fs::metadata(entry.path())
        {
            kind.bytes += file.blocks() * BLOCK;
        }
    }
    let most = kinds.into_iter().max_by_key(|(_, of)| of.count);
    let most = most.filter(|(_, of)| of.count >= LEAST);
    let most = most.map(|(name, Kind { count, bytes })| match bytes {
        0 => format!("{count} × {name}"),
        bytes => format!("{count} × {name}, {} of memory", size(bytes)),
    });
    facts.add("descriptors.most", most);
}

/// Whether a file is one in memory, by its path.
fn is_memory(target: &Path) -> bool {
    ["/memfd:", "/dev/shm/"].iter().any(|begin| {
        let target = target.to_string_lossy();
        target.starts_with(begin)
    })
}

/// The path of a file, with `#` for each number in it: `/memfd:frame-#-#`, `socket`.
fn kind(target: &Path) -> String {
    let target = target.to_string_lossy();
    let target = target.strip_suffix(" (deleted)").unwrap_or(&target);
    // `socket:[1234]`; but `anon_inode:[eventpoll]`.
    if let Some((kind @ ("socket" | "pipe"), _)) = target.split_once(":[") {
        return kind.to_owned();
    }
    let mut kind = String::with_capacity(target.len());
    for c in target.chars() {
        match c.is_ascii_digit() {
            true if kind.ends_with('#') => {}
            true => kind.push('#'),
            false => kind.push(c),
        }
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        host::{Redactor, fixture::tree},
        ledger::ProcessId,
    };

    #[test]
    fn numbers_do_not_make_another_kind() {
        for (target, expected) in [
            ("/memfd:frame-12-3 (deleted)", "/memfd:frame-#-#"),
            ("socket:[1234]", "socket"),
            ("pipe:[1]", "pipe"),
            ("anon_inode:[eventfd]", "anon_inode:[eventfd]"),
            ("/var/log/2026/a.log", "/var/log/#/a.log"),
        ] {
            assert_eq!(kind(Path::new(target)), expected);
        }
    }

    #[test]
    fn the_most_frequent_kind_is_named() {
        let (folder, source) = tree(&[("proc/7/status", "")]);
        let fds = folder.path().join("proc/7/fd");
        fs::create_dir_all(&fds).unwrap();
        let link =
            |n: u32, target: &str| std::os::unix::fs::symlink(target, fds.join(n.to_string()));
        let redactor = Redactor::default();
        let most = || {
            let mut facts = Facts::new(Some(ProcessId(1)), &redactor);
            super::facts(&source, 7, &mut facts);
            facts.value("descriptors.most").map(str::to_owned)
        };
        for n in 0..19 {
            link(n, &format!("socket:[{n}]")).unwrap();
        }
        assert_eq!(most(), None, "too few");
        for n in 20..50 {
            link(n, &format!("/srv/spool/{n}.tmp")).unwrap();
        }
        assert_eq!(most().as_deref(), Some("30 × /srv/spool/#.tmp"));
    }
}
