//! The thread that writes the recording, so that a slow disk does not hold up the ring buffer. It waits for no names:
//! a location whose names have not come is committed without, and written again when they come.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use memtrace_common::loss::Reason;

use super::{
    location::{CodeId, Location, ModuleIndex},
    look::Looking,
    sink::{Message, Sink, Stopped},
};
use crate::{
    clock,
    frames::{Cause, Frame, FrameKind},
    host::Redactor,
    names::{self, Named},
    python::CodeObject,
    recording::{self, LocationId, Writer},
    symbolize::debuginfod,
};

/// Orders for the thread.
enum Order {
    Write(Message),
    /// The recording is complete, CLOCK_MONOTONIC ns.
    Finish(u64),
}

/// Messages that may wait before the collector does. There is one for each new file, code object,
/// process and batch of stacks and one an interval: the number of events plays no part.
const BACKLOG: usize = 65_536;

/// How often the end looks whether it is over.
const SLICE: Duration = Duration::from_millis(10);

/// Handle of the thread.
pub(super) struct Store {
    sender: SyncSender<Order>,
    /// The end waits for no more names.
    is_over: Arc<AtomicBool>,
    /// Time the thread spent on the last interval, nanoseconds.
    cost: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<(), recording::Error>>>,
}

impl Store {
    /// Starts the thread, the one that finds names, and with `debuginfod` the one that fetches debug files.
    pub(super) fn start(
        writer: Writer,
        debuginfod: Option<debuginfod::Config>,
        redactor: Arc<Redactor>,
    ) -> std::io::Result<Self> {
        let client = debuginfod.map(debuginfod::Client::start).transpose()?;
        let (sender, receiver) = sync_channel(BACKLOG);
        let cost = Arc::new(AtomicU64::new(0));
        let written = Arc::clone(&cost);
        let is_over = Arc::<AtomicBool>::default();
        let over = Arc::clone(&is_over);
        let names = Names {
            names: names::Names::start(client)?,
            modules: HashMap::new(),
            codes: HashMap::new(),
            waiting: HashMap::new(),
            late: HashSet::new(),
            cut: HashSet::new(),
            redactor,
        };
        let thread = std::thread::Builder::new()
            .name("memtrace-store".to_owned())
            .spawn(move || run(writer, names, &receiver, &written, &over))?;
        Ok(Self {
            sender,
            is_over,
            cost,
            thread: Some(thread),
        })
    }
}

impl Sink for Store {
    fn send(&mut self, message: Message) -> Result<(), Stopped> {
        let order = Order::Write(message);
        self.sender.send(order).map_err(|_| Stopped)
    }

    fn cost(&self) -> Duration {
        Duration::from_nanos(self.cost.load(Ordering::Relaxed))
    }

    fn finish(
        mut self: Box<Self>,
        time_ns: u64,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), recording::Error> {
        // If it has stopped, the thread's result has the reason.
        let _ = self.sender.send(Order::Finish(time_ns));
        let is_writing = || self.thread.as_ref().is_some_and(|it| !it.is_finished());
        while is_writing() {
            self.is_over.store(is_over(), Ordering::Relaxed);
            std::thread::sleep(SLICE);
        }
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    }
}

