//! The user of a process (`--user`).

use std::{fs, path::Path};

use super::{candidate::Candidate, criterion::Criterion, error::ChooseError};

/// The effective user ID in a `/proc/PID/status` (`Uid:` real, effective, saved, of the file system).
pub(super) fn effective(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Processes of a user.
pub(super) struct OfUser {
    id: u32,
    /// `/etc/passwd`.
    users: String,
}

impl OfUser {
    pub(super) fn new(value: &str, root: &Path) -> Result<Self, ChooseError> {
        let users = fs::read(root.join("etc/passwd")).unwrap_or_default();
        let users = String::from_utf8_lossy(&users).into_owned();
        let by_name = entries(&users).find(|(name, _)| *name == value);
        let id = by_name.map(|(_, id)| id).or_else(|| value.parse().ok());
        match id {
            Some(id) => Ok(Self { id, users }),
            None => Err(ChooseError::NoSuchUser(value.to_owned())),
        }
    }
}

/// Name and ID of each line of `/etc/passwd` (passwd(5)).
fn entries(users: &str) -> impl Iterator<Item = (&str, u32)> {
    users.lines().filter_map(|line| {
        let mut fields = line.split(':');
        Some((fields.next()?, fields.nth(1)?.parse().ok()?))
    })
}

impl Criterion for OfUser {
    fn matches(&self, process: &Candidate) -> bool {
        process.user == self.id
    }

    fn names(&self, process: &Candidate) -> Vec<String> {
        let mut entries = entries(&self.users);
        let known = entries.find(|(_, id)| *id == process.user);
        vec![known.map_or_else(|| process.user.to_string(), |(name, _)| name.to_owned())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names_and_ids() {
        assert_eq!(effective("Name:\tsu\nUid:\t1000\t0\t0\t0\n"), Some(0));
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        let users = "root:x:0:0::/root:/bin/sh\nbroken\nwww:x:33:33::/:/bin/false\n";
        fs::write(root.path().join("etc/passwd"), users).unwrap();
        let process = |user| Candidate {
            user,
            ..Candidate::default()
        };
        for value in ["www", "33"] {
            let of = OfUser::new(value, root.path()).unwrap();
            assert!(of.matches(&process(33)), "{value}");
            assert!(!of.matches(&process(0)), "{value}");
            assert_eq!(of.names(&process(0)), ["root"]);
            assert_eq!(of.names(&process(1000)), ["1000"]);
        }
        assert!(
            OfUser::new("1000", root.path())
                .unwrap()
                .matches(&process(1000))
        );
        assert!(matches!(
            OfUser::new("nobody", root.path()),
            Err(ChooseError::NoSuchUser(_))
        ));
    }
}
