//! Asks `nvidia-smi`, which is installed with NVIDIA's driver, for the memory that processes have on GPUs. It asks the
//! management library (NVML), which memtrace cannot load itself: it may be linked statically, and a driver that hangs
//! or crashes must not take the recording with it. A thread runs it, so no interval waits for an answer.

use crate::helper;
use std::{
    env,
    ffi::OsStr,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

const PROGRAM: &str = "nvidia-smi";

/// After an answer, it rests for this many times the time that it took: the questions take 5 % of the time.
const REST: u32 = 19;

const MIB: u64 = 1 << 20;

/// How long the end of a recording waits for the last answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// A GPU of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gpu {
    /// By the order on the bus.
    pub(super) number: u32,
    /// `GPU-` and a UUID.
    pub(super) uuid: String,
    /// Bytes of memory that it has, if known.
    pub(super) capacity: Option<u64>,
    /// Processes that compute on it, with the bytes that each uses; those whose use is not known are left out.
    pub(super) processes: Vec<(u32, u64)>,
}

/// The state of all GPUs, and how long it took to get it.
struct Answer {
    gpus: Vec<Gpu>,
    took: Duration,
}

/// The thread that asks.
pub(super) struct NvidiaSmi {
    questions: Sender<()>,
    answers: Receiver<Answer>,
    is_asked: bool,
    /// When to ask again.
    next: Instant,
    /// Between two questions.
    least_rest: Duration,
}

impl NvidiaSmi {
    /// `None`: it is not installed.
    pub(super) fn start(least_rest: Duration) -> Option<Self> {
        let program = find(&env::var_os("PATH")?).or_else(|| {
            tracing::debug!("no memory of whole GPU processes: no `{PROGRAM}` in PATH");
            None
        })?;
        let (questions, asked) = channel();
        let (answer, answers) = channel();
        thread::Builder::new()
            .name(PROGRAM.to_owned())
            .spawn(move || answer_all(&program, &asked, &answer))
            .ok()?;
        Some(Self {
            questions,
            answers,
            is_asked: false,
            next: Instant::now(),
            least_rest,
        })
    }

    /// The answer to the last question, once; asks the next one when it is due.
    pub(super) fn answer(&mut self) -> Option<Vec<Gpu>> {
        let gpus = self.wait(Duration::ZERO);
        if Instant::now() >= self.next {
            self.ask();
        }
        gpus
    }

    /// As [`Self::answer`], but waits for it a little.
    pub(super) fn last_answer(&mut self) -> Option<Vec<Gpu>> {
        self.ask();
        self.wait(PATIENCE)
    }

    fn ask(&mut self) {
        self.is_asked = self.is_asked || self.questions.send(()).is_ok();
    }

    fn wait(&mut self, limit: Duration) -> Option<Vec<Gpu>> {
        if !self.is_asked {
            return None;
        }
        match self.answers.recv_timeout(limit) {
            Ok(Answer { gpus, took }) => {
                self.is_asked = false;
                self.next = Instant::now() + (took * REST).max(self.least_rest);
                Some(gpus)
            }
            // Nothing will be answered any more; the thread has said why.
            Err(RecvTimeoutError::Disconnected) => {
                self.is_asked = false;
                None
            }
            Err(RecvTimeoutError::Timeout) => None,
        }
    }
}

/// The program in one of these folders. A relative one would mean whatever folder memtrace, as root, was started in.
fn find(path: &OsStr) -> Option<PathBuf> {
    let folders = env::split_paths(path).filter(|folder| folder.is_absolute());
    let mut programs = folders.map(|folder| folder.join(PROGRAM));
    programs.find(|program| program.is_file())
}

/// Answers until nobody asks any more, or no driver answers.
fn answer_all(program: &Path, questions: &Receiver<()>, answers: &Sender<Answer>) {
    if let Err(error) = helper::leave_descriptors() {
        tracing::debug!("no memory of whole GPU processes: {error}");
        return;
    }
    let mut known = None;
    while questions.recv().is_ok() {
        let begin = Instant::now();
        let all = match &known {
            Some(gpus) => gpus,
            None => match run(program, "--query-gpu=index,uuid,memory.total") {
                Some(text) => known.insert(gpus(&text)),
                None => return,
            },
        };
        let mut gpus: Vec<Gpu> = all.clone();
        if let Some(text) = run(program, "--query-compute-apps=pid,gpu_uuid,used_memory") {
            add_processes(&mut gpus, &text);
        }
        let took = begin.elapsed();
        if answers.send(Answer { gpus, took }).is_err() {
            return;
        }
    }
}