fn run(
    mut writer: Writer,
    mut names: Names,
    receiver: &Receiver<Order>,
    cost: &AtomicU64,
    is_over: &AtomicBool,
) -> Result<(), recording::Error> {
    let mut looking = Looking::default();
    let redactor = Arc::clone(&names.redactor);
    // The channel closes without a Finish if the collector failed; committed data stays.
    for order in receiver {
        names.take_answers(&mut writer)?;
        let message = match order {
            Order::Write(message) => message,
            Order::Finish(time_ns) => {
                names.finish(&mut writer, is_over)?;
                return writer.finish(time_ns);
            }
        };
        match message {
            Message::Begins(meta) => writer.begins(&meta)?,
            Message::Module {
                index,
                path,
                file,
                build_id,
                tgid,
            } => {
                let module = (path.clone(), build_id.clone());
                names.modules.insert(index, module);
                names.names.module(index.0, path, file, build_id, tgid);
            }
            Message::Code(id, code) => {
                names.codes.insert(id, code);
            }
            Message::Stacks(news) => {
                for (id, location) in news.locations {
                    names.add(&mut writer, id, location)?;
                }
                writer.nodes(news.first_node, &news.nodes)?;
                for row in &news.stacks {
                    writer.stack(row)?;
                }
            }
            Message::Process(mut row) => {
                names.names.forget(row.tgid);
                row.cmdline = redactor.arguments(&row.cmdline);
                writer.process(&row)?;
            }
            Message::Untraced(of) => writer.untraced(&of)?,
            Message::Library(file, lacking) => {
                let file = redactor.path(&file);
                writer.library(&file, lacking.library, &lacking.symbols)?;
            }
            Message::Facts(facts) => writer.facts(&facts)?,
            Message::InheritFacts { parent, child } => writer.inherit_facts(parent, child)?,
            Message::ForgetFacts(process) => writer.forget_facts(process)?,
            Message::Look(look) => writer.facts(&looking.look(&look, &redactor))?,
            Message::Holders(holders) => writer.holders(&holders)?,
            Message::Unsearched(process, why) => writer.unsearched(process, &why)?,
            Message::Types(process, census, types) => writer.types(process, &census, &types)?,
            Message::Interval(mut interval) => {
                let begin = cpu_time_ns();
                interval.losses.retain(|(reason, _)| *reason != LOSS);
                interval.losses.push((LOSS, names.cut.len() as u64));
                if !interval.commit_later {
                    names.write_waiting(&mut writer)?;
                }
                writer.interval(&interval)?;
                cost.store(cpu_time_ns() - begin, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

/// CPU time of this thread so far: waiting for a disk does not count.
fn cpu_time_ns() -> u64 {
    clock::now_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Counted here, not by the collector.
const LOSS: Reason = Reason::NamesBudget;

/// The locations of the recording and their names.
struct Names {
    names: names::Names,
    /// Path and build id.
    modules: HashMap<ModuleIndex, (String, Option<String>)>,
    codes: HashMap<CodeId, Arc<CodeObject>>,
    /// Locations that are not written, because their names have not come.
    waiting: HashMap<LocationId, Location>,
    /// Locations that were committed without their names.
    late: HashSet<LocationId>,
    /// Locations whose symbols take too much to read.
    cut: HashSet<LocationId>,
    redactor: Arc<Redactor>,
}

impl Names {
    /// Writes a location, or requests its names.
    fn add(
        &mut self,
        writer: &mut Writer,
        id: LocationId,
        location: Location,
    ) -> Result<(), recording::Error> {
        match location {
            Location::File(index, offset) if self.modules.contains_key(&index) => {
                self.names.name(id, index.0, offset);
            }
            Location::Anonymous { tgid, abs_addr, .. } => {
                self.names.name_generated(id, tgid, abs_addr);
            }
            _ => {
                let frame = self.frame(location);
                return self.write(writer, id, vec![frame]);
            }
        }
        self.waiting.insert(id, location);
        Ok(())
    }

    /// The frame of a location whose symbols were not read, or need not be.
    fn frame(&self, location: Location) -> Frame {
        match location {
            Location::File(index, offset) => match self.modules.get(&index) {
                Some((path, build_id)) => Frame {
                    module: Some(path.clone()),
                    build_id: build_id.clone(),
                    file_offset: Some(offset),
                    unresolved: Some(Cause::NotNamedYet.into()),
                    ..Frame::unknown(offset, Cause::NotNamedYet)
                },
                None => Frame::unknown(offset, Cause::FileNotOpened),
            },
            Location::Anonymous { abs_addr, .. } => Frame::unknown(abs_addr, Cause::NotNamedYet),
            Location::Python(id, line) => match self.codes.get(&id) {
                Some(code) => code.frame(line),
                None => Frame::unknown(0, Cause::CodeObjectLost),
            },
            Location::UnknownPython(addr) => Frame {
                kind: FrameKind::Python,
                ..Frame::unknown(addr, Cause::CodeRecordLost)
            },
            Location::Unmapped(addr) => Frame::unknown(addr, Cause::NotMapped),
        }
    }

    fn write(
        &self,
        writer: &mut Writer,
        id: LocationId,
        mut frames: Vec<Frame>,
    ) -> Result<(), recording::Error> {
        if self.redactor.is_everything() {
            for path in frames.iter_mut().flat_map(|f| [&mut f.module, &mut f.file]) {
                *path = path.take().map(|path| self.redactor.path(&path));
            }
        }
        writer.location(id, &frames)
    }

    /// Writes the locations whose names have come.
    fn take_answers(&mut self, writer: &mut Writer) -> Result<(), recording::Error> {
        let answers: Vec<names::Answer> = self.names.answers().collect();
        answers
            .into_iter()
            .try_for_each(|answer| self.take(writer, answer))
    }

    fn take(
        &mut self,
        writer: &mut Writer,
        (id, named): names::Answer,
    ) -> Result<(), recording::Error> {
        let Named { frames, is_cut } = named;
        self.waiting.remove(&id);
        self.late.remove(&id);
        match is_cut {
            true => self.cut.insert(id),
            false => self.cut.remove(&id),
        };
        self.write(writer, id, frames)
    }

    /// Writes the locations whose names have not come, so that every stack of a commit has all of its own.
    fn write_waiting(&mut self, writer: &mut Writer) -> Result<(), recording::Error> {
        for (id, location) in std::mem::take(&mut self.waiting) {
            self.write(writer, id, vec![self.frame(location)])?;
            self.late.insert(id);
        }
        Ok(())
    }

    /// Waits for the names that are still to come, until it `is_over`.
    fn finish(
        &mut self,
        writer: &mut Writer,
        is_over: &AtomicBool,
    ) -> Result<(), recording::Error> {
        self.names.finish();
        while let Some(answer) = self.names.last(is_over) {
            self.take(writer, answer)?;
        }
        self.write_waiting(writer)?;
        writer.loss(LOSS, (self.cut.len() + self.late.len()) as u64)
    }
}
