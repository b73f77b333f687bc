//! Removes probes. Closing a link waits for the kernel to see every CPU pass (RCU grace periods, tens of milliseconds);
//! waiting at the same time, many share one.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use super::{exit::uninterrupted, grace, link::Link};
use crate::process::weight;

/// Links closed at the same time.
const DETACHING: usize = 64;

/// Links of ended processes closed at the same time. In a storm, those that wait slow down every call.
const CLOSING: usize = 256;

/// A thread that has had nothing to close for this long ends.
const REST: Duration = Duration::from_secs(1);

/// Removes the probes at the end of a recording, and waits for that. A setting of the whole machine is changed meanwhile,
/// so programs must not be able to cause it during a recording.
pub(crate) fn detach_all(links: Vec<Link>) {
    let _short = grace::shorten();
    detach(links);
}

/// Removes probes now, and waits for that.
pub(crate) fn detach(links: Vec<Link>) {
    let each = links.len().div_ceil(DETACHING).max(1);
    let mut links = links.into_iter();
    thread::scope(|scope| {
        loop {
            let chunk: Vec<Link> = links.by_ref().take(each).collect();
            if chunk.is_empty() {
                break;
            }
            // A thread that cannot be started drops its chunk here, one after another.
            let _ = thread::Builder::new().spawn_scoped(scope, move || close(chunk));
        }
    });
}

/// Removes the probes of ended processes while others are traced. At once, because a call of a probed function passes the
/// probes of every process.
#[derive(Debug, Default)]
pub(crate) struct Removal(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    links: VecDeque<Link>,
    threads: usize,
    /// Those of them that wait for links.
    idle: usize,
    has_ended: bool,
}

/// Removes the probes of links.
fn close<T>(links: T) {
    uninterrupted(|| drop(links));
}

impl Removal {
    /// Has links closed.
    pub(crate) fn add(&self, links: Vec<Link>) {
        let added = links.len();
        let mut queue = self.0.lock();
        queue.links.extend(links);
        let wanted = queue.links.len().saturating_sub(queue.idle);
        for _ in 0..wanted.min(CLOSING - queue.threads) {
            let shared = Arc::clone(&self.0);
            // Links for which no thread can be started are closed by the next ones.
            if thread::Builder::new().spawn(move || shared.work()).is_err() {
                break;
            }
            queue.threads += 1;
        }
        drop(queue);
        (0..added).for_each(|_| self.0.changed.notify_one());
    }

    /// The links that are not yet being closed, once all others are closed: the kernel leaves breakpoints behind if its
    /// thread is killed meanwhile, as by the end of this process.
    pub(crate) fn end(&self) -> Vec<Link> {
        let _short = grace::shorten();
        let mut queue = self.0.lock();
        queue.has_ended = true;
        let links = queue.links.drain(..).collect();
        self.0.changed.notify_all();
        while queue.threads != 0 {
            let changed = self.0.changed.wait(queue);
            queue = changed.unwrap_or_else(PoisonError::into_inner);
        }
        links
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        drop(self.end());
    }
}

impl Shared {
    fn work(&self) {
        // While it closes one, the kernel lets nobody fork (`dup_mmap_sem`).
        let _ = weight::raise();
        let mut queue = self.lock();
        while !queue.has_ended {
            if let Some(link) = queue.links.pop_front() {
                drop(queue);
                close(link);
                queue = self.lock();
            } else {
                queue.idle += 1;
                let waited = self.changed.wait_timeout(queue, REST);
                let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                queue = woken;
                queue.idle -= 1;
                if timeout.timed_out() && queue.links.is_empty() {
                    break;
                }
            }
        }
        queue.threads -= 1;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