/// Output for one query, a line for each GPU or process.
fn run(program: &Path, query: &str) -> Option<String> {
    let output = Command::new(program)
        .args([query, "--format=csv,noheader,nounits"])
        .stdin(Stdio::null())
        // Ctrl-C in the terminal ends the recording, whose last interval needs the answer.
        .process_group(0)
        .output();
    match output {
        Ok(output) if output.status.success() => {
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        // It prints its errors to standard output.
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            let (status, said) = (output.status, said.trim());
            tracing::debug!(
                "no memory of whole GPU processes: `{PROGRAM} {query}`: {status}: {said}"
            );
            None
        }
        Err(error) => {
            tracing::debug!("no memory of whole GPU processes: `{PROGRAM}`: {error}");
            None
        }
    }
}

/// Lines `INDEX, UUID, MIB`.
fn gpus(text: &str) -> Vec<Gpu> {
    let gpu = |line| {
        let [number, uuid, capacity] = fields(line)?;
        Some(Gpu {
            number: number.parse().ok()?,
            uuid: uuid.to_owned(),
            capacity: bytes(capacity),
            processes: Vec::new(),
        })
    };
    text.lines().filter_map(gpu).collect()
}

/// Lines `PID, UUID, MIB`.
fn add_processes(gpus: &mut [Gpu], text: &str) {
    for [pid, uuid, used] in text.lines().filter_map(fields) {
        let gpu = gpus.iter_mut().find(|gpu| gpu.uuid == uuid);
        if let (Some(gpu), Ok(pid), Some(used)) = (gpu, pid.parse(), bytes(used)) {
            gpu.processes.push((pid, used));
        }
    }
}

fn fields<const N: usize>(line: &str) -> Option<[&str; N]> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    fields.try_into().ok()
}

/// A number of MiB, unless it is `[N/A]` or the like.
fn bytes(field: &str) -> Option<u64> {
    field.parse::<u64>().ok()?.checked_mul(MIB)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    const UUID: &str = "GPU-5b8ebd1d-0c53-6f2f-2d4e-bd9a7a0dbfb8";

    #[test]
    fn gpus_and_their_processes_are_read() {
        let mut all = gpus(&format!("0, {UUID}, 81559\n1, GPU-1, [N/A]\nNo devices\n"));
        add_processes(
            &mut all,
            &format!("1234, {UUID}, 516\n99, {UUID}, [N/A]\n7, GPU-1, 0\n8, GPU-2, 1\n"),
        );
        let gpu = |number, uuid: &str, capacity, process| Gpu {
            number,
            uuid: uuid.to_owned(),
            capacity,
            processes: vec![process],
        };
        let first = gpu(0, UUID, Some(81_559 << 20), (1234, 516 << 20));
        assert_eq!(all, [first, gpu(1, "GPU-1", None, (7, 0))]);
    }

    /// A folder with a stand-in.
    fn stand_in(script: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(PROGRAM);
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        folder
    }

    fn started(folder: &tempfile::TempDir) -> NvidiaSmi {
        let program = find(folder.path().as_os_str()).unwrap();
        let (questions, asked) = channel();
        let (answer, answers) = channel();
        thread::spawn(move || answer_all(&program, &asked, &answer));
        NvidiaSmi {
            questions,
            answers,
            is_asked: false,
            next: Instant::now(),
            least_rest: Duration::from_secs(3600),
        }
    }

    #[test]
    fn a_question_is_answered_once_and_the_next_one_waits() {
        let folder = stand_in(
            "case $1 in *query-gpu*) echo '0, GPU-0, 10' ;; *) echo '5, GPU-0, 3' ;; esac",
        );
        let mut smi = started(&folder);
        assert_eq!(smi.answer(), None);
        let deadline = Instant::now() + Duration::from_secs(60);
        let gpus = loop {
            assert!(Instant::now() < deadline);
            if let Some(gpus) = smi.answer() {
                break gpus;
            }
        };
        assert_eq!(gpus[0].processes, [(5, 3 << 20)]);
        assert_eq!(smi.answer(), None);
        assert!(!smi.is_asked);
        // The end does not rest.
        smi.ask();
        let answer = smi.wait(Duration::from_secs(60));
        assert_eq!(answer.unwrap(), gpus);
    }

    #[test]
    fn without_a_driver_nothing_is_waited_for() {
        let mut smi = started(&stand_in("echo 'NVIDIA-SMI has failed'; exit 9"));
        smi.ask();
        assert_eq!(smi.wait(Duration::from_secs(60)), None);
        assert!(!smi.is_asked);
    }

    #[test]
    fn only_absolute_folders_of_path_are_searched() {
        let folder = stand_in("");
        let path = format!(".::bin:{}", folder.path().display());
        let found = find(path.as_ref()).unwrap();
        assert_eq!(found, folder.path().join(PROGRAM));
        assert_eq!(find("".as_ref()), None);
    }
}
