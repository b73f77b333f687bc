//! A storm of new processes (`targets/storm.c`), and how long each part of it was paused.

use crate::{Fixture, kernel::children, running::Running, targets, until};
use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::FileExt,
    path::PathBuf,
    process::Command,
    time::Duration,
};

/// Twice each kind of work.
const WORKERS: usize = 8;
/// Times that each worker must have run for its gaps to be meaningful.
const TIMES: u64 = 20;

/// The file that storm and test share, without a storm yet.
pub struct Storm {
    path: PathBuf,
    shared: File,
}

/// `struct worker` of the target.
#[derive(Clone, Copy, Debug)]
struct Worker {
    moment: u64,
    longest: u64,
    times: u64,
}

impl Storm {
    pub fn new(fixture: &Fixture) -> Self {
        let path = fixture.path("storm");
        fs::write(&path, [0; 4096]).unwrap();
        let shared = OpenOptions::new().read(true).write(true).open(&path);
        Self {
            shared: shared.unwrap(),
            path,
        }
    }

    /// The target and its arguments.
    #[track_caller]
    pub fn words(&self) -> [PathBuf; 3] {
        let workers = WORKERS.to_string().into();
        [targets::program("storm.c"), self.path.clone(), workers]
    }

    #[track_caller]
    pub fn start(&self) -> Running {
        let [program, file, workers] = self.words();
        let storm = Running::start(Command::new(program).arg(file).arg(workers));
        self.pid();
        storm
    }

    fn word(&self, index: u64) -> u64 {
        let mut word = [0; 8];
        self.shared.read_exact_at(&mut word, index * 8).unwrap();
        u64::from_ne_bytes(word)
    }

    /// The storm's pid, once it has begun.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        until("the storm's pid", || match self.word(1) {
            0 => None,
            pid => Some(pid as u32),
        })
    }

    /// All processes of the storm that stay: it and its workers.
    #[track_caller]
    pub fn pids(&self) -> Vec<u32> {
        let pid = self.pid();
        let mut pids = children(pid);
        assert_eq!(pids.len(), WORKERS, "workers");
        pids.push(pid);
        pids
    }

    fn workers(&self) -> [Worker; WORKERS] {
        std::array::from_fn(|index| {
            let word = |word| self.word(2 + index as u64 * 4 + word);
            Worker {
                moment: word(0),
                longest: word(2),
                times: word(3),
            }
        })
    }

    /// From now on gaps count.
    pub fn mark(&self) -> Mark<'_> {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `time` is written to.
        let read = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
        assert_eq!(read, 0);
        let moment = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        self.shared.write_all_at(&moment.to_ne_bytes(), 0).unwrap();
        Mark {
            storm: self,
            moment,
        }
    }
}

/// A moment of a storm.
pub struct Mark<'a> {
    storm: &'a Storm,
    moment: u64,
}

impl Mark<'_> {
    /// Waits until every worker has run often since, and returns the longest time that one of them
    /// did not.
    #[track_caller]
    pub fn longest_gap(&self) -> Duration {
        let workers = until("progress of every worker", || {
            let workers = self.storm.workers();
            let all = workers
                .iter()
                .all(|worker| worker.moment == self.moment && worker.times >= TIMES);
            all.then_some(workers)
        });
        let gaps = workers.map(|worker| worker.longest);
        Duration::from_nanos(gaps.into_iter().max().unwrap())
    }
}
