//! The pauser: the process that traces every thread of the job, passes their signals on at once,
//! and keeps the threads that the kernel side marked until the collector releases them.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    ffi::CStr,
    io::{self, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

use memtrace_common::kernel::HOLDER_COMM;

use super::{
    Stops,
    collector::{Collector, State},
    halt::Halts,
    news::{drain, poll, watch_children},
    returns::restore,
    seize,
    wire::{Inbox, Notice, Request},
};
use crate::{
    helper,
    process::{
        interrupted,
        ptrace::{self, Call, Status},
        tasks,
    },
};

/// When a thread has waited this long, the collector is checked: it may be stopped or dying.
const LOOK: Duration = Duration::from_millis(10);
/// No thread waits longer than this, whatever the collector does.
const LONGEST: Duration = Duration::from_secs(5);
/// Another tracer waits no longer than this: a thread that waits for its vfork child cannot be left.
const GIVING_WAY: Duration = Duration::from_secs(1);
/// At the end, how long to wait for stops that were on their way.
const LAST_STOPS: Duration = Duration::from_millis(100);
/// While so many threads wait for the collector, threads that make further ones wait too: a storm goes no faster than the
/// collector, so that none of its processes waits for [`LONGEST`].
const CROWD: usize = 16;
/// The kernel takes the probes of a dead collector away one by one.
const LONGEST_DEATH: Duration = Duration::from_secs(120);

/// A traced thread.
#[derive(Clone)]
struct Thread {
    tgid: u32,
    /// In a stop that ends only by a request; a group-stop is left to its originator.
    stopped: bool,
    /// To be detached at its next stop.
    leaving: bool,
}

/// A process that another tracer is to have, after this call of a thread.
struct Wanted {
    tgid: u32,
    call: Call,
    since: Instant,
}

/// See the module.
struct Process<S> {
    stops: S,
    socket: UnixStream,
    inbox: Inbox,
    /// Reports that the collector has left no room for yet.
    unsent: Vec<u8>,
    collector: Collector,
    with_children: bool,
    threads: HashMap<u32, Thread>,
    /// Threads that wait for the collector, and since when.
    held: HashMap<u32, Instant>,
    /// Threads that have made another one in a crowd, and wait for it to get smaller.
    makers: VecDeque<u32>,
    /// Threads that may continue at a stop that is yet to come.
    allowed: HashSet<u32>,
    /// Threads that continued before the collector's release, which is yet to come.
    early: HashSet<u32>,
    /// Threads that wait until a process has been left.
    wanting: HashMap<u32, Wanted>,
    halts: Halts,
    /// State at the last check.
    collector_state: State,
}

/// Holds threads until the collector, at the other end of standard input, is gone.
///
/// # Errors
/// It cannot start. Later errors end it, and then the kernel lets every thread go.
pub(crate) fn run(stops: impl Stops, with_children: bool) -> io::Result<()> {
    let name = CStr::from_bytes_until_nul(&HOLDER_COMM).map_err(io::Error::other)?;
    let socket = helper::begin(name);
    socket.set_nonblocking(true)?;
    let children = watch_children()?;
    let mut process = Process {
        stops,
        socket,
        inbox: Inbox::default(),
        unsent: Vec::new(),
        collector: Collector::of_this_process()?,
        with_children,
        threads: HashMap::new(),
        held: HashMap::new(),
        makers: VecDeque::new(),
        allowed: HashSet::new(),
        early: HashSet::new(),
        wanting: HashMap::new(),
        halts: Halts::default(),
        collector_state: State::AtWork,
    };
    while process.collector_state != State::Ending {
        let room = match process.unsent.is_empty() {
            true => 0,
            false => libc::POLLOUT,
        };
        poll(
            &[
                (process.socket.as_raw_fd(), libc::POLLIN | room),
                (children.as_raw_fd(), libc::POLLIN),
            ],
            process.next_look(),
        )?;
        drain(&children);
        process.send();
        if !process.hear()? {
            break;
        }
        process.reap();
        process.look();
        process.resume_makers();
    }
    process.end(&children)
}

impl<S: Stops> Process<S> {
    /// Reads and carries out the collector's requests. False once it is gone.
    fn hear(&mut self) -> io::Result<bool> {
        let open = match self.inbox.fill(&mut self.socket) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => false,
            result => result?,
        };
        for request in self.inbox.requests() {
            match request {
                Request::Seize { tgid } => {
                    let errno = self
                        .seize(tgid)
                        .err()
                        .map_or(0, |error| error.raw_os_error().unwrap_or(libc::EINVAL));
                    self.notify(Notice::Seized { tgid, errno });
                }
                Request::Continue { tid } => self.may_continue(tid),
                Request::Leave { tgid } => self.release(tgid),
                Request::Halt { tgid } => self.halt(tgid),
                Request::GoOn { tgid } => self.go_on(tgid),
            }
        }
        Ok(open)
    }

    fn notify(&mut self, notice: Notice) {
        self.unsent.extend(notice.encode());
        self.send();
    }

    /// Sends as much as there is room for.
    fn send(&mut self) {
        while !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // It has ended, which is found out by reading.
                Err(_) => self.unsent.clear(),
            }
        }
    }

    fn seize(&mut self, tgid: u32) -> io::Result<()> {
        let known = |tid| self.threads.contains_key(&tid);
        for tid in seize::seize_process(tgid, self.with_children, known)? {
            self.threads.insert(tid, Thread::of(tgid));
        }
        Ok(())
    }

    /// A thread need not wait, or no longer.
    fn may_continue(&mut self, tid: u32) {
        if self.early.remove(&tid) {
            return;
        }
        if self.held.remove(&tid).is_some() {
            self.resume(tid, 0);
        } else if tasks::tracer_of(tid) == Some(std::process::id()) {
            // Its stop is yet to come.
            self.allowed.insert(tid);
        } else if self.stops.take(tid) {
            // It was marked, but has no tracer, because its parent had none when the fork began.
            self.notify(Notice::LetGo { tid });
            self.notify(Notice::Left { tgid: tid });
        }
    }

    fn resume(&mut self, tid: u32, signal: i32) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            if self.halts.keep(thread.tgid, tid, signal) {
                return;
            }
            thread.stopped = false;
        }
        // If it was killed meanwhile, its end is reported.
        let _ = ptrace::resume(tid, signal);
    }

    fn halt(&mut self, tgid: u32) {
        self.halts.begin(tgid);
        for (&tid, thread) in &self.threads {
            if thread.tgid == tgid && !thread.stopped {
                let _ = ptrace::interrupt(tid);
            }
        }
    }

    fn go_on(&mut self, tgid: u32) {
        for (tid, signal) in self.halts.end(tgid) {
            self.resume(tid, signal);
        }
    }

    /// Sees to every thread that has stopped or ended.
    fn reap(&mut self) {
        while let Some((tid, status)) = ptrace::wait() {
            if status == Status::Ended {
                self.ended(tid);
                continue;
            }
            if !self.threads.contains_key(&tid) {
                let Some(tgid) = tasks::tgid_of(tid) else {
                    let _ = ptrace::detach(tid, 0);
                    continue;
                };
                let mut thread = Thread::of(tgid);
                // A process that clone made without notifying its parent of its end; it is left
                // out.
                let is_foreign = tgid == tid && !self.with_children && status != Status::Exec;
                let is_wanted = self.wanting.values().any(|wanted| wanted.tgid == tgid);
                thread.leaving = is_foreign || is_wanted;
                self.threads.insert(tid, thread);
            }
            self.stopped(tid, status);
        }
    }

    fn stopped(&mut self, tid: u32, status: Status) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        thread.stopped = true;
        let is_leaving = thread.leaving;
        if status == Status::Exec {
            self.only_thread(tid);
        }
        let signal = match status {
            Status::Signal(libc::SIGSTOP) if ptrace::is_from_kernel(tid) => 0,
            Status::Signal(signal) => signal,
            _ => 0,
        };
        if is_leaving {
            // It may be marked, but is not kept.
            self.stops.take(tid);
            if status == Status::Trap {
                interrupted::hide(tid);
            }
            self.detach(tid, signal);
            return;
        }
        match status {
            Status::Signal(libc::SIGSTOP) if signal == 0 => {
                if !self.keep(tid) {
                    self.serve(tid);
                }
            }
            Status::Signal(_) => self.resume(tid, signal),
            Status::Exec | Status::Trap => {
                if !self.keep(tid) {
                    self.resume(tid, 0);
                }
            }
            Status::GroupStop => {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.stopped = false;
                }
                let _ = ptrace::listen(tid);
            }
            Status::Made if self.held.len() >= CROWD => self.makers.push_back(tid),
            Status::Made | Status::Ended => self.resume(tid, 0),
        }
    }

    /// Keeps a thread, if it is marked and may not continue already. False if it was not marked.
    fn keep(&mut self, tid: u32) -> bool {
        if !self.stops.take(tid) {
            return false;
        }
        if self.allowed.remove(&tid) {
            self.resume(tid, 0);
            return true;
        }
        if self.collector_state != State::AtWork {
            self.collector_state = self.collector.state();
        }
        if self.collector_state == State::AtWork {
            self.held.insert(tid, Instant::now());
        } else {
            self.let_go(tid);
        }
        true
    }

    /// Lets a thread continue before the collector releases it.
    fn let_go(&mut self, tid: u32) {
        self.held.remove(&tid);
        self.early.insert(tid);
        self.resume(tid, 0);
        self.notify(Notice::LetGo { tid });
    }

    /// Each may make one more thread that waits.
    fn resume_makers(&mut self) {
        let room = CROWD.saturating_sub(self.held.len());
        for tid in self
            .makers
            .drain(..room.min(self.makers.len()))
            .collect::<Vec<_>>()
        {
            self.resume(tid, 0);
        }
    }

    /// If a thread waits, the time until the next check whether it may continue.
    fn next_look(&self) -> Option<Duration> {
        let is_idle = self.held.is_empty() && self.wanting.is_empty() && self.halts.is_empty();
        (!is_idle).then_some(LOOK)
    }

    /// Lets those go that wait for a collector which is not at work, or wait too long.
    fn look(&mut self) {
        let stuck: Vec<u32> = self
            .wanting
            .iter()
            .filter_map(|(&tid, wanted)| (wanted.since.elapsed() >= GIVING_WAY).then_some(tid))
            .collect();
        for tid in stuck {
            self.wanting.remove(&tid);
            self.resume(tid, 0);
        }
        if !self.halts.is_empty() {
            let is_searched = self.collector.state() == State::AtWork;
            for tgid in self.halts.overdue(is_searched) {
                self.go_on(tgid);
            }
        }
        let longest = self.held.values().map(Instant::elapsed).max();
        if longest.is_none_or(|longest| longest < LOOK) {
            return;
        }
        self.collector_state = self.collector.state();
        let limit = match self.collector_state {
            State::AtWork => LONGEST,
            State::Stopped | State::Ending => Duration::ZERO,
        };
        let overdue: Vec<u32> = self
            .held
            .iter()
            .filter_map(|(&tid, since)| (since.elapsed() >= limit).then_some(tid))
            .collect();
        for tid in overdue {
            self.let_go(tid);
        }
    }

    /// A thread that was sent SIGSTOP by the kernel side without a mark is about to be unwound by an
    /// exception, or calls ptrace, or has made a tracer.
    fn serve(&mut self, tid: u32) {
        let Some(unwinding) = self.stops.take_returns(tid) else {
            return self.give_way(tid);
        };
        // A thread that was killed meanwhile is not unwound.
        if restore(tid, &unwinding).is_err() && tasks::tgid_of(tid).is_some() {
            self.notify(Notice::NotRestored { tid });
        }
        self.resume(tid, 0);
    }

    /// The tracer that blocks a call of ptrace has to leave, then the thread repeats the call.
    fn give_way(&mut self, tid: u32) {
        let call = ptrace::tracing_call(tid);
        let Some((call, tgid)) = call.and_then(|call| Some((call, self.wanted(tid, call)?))) else {
            self.resume(tid, 0);
            return;
        };
        let since = Instant::now();
        self.wanting.insert(tid, Wanted { tgid, call, since });
        self.release(tgid);
    }

    /// The process, traced by this one, that is to have another tracer.
    fn wanted(&self, caller: u32, call: Call) -> Option<u32> {
        const TRACEME: u64 = libc::PTRACE_TRACEME as u64;
        let wanted = match call {
            Call::Refused { request, pid } if request != TRACEME => pid,
            _ => return Some(self.threads.get(&caller)?.tgid),
        };
        let namespace = tasks::namespace_of(caller);
        let is_meant = |tid: u32| {
            tid == wanted && namespace == tasks::namespace_of(std::process::id())
                || tasks::own_number_of(tid) == Some(wanted)
                    && tasks::namespace_of(tid) == namespace
        };
        let tid = match self.threads.contains_key(&wanted) && is_meant(wanted) {
            true => wanted,
            false => self.threads.keys().copied().find(|&tid| is_meant(tid))?,
        };
        Some(self.threads.get(&tid)?.tgid)
    }

    /// Releases a process. Running threads have to stop for it.
    fn release(&mut self, tgid: u32) {
        self.go_on(tgid);
        let mut stopped = Vec::new();
        for (&tid, thread) in &mut self.threads {
            if thread.tgid != tgid {
                continue;
            }
            thread.leaving = true;
            self.held.remove(&tid);
            if thread.stopped {
                stopped.push(tid);
            } else {
                let _ = ptrace::interrupt(tid);
            }
        }
        for tid in stopped {
            self.detach(tid, 0);
        }
    }

    /// Detaches from a stopped thread, unless it waits for others to be left first.
    fn detach(&mut self, tid: u32, signal: i32) {
        let Some(tgid) = self.threads.get(&tid).map(|thread| thread.tgid) else {
            return;
        };
        let wanted = self.wanting.get(&tid).filter(|wanted| wanted.tgid == tgid);
        if let Some(call) = wanted.map(|wanted| wanted.call) {
            // It asks for its own process to be released, and is the last to go.
            let others = |(&other, thread): (&u32, &Thread)| other != tid && thread.tgid == tgid;
            if self.threads.iter().any(others) || self.finds_more(tgid) {
                return;
            }
            if call != Call::Cloned {
                let _ = ptrace::repeat_call(tid);
            }
        }
        let _ = ptrace::detach(tid, signal);
        self.forget(tid);
        self.left(tgid);
    }

    /// Whether a process that is being released has threads that were made meanwhile and have not stopped yet.
    fn finds_more(&mut self, tgid: u32) -> bool {
        let new = seize::traced(tgid, |tid| self.threads.contains_key(&tid));
        let leaving = Thread {
            leaving: true,
            ..Thread::of(tgid)
        };
        self.threads
            .extend(new.iter().map(|&tid| (tid, leaving.clone())));
        !new.is_empty()
    }

    /// Handles tracers that are waiting for a process that may have been released.
    fn left(&mut self, tgid: u32) {
        let mut rest = self
            .threads
            .iter()
            .filter_map(|(&tid, thread)| (thread.tgid == tgid).then_some(tid));
        match (rest.next(), rest.next()) {
            (None, _) if self.finds_more(tgid) => return,
            (None, _) => {}
            (Some(last), None) => {
                // It may be the one waiting for the others to be left.
                if self
                    .wanting
                    .get(&last)
                    .is_some_and(|wanted| wanted.tgid == tgid)
                {
                    self.detach(last, 0);
                }
                return;
            }
            _ => return,
        }
        let callers: Vec<u32> = self
            .wanting
            .iter()
            .filter_map(|(&tid, wanted)| (wanted.tgid == tgid).then_some(tid))
            .collect();
        for tid in callers {
            self.wanting.remove(&tid);
            let _ = ptrace::repeat_call(tid);
            self.resume(tid, 0);
        }
        self.notify(Notice::Left { tgid });
    }

    fn ended(&mut self, tid: u32) {
        let thread = self.threads.remove(&tid);
        self.forget(tid);
        if let Some(thread) = thread.filter(|thread| thread.leaving) {
            self.left(thread.tgid);
        }
    }

    fn forget(&mut self, tid: u32) {
        self.threads.remove(&tid);
        self.held.remove(&tid);
        self.allowed.remove(&tid);
        self.early.remove(&tid);
        self.wanting.remove(&tid);
        self.makers.retain(|&maker| maker != tid);
        self.halts.forget(tid);
    }

    /// exec ends every other thread of the process, the caller's old number without a word.
    fn only_thread(&mut self, tid: u32) {
        let others = |(&other, thread): (&u32, &Thread)| {
            (thread.tgid == tid && other != tid).then_some(other)
        };
        let others: Vec<u32> = self.threads.iter().filter_map(others).collect();
        for other in others {
            self.forget(other);
        }
        // Entry of the leader that is gone: the collector has forgotten it too.
        self.early.remove(&tid);
    }

    /// Continues every thread, also those whose stop is on its way, and ends the tracing. While the
    /// collector dies its probes are still there, and exceptions have to pass them.
    fn end(mut self, children: &OwnedFd) -> io::Result<()> {
        self.stops.end_recording();
        let is_dying = self.collector.state() == State::Ending;
        self.collector_state = State::Ending;
        let limit = if is_dying { LONGEST_DEATH } else { LAST_STOPS };
        for tgid in self.halts.overdue(false) {
            self.go_on(tgid);
        }
        let begun = Instant::now();
        loop {
            let held: Vec<u32> = self.held.keys().copied().collect();
            for tid in held {
                self.may_continue(tid);
            }
            self.resume_makers();
            self.reap();
            let spent = begun.elapsed();
            let is_quiet = self.stops.is_empty() && self.held.is_empty() && self.allowed.is_empty();
            let is_over = match is_dying {
                true => self.collector.is_gone(),
                false => is_quiet,
            };
            if is_over || spent >= limit {
                // The kernel detaches from threads that run without stopping them.
                return Ok(());
            }
            poll(
                &[(children.as_raw_fd(), libc::POLLIN)],
                Some(LAST_STOPS.min(limit - spent)),
            )?;
            drain(children);
        }
    }
}

impl Thread {
    fn of(tgid: u32) -> Self {
        Self {
            tgid,
            stopped: false,
            leaving: false,
        }
    }
}
