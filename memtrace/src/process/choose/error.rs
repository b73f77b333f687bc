//! The reasons why a choice has no process, as the user reads them.

/// Why no process can be chosen.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChooseError {
    #[error("no process matches `{option} {value}`{}", nearest(.near))]
    None {
        option: &'static str,
        value: String,
        near: Vec<String>,
    },
    #[error("no process matches `--unit {0}`: no process is in a unit; does systemd run here?")]
    NoUnits(String),
    #[error("no process matches all of {}", .0.join(" and "))]
    NotTogether(Vec<String>),
    #[error("`--user {0}`: `/etc/passwd` has no such user; a number is taken as the user ID")]
    NoSuchUser(String),
    #[error(
        "`--cgroup {0}` is the root of a hierarchy, in which all processes are; give a group below it"
    )]
    RootGroup(String),
    #[error("`--cgroup {0}`: there is no such control group")]
    NoSuchGroup(String),
}

impl ChooseError {
    /// Whether a process that starts later may match.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::None { .. } | Self::NoUnits(_) | Self::NotTogether(_) | Self::NoSuchGroup(_) => {
                true
            }
            Self::NoSuchUser(_) | Self::RootGroup(_) => false,
        }
    }
}

fn nearest(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!("; nearest: {}", near.join(", ")),
    }
}
