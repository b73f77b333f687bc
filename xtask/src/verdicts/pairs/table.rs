//! The pairs, and the expected answers for those that leak.

use super::{super::Frame, program::source};
use crate::targets::{marks, mode};
use anyhow::Result;
use std::{fmt, path::Path};

/// A program with a line that leaks.
pub(super) struct Pair {
    pub(super) name: &'static str,
    /// Files of `tests/targets/pairs/`; the first is started.
    pub(super) sources: &'static [&'static str],
    /// Which of its faults, if it has several.
    pub(super) fault: Option<&'static str>,
    pub(super) needs_venv: bool,
    /// The class that the process must get with the fault.
    pub(super) expected: &'static str,
    /// `false`: a state that is not a leak, with no line to name and nothing to compare with.
    pub(super) has_control: bool,
    /// A function that allocates the kept memory. Its lines have the comment `allocates`, which may
    /// name their faults.
    allocates: &'static str,
    /// The function that puts it into a container, in a line with the comment `keeps`; `None`: no
    /// container grows.
    pub(super) keeps: Option<&'static str>,
}

const fn pair(
    name: &'static str,
    sources: &'static [&'static str],
    allocates: &'static str,
    keeps: Option<&'static str>,
) -> Pair {
    Pair {
        name,
        sources,
        fault: None,
        needs_venv: false,
        expected: "leak",
        has_control: true,
        allocates,
        keeps,
    }
}

/// One that needs numpy or PyTorch.
const fn in_venv(
    name: &'static str,
    sources: &'static [&'static str],
    fault: Option<&'static str>,
    allocates: &'static str,
    keeps: Option<&'static str>,
) -> Pair {
    Pair {
        fault,
        needs_venv: true,
        ..pair(name, sources, allocates, keeps)
    }
}

/// One whose tensors are on the GPU, or in page-locked memory.
const fn on_gpu(
    name: &'static str,
    sources: &'static [&'static str],
    fault: &'static str,
    expected: &'static str,
    allocates: &'static str,
    keeps: &'static str,
) -> Pair {
    Pair {
        expected,
        ..in_venv(name, sources, Some(fault), allocates, Some(keeps))
    }
}

/// A state of a GPU's memory.
const fn state(
    name: &'static str,
    sources: &'static [&'static str],
    expected: &'static str,
) -> Pair {
    Pair {
        expected,
        has_control: false,
        ..in_venv(name, sources, None, "", None)
    }
}

/// Programs with thousands of sites: a recording with short intervals takes up to 1 MB, too much for a snapshot.
const LARGE: [&str; 3] = [
    "torch_training.py",
    "torch_gpu_training.py",
    "torch_finetuning.py",
];

const TRAINING: &[&str] = &["torch_training.py"];
const SERVER: &[&str] = &["torch_server.py"];
const GPU_TRAINING: &[&str] = &["torch_gpu_training.py"];
const FINE_TUNING: &[&str] = &["torch_finetuning.py"];
const RANKING: &[&str] = &["torch_ranking.py"];

