//! Options that choose running processes: the value of `--pid`, and those to use in its place.

use anyhow::bail;

use crate::{
    process::choose::{Choice, Chosen, listed},
    progress::say,
};

/// The names of the options.
pub(super) const OPTIONS: [&str; 6] = ["cgroup", "container", "pod", "unit", "name", "user"];

/// Options to use in place of `--pid`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct ChooseArgs {
    /// Choose the processes of a control group and of those below it: its folder, or a path as in `/proc/PID/cgroup`.
    /// If several of these options are given, a process must match all of them
    #[arg(long, value_name = "PATH", conflicts_with = "pid", help_heading = HEADING)]
    cgroup: Option<String>,
    /// Choose the processes of a container of Docker, Podman, containerd or CRI-O, without asking its daemon. An ID has
    /// at least its first 12 digits
    #[arg(long, value_name = "NAME|ID", conflicts_with = "pid", help_heading = HEADING)]
    container: Option<String>,
    /// Choose the processes of a Kubernetes pod of this node; the name may be `NAMESPACE/NAME`
    #[arg(long, value_name = "NAME|UID", conflicts_with = "pid", help_heading = HEADING)]
    pod: Option<String>,
    /// Choose the processes of a systemd unit; a name without a type is that of a service
    #[arg(long, value_name = "NAME", conflicts_with = "pid", help_heading = HEADING)]
    unit: Option<String>,
    /// Choose processes by name: as `ps -e` prints it, or the file name of the program or of
    /// the script that it runs (`train.py`)
    #[arg(long, value_name = "NAME", conflicts_with = "pid", help_heading = HEADING)]
    name: Option<String>,
    /// Choose the processes of a user, by effective user ID
    #[arg(long, value_name = "NAME|UID", conflicts_with = "pid", help_heading = HEADING)]
    user: Option<String>,
}

const HEADING: &str = "Choosing processes (all that are given must match)";

impl ChooseArgs {
    /// `None`: no option was given.
    pub(super) fn choice(&self) -> Option<Choice> {
        let Self {
            cgroup,
            container,
            pod,
            unit,
            name,
            user,
        } = self.clone();
        let choice = Choice {
            cgroup,
            container,
            pod,
            unit,
            name,
            user,
        };
        (choice != Choice::default()).then_some(choice)
    }

    /// The only process that matches, or `pid` if no option was given.
    ///
    /// # Errors
    /// None matches, or several do.
    pub(super) fn one(&self, pid: Option<u32>) -> anyhow::Result<Option<u32>> {
        let Some(choice) = self.choice() else {
            return Ok(pid);
        };
        match choice.find(true)?.as_slice() {
            [process] => Ok(Some(process.pid)),
            several => bail!(
                "{choice} matches {}; give one of them with `-p`",
                listed(several)
            ),
        }
    }
}

/// Parses a process ID.
pub(super) fn parse_pid(text: &str) -> Result<u32, String> {
    let pid = text.parse().ok().filter(|&pid| pid > 0);
    pid.ok_or_else(|| "expected a process ID such as 1234".to_owned())
}

/// Lists the chosen processes on standard error.
pub(super) fn announce(chosen: &[Chosen]) {
    say(&format!("chosen: {}", listed(chosen)));
}
