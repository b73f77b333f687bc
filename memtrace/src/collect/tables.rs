//! Compiles unwind tables in the background: a file is queued when it is first seen, and a process
//! that needs its table waits for it, for a bounded time.

use std::{
    collections::{HashSet, VecDeque},
    fs::File,
    os::unix::fs::MetadataExt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use crate::{
    bpf::rows::Loader,
    file::FileBytes,
    unwind::{Cache, Table, trampoline},
};

/// How long attaching waits for unwind tables; the largest programs take a few seconds.
pub(super) const AT_ATTACH: Duration = Duration::from_secs(20);

/// A file whose table is needed.
#[derive(Debug)]
pub(super) struct Job {
    /// Its number in frames.
    pub(super) exec: u32,
    pub(super) path: String,
    pub(super) file: File,
    pub(super) build_id: Option<String>,
}

/// Each takes memory for the file that it compiles.
const MOST_THREADS: usize = 8;

/// Handle of the threads that compile. They end when it is dropped.
pub(super) struct Tables {
    shared: Arc<Shared>,
}

struct Shared {
    loader: Arc<dyn Loader>,
    cache: Option<Cache>,
    state: Mutex<State>,
    changed: Condvar,
    news: Arc<Notify>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    /// Queued, or being compiled.
    unfinished: HashSet<u32>,
    closed: bool,
}

impl State {
    fn are_done(&self, execs: &[u32]) -> bool {
        !execs.iter().any(|exec| self.unfinished.contains(exec))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    /// Starts the threads.
    ///
    /// # Errors
    /// Not even one could be started.
    pub(super) fn start(loader: Arc<dyn Loader>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            loader,
            cache: Cache::open(),
            state: Mutex::default(),
            changed: Condvar::new(),
            news: Arc::default(),
        });
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let count = count.min(MOST_THREADS);
        for number in 0..count.min(8) {
            let shared = Arc::clone(&shared);
            let started = std::thread::Builder::new()
                .name("memtrace-tables".to_owned())
                .spawn(move || work(&shared));
            match started {
                Err(error) if number == 0 => return Err(error),
                _ => {}
            }
        }
        Ok(Self { shared })
    }

    /// Queues a file.
    pub(super) fn add(&self, job: Job) {
        let mut state = self.shared.state();
        state.unfinished.insert(job.exec);
        state.queue.push_back(job);
        self.shared.changed.notify_all();
    }

    /// Whether the tables of these files are loaded, or cannot be.
    pub(super) fn are_done(&self, execs: &[u32]) -> bool {
        self.shared.state().are_done(execs)
    }

    /// Notified when a table is done.
    pub(super) fn news(&self) -> Arc<Notify> {
        Arc::clone(&self.shared.news)
    }

    /// Waits until the tables of these files are loaded (or cannot be), for `at_most`. False on
    /// timeout.
    pub(super) fn wait(&self, execs: &[u32], at_most: Duration) -> bool {
        let deadline = Instant::now() + at_most;
        let mut state = self.shared.state();
        while !state.are_done(execs) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self
                .shared
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        true
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.changed.notify_all();
    }
}

fn work(shared: &Shared) {
    let mut state = shared.state();
    while !state.closed {
        let Some(job) = state.queue.pop_front() else {
            state = shared
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(state);
        let finished = Finished(shared, job.exec);
        compile(shared, &job);
        drop(finished);
        state = shared.state();
    }
}

/// Marks a file's table as done when it is dropped, even after a failure: threads wait for it.
struct Finished<'a>(&'a Shared, u32);

impl Drop for Finished<'_> {
    fn drop(&mut self) {
        let Self(shared, exec) = *self;
        shared.state().unfinished.remove(&exec);
        shared.changed.notify_all();
        shared.news.notify_one();
    }
}

/// A file without usable tables is walked along frame pointers, which are checked; one that cannot
/// be handed over ends the walk.
fn compile(shared: &Shared, job: &Job) {
    let table = if job.path == trampoline::NAME {
        Some(Table::of_trampoline())
    } else {
        cached(shared, job).or_else(|| compiled(shared, job))
    };
    if let Err(error) = shared.loader.load(job.exec, table.as_ref()) {
        tracing::warn!(
            "stacks end in `{}`: its unwind table cannot be loaded: {error}",
            job.path
        );
    }
}

fn cached(shared: &Shared, job: &Job) -> Option<Table> {
    shared.cache.as_ref()?.get(&cache_key(job)?)
}

/// The cache's key of a file. Anyone can give a file another one's build id, so only files that
/// root alone can write are trusted with it. Tools that change a file and keep its id change its
/// size or time.
fn cache_key(job: &Job) -> Option<String> {
    let metadata = job.file.metadata().ok()?;
    let by_root = metadata.uid() == 0 && metadata.mode() & 0o022 == 0;
    let (size, time) = (metadata.size(), metadata.mtime().cast_unsigned());
    let id = job.build_id.as_ref().filter(|_| by_root)?;
    Some(format!("{id}{size:016x}{time:016x}"))
}

fn compiled(shared: &Shared, job: &Job) -> Option<Table> {
    let key = cache_key(job);
    let table = Table::compile(&FileBytes::new(&job.file)).unwrap_or_else(|error| {
        tracing::debug!("`{}` has no unwind tables: {error}", job.path);
        None
    })?;
    // A file that was written to meanwhile may have been read half before and half after.
    let key = key.filter(|key| cache_key(job).as_ref() == Some(key));
    if let (Some(cache), Some(key)) = (&shared.cache, key) {
        cache.put(&key, &table);
    }
    Some(table)
}