pub(super) const PAIRS: &[Pair] = &[
    pair("c-connections", &["connections.c"], "open_connection", None),
    pair("c-arena", &["arena.c"], "arena_grow", None),
    pair("c-pool", &["pool.c"], "pool_grow", None),
    pair("c-parser", &["parser.c"], "read_body", None),
    pair("c-reload", &["reload.c"], "set_label", None),
    pair(
        "cpp-history",
        &["history.cc"],
        "make_reply",
        Some("History::record"),
    ),
    pair(
        "cpp-sessions",
        &["sessions.cc"],
        "load_profile",
        Some("Sessions::log_in"),
    ),
    pair(
        "cpp-thumbnails",
        &["thumbnails.cc"],
        "render",
        Some("Cache::get"),
    ),
    pair("cpp-cycle", &["cycle.cc"], "open_session", None),
    pair(
        "cpp-jobs",
        &["jobs.cc"],
        "make_job",
        Some("Dispatcher::retry_later"),
    ),
    pair(
        "cpp-listeners",
        &["listeners.cc"],
        "handle",
        Some("Bus::subscribe"),
    ),
    pair("rust-audit", &["audit.rs"], "render", Some("log")),
    pair("rust-carts", &["carts.rs"], "fill_cart", Some("open")),
    pair("rust-document", &["document.rs"], "make_node", None),
    pair(
        "py-asyncio",
        &["asyncio_server.py"],
        "Server.connected",
        Some("Server.connected"),
    ),
    pair(
        "py-workers",
        &["workers.py"],
        "compress",
        Some("Results.add"),
    ),
    pair(
        "py-samples",
        &["samples.py"],
        "answer",
        Some("Statistics.record"),
    ),
    pair(
        "py-registry",
        &["registry.py"],
        "Request.__init__",
        Some("Request.__init__"),
    ),
    pair(
        "py-log-handler",
        &["log_handler.py"],
        "read_body",
        Some("Recent.emit"),
    ),
    pair(
        "py-callbacks",
        &["callbacks.py"],
        "render",
        Some("Loop.when_done"),
    ),
    pair(
        "py-cursors",
        &["cursors.py"],
        "rows",
        Some("Database.query"),
    ),
    pair(
        "py-thread-local",
        &["thread_local.py"],
        "load",
        Some("look_up"),
    ),
    pair(
        "py-audit-queue",
        &["audit_queue.py"],
        "describe",
        Some("Audit.submit"),
    ),
    pair(
        "py-interning",
        &["interning.py"],
        "host",
        Some("Names.intern"),
    ),
    pair(
        "py-extension",
        &["encoder.py", "extension.c"],
        "encode",
        None,
    ),
    pair("py-memoized", &["memoized.py"], "report", Some("handle")),
    pair(
        "py-errors",
        &["errors.py"],
        "Service.parse",
        Some("Service.failed"),
    ),
    in_venv(
        "py-numpy",
        &["arrays.py"],
        None,
        "Model.predict",
        Some("Service.record"),
    ),
    in_venv(
        "torch-server",
        SERVER,
        None,
        "Classifier.forward",
        Some("Service.log"),
    ),
    in_venv(
        "torch-server-grad",
        SERVER,
        Some("grad"),
        "",
        Some("Service.log"),
    ),
    in_venv(
        "torch-losses",
        TRAINING,
        Some("losses"),
        "",
        Some("Metrics.update"),
    ),
    in_venv("torch-total", TRAINING, Some("total"), "", None),
    in_venv(
        "torch-outputs",
        TRAINING,
        Some("outputs"),
        "Net.forward",
        Some("validate"),
    ),
    in_venv(
        "torch-closure",
        TRAINING,
        Some("closure"),
        "train_one_epoch",
        Some("train_one_epoch"),
    ),
    in_venv("torch-cycles", &["torch_cycles.py"], None, "handle", None),
    in_venv(
        "torch-loader",
        &["torch_loader.py"],
        None,
        "Cached.decode",
        Some("Cached.__getitem__"),
    ),
    in_venv(
        "torch-hook",
        FINE_TUNING,
        Some("hook"),
        "Tagger.forward",
        Some("watch.<locals>.hook"),
    ),
    in_venv(
        "torch-retain",
        FINE_TUNING,
        Some("retain"),
        "",
        Some("Trainer.step"),
    ),
    in_venv(
        "torch-memo",
        RANKING,
        Some("memo"),
        "Encoder.encode",
        Some("Service.rank"),
    ),
    in_venv(
        "torch-errors",
        RANKING,
        Some("errors"),
        "",
        Some("Service.handle"),
    ),
    on_gpu(
        "torch-gpu-server",
        SERVER,
        "cuda",
        "gpu-leak",
        "Classifier.forward",
        "Service.log",
    ),
    on_gpu(
        "torch-gpu-losses",
        GPU_TRAINING,
        "losses",
        // Some 600 bytes of the GPU a step, and three times as much of the graph on the heap.
        "leak",
        "",
        "Trainer.step",
    ),
    on_gpu(
        "torch-gpu-noback",
        GPU_TRAINING,
        "noback",
        "gpu-leak",
        "",
        "Trainer.check",
    ),
    on_gpu(
        "torch-gpu-pinned",
        GPU_TRAINING,
        "pinned",
        "pinned",
        "Loader.load",
        "Loader.load",
    ),
    state(
        "torch-fragmentation",
        &["torch_fragmentation.py"],
        "gpu-out-of-memory",
    ),
    state("torch-unloaded", &["torch_unloaded.py"], "gpu-unused"),
];

