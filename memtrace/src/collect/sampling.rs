//! Memory figures of the traced processes, the machine and control groups, read once an interval,
//! and the cost of reading them.

use std::{
    collections::{BTreeSet, HashSet},
    fmt,
    path::PathBuf,
    time::{Duration, Instant},
};

use super::processes::Processes;
use crate::{
    bpf::Kernel,
    host::{
        Source,
        cgroup::{self, Cgroups, Level},
        system,
    },
    ledger::ProcessId,
    recording::{CgroupSample, MemorySample, SystemSample},
};

/// See the module.
#[derive(Debug)]
pub(super) struct Sampling {
    pub(super) source: Source,
    cgroups: Cgroups,
    pub(super) costs: Costs,
    /// Between two readings of the costly figures.
    pub(super) least_rest: Duration,
}

impl Sampling {
    pub(super) fn new(least_rest: Duration) -> Self {
        Self {
            source: Source::host(),
            cgroups: Cgroups::new(least_rest),
            costs: Costs::default(),
            least_rest,
        }
    }
}

/// One interval's.
pub(super) struct Samples {
    pub(super) memory: Vec<(ProcessId, MemorySample)>,
    pub(super) system: SystemSample,
    pub(super) cgroups: Vec<(u32, CgroupSample)>,
    pub(super) members: Vec<(ProcessId, u32)>,
}

/// Number of readings, and their total duration.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    count: u64,
    spent: Duration,
}

impl Cost {
    fn add(&mut self, count: u64, spent: Duration) {
        self.count += count;
        self.spent += spent;
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.spent.as_nanos().checked_div(self.count.into());
        write!(f, "{} of {} ns", self.count, each.unwrap_or(0))
    }
}

/// Cost of the samples so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Costs {
    process: Cost,
    /// With the figures that are read only as often as their cost allows.
    detailed: Cost,
    machine: Cost,
    cgroups: Cost,
}

/// One line: `NAME COUNT of TIME ns`, the time of one each.
impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            process,
            detailed,
            machine,
            cgroups,
        } = self;
        write!(
            f,
            "process {process}, with mappings {detailed}, machine {machine}, control groups {cgroups}"
        )
    }
}

/// Memory that has a limit.
pub(super) struct Limited {
    /// The place of its control group; `None`: that of the machine.
    pub(super) place: Option<PathBuf>,
    pub(super) level: Level,
    /// Numbers of the control groups that it is for; of the machine it is for all.
    pub(super) groups: Vec<u32>,
    /// It is for memtrace, too.
    pub(super) is_ours: bool,
}

impl Sampling {
    /// How full each limited memory is that traced processes use.
    pub(super) fn levels(&self, processes: &Processes) -> Vec<Limited> {
        let Self {
            source, cgroups, ..
        } = self;
        let Some((level, swap_free)) = system::level(source) else {
            return Vec::new();
        };
        let mut all = vec![Limited {
            place: None,
            level,
            groups: Vec::new(),
            is_ours: true,
        }];
        let own = cgroup::place(source, std::process::id());
        let numbers = processes.iter().filter_map(|(_, of)| of.cgroup);
        for number in numbers.collect::<BTreeSet<u32>>() {
            for (place, level) in cgroups.levels(source, number, swap_free) {
                let is_known = |of: &&mut Limited| of.place.as_ref() == Some(&place);
                match all.iter_mut().find(is_known) {
                    Some(known) => known.groups.push(number),
                    None => all.push(Limited {
                        is_ours: own.as_ref().is_some_and(|own| own.starts_with(&place)),
                        place: Some(place),
                        level,
                        groups: vec![number],
                    }),
                }
            }
        }
        all
    }

    /// Reads everything once, the costly parts only when they are due.
    pub(super) fn sample(&mut self, processes: &mut Processes, kernel: &mut dyn Kernel) -> Samples {
        let Self {
            source,
            cgroups,
            costs,
            least_rest: _,
        } = self;
        let mut memory = Vec::new();
        let mut members = Vec::new();
        let mut wanted = HashSet::new();
        for (tgid, process) in processes.iter_mut() {
            let id = process.row.id;
            let begin = Instant::now();
            let Ok((mut sample, detailed)) = process.sampler.sample() else {
                continue;
            };
            sample.threads_created = Some(kernel.threads_created(tgid));
            match detailed {
                true => costs.detailed.add(1, begin.elapsed()),
                false => costs.process.add(1, begin.elapsed()),
            }
            memory.push((id, sample));
            // It may be moved to another one.
            if detailed || process.cgroup.is_none() {
                let found = cgroups.number(source, tgid);
                if let Some(number) = found.filter(|_| found != process.cgroup) {
                    members.push((id, number));
                }
                process.cgroup = found;
            }
            wanted.extend(process.cgroup);
        }
        let (cgroups, spent) = cgroups.sample(source, &wanted);
        costs.cgroups.add(cgroups.len() as u64, spent);
        let begin = Instant::now();
        let system = system::sample(source);
        costs.machine.add(1, begin.elapsed());
        Samples {
            memory,
            system,
            cgroups,
            members,
        }
    }
}
