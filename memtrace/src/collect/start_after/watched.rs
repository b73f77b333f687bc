//! The processes that a recording waits for.

use tokio::time::{Duration, Instant};

use crate::{
    host::{Source, cgroup, system},
    process::{
        self,
        choose::{Choice, ChooseError, listed},
        job, memory,
    },
    progress::say,
};

/// How often the processes are chosen anew.
const CHOOSE: Duration = Duration::from_secs(1);

/// See the module.
pub(in super::super) struct Watched {
    pids: Vec<u32>,
    /// They are chosen anew while waiting.
    choice: Option<Choice>,
    chosen: Option<Instant>,
    /// Their descendants count too.
    with_descendants: bool,
}

impl Watched {
    /// # Errors
    /// The choice can never match a process.
    pub(in super::super) fn new(
        pids: Vec<u32>,
        choice: Option<Choice>,
        with_descendants: bool,
    ) -> Result<Self, ChooseError> {
        let mut watched = Self {
            pids,
            choice,
            chosen: None,
            with_descendants,
        };
        match watched.choose() {
            Err(error) if error.may_pass() => say(&format!("{error}; waiting for one")),
            result => result?,
        }
        Ok(watched)
    }

    pub(in super::super) fn into_pids(self) -> Vec<u32> {
        self.pids
    }

    /// Chooses the processes anew, and lists them if they are others.
    fn choose(&mut self) -> Result<(), ChooseError> {
        let Some(choice) = &self.choice else {
            return Ok(());
        };
        self.chosen = Some(Instant::now());
        let before = std::mem::take(&mut self.pids);
        let chosen = choice.find(self.with_descendants)?;
        self.pids = chosen.iter().map(|of| of.pid).collect();
        if self.pids != before {
            say(&format!("chosen: {}", listed(&chosen)));
        }
        Ok(())
    }

    /// Looks at the processes again; false if none of them runs, and none is waited for.
    pub(super) fn look(&mut self) -> bool {
        if self.chosen.is_some_and(|at| at.elapsed() >= CHOOSE) {
            // Such processes may start later.
            let _ = self.choose();
        }
        self.pids.retain(|&pid| !process::has_ended(pid));
        self.choice.is_some() || !self.pids.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pids.is_empty()
    }

    /// The processes, and their descendants if these count too.
    pub(super) fn all(&self) -> Vec<u32> {
        let mut all = self.pids.clone();
        if self.with_descendants {
            all.extend(job::descendants(&self.pids));
        }
        all
    }

    /// Resident memory, bytes; pages that processes share count for each.
    pub(super) fn resident(&self) -> u64 {
        let all = self.all().into_iter();
        let identities = all.filter_map(|pid| memory::identity(pid).ok());
        identities.map(|identity| identity.rss_bytes).sum()
    }

    /// The memory that the processes may use, bytes, and what limits it.
    pub(super) fn limit(&self, source: &Source) -> Option<(u64, &'static str)> {
        let limits = self.pids.iter();
        let limits = limits.filter_map(|&pid| cgroup::memory_limit(source, pid));
        let group = limits
            .min()
            .map(|limit| (limit, "the limit of the control group"));
        let machine = system::sample(source).mem_total;
        let machine = machine.map(|total| (total, "the memory of the machine"));
        group
            .into_iter()
            .chain(machine)
            .min_by_key(|(limit, _)| *limit)
    }
}