/// The lines of a pair's sources that are meant.
pub(super) struct Marks {
    allocates: (&'static str, Vec<(&'static str, u32)>),
    keeps: (&'static str, Vec<(&'static str, u32)>),
    sources: &'static [&'static str],
}

impl Pair {
    /// With the fault and, if there is a control, without it.
    pub(super) fn modes(&self) -> impl Iterator<Item = bool> {
        [true, false]
            .into_iter()
            .filter(|leaks| *leaks || self.has_control)
    }

    /// Seconds and interval of the recording of its first screen.
    pub(super) fn snapshot_length(&self) -> (f64, Option<&'static str>) {
        match self.sources.iter().any(|source| LARGE.contains(source)) {
            true => (30.0, Some("1s")),
            false => (20.0, None),
        }
    }

    /// The name of one of them, of its recording and its snapshot.
    pub(super) fn name_of(&self, leaks: bool) -> String {
        match self.has_control {
            true => format!("{}-{}", self.name, mode(leaks)),
            false => self.name.to_owned(),
        }
    }

    /// Reads the sources for the comments.
    pub(super) fn marks(&self) -> Result<Marks> {
        let marked = |word| -> Result<Vec<(&'static str, u32)>> {
            let mut found = Vec::new();
            for &name in self.sources {
                let lines = marks::lines(&source(name), word, self.fault)?;
                found.extend(lines.into_iter().map(|line| (name, line)));
            }
            Ok(found)
        };
        Ok(Marks {
            allocates: (self.allocates, marked("allocates")?),
            keeps: (self.keeps.unwrap_or_default(), marked("keeps")?),
            sources: self.sources,
        })
    }
}

impl Marks {
    /// Whether a frame is in the pair's own sources.
    pub(super) fn is_own(&self, frame: &Frame) -> bool {
        let file = frame
            .file
            .as_deref()
            .and_then(|file| Path::new(file).file_name());
        self.sources
            .iter()
            .any(|source| file.is_some_and(|file| file == *source))
    }

    pub(super) fn allocates(&self, frame: &Frame) -> bool {
        is_at(frame, &self.allocates)
    }

    pub(super) fn keeps(&self, frame: &Frame) -> bool {
        is_at(frame, &self.keeps)
    }
}

fn is_at(frame: &Frame, (function, lines): &(&str, Vec<(&'static str, u32)>)) -> bool {
    let of_function = frame
        .function
        .as_ref()
        .is_some_and(|of| of.contains(function));
    let file = frame
        .file
        .as_deref()
        .and_then(|file| Path::new(file).file_name());
    of_function
        && lines
            .iter()
            .any(|(name, line)| file.is_some_and(|of| of == *name) && frame.line == Some(*line))
}

impl fmt::Display for Frame {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.function.as_deref().unwrap_or("?"))?;
        let Some(file) = self.file.as_deref().map(Path::new) else {
            return Ok(());
        };
        let file = file.file_name().unwrap_or_default().to_string_lossy();
        write!(out, " {file}:{}", self.line.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::PAIRS;

    #[test]
    fn the_sources_mark_the_lines_that_are_meant() {
        for pair in PAIRS {
            let marks = pair.marks().unwrap();
            let allocates = !marks.allocates.1.is_empty();
            assert_eq!(allocates, pair.has_control, "{}", pair.name);
            let keeps = !marks.keeps.1.is_empty();
            assert_eq!(keeps, pair.keeps.is_some(), "{}", pair.name);
        }
    }
}
