//! The thread that names frames and writes the recording, so that neither a
//! large symbol table nor a slow disk holds up the ring buffer.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::{
    location::{CodeId, Location, ModuleIndex},
    look::Looking,
    sink::{Message, Sink, Stopped},
};
use crate::{
    frames::{Cause, Frame, FrameKind},
    host::Redactor,
    python::CodeObject,
    recording::{self, LocationId, Writer},
    symbolize::{ModuleId, Symbolizer, debuginfod, perf_map::PerfMap},
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

/// Handle of the thread.
pub(super) struct Store {
    sender: SyncSender<Order>,
    /// Time the thread spent on the last interval, nanoseconds.
    cost: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<(), recording::Error>>>,
}

impl Store {
    /// Starts the thread, and with `debuginfod` the one that fetches debug files.
    ///
    /// # Errors
    /// A thread could not be started.
    pub(super) fn start(
        writer: Writer,
        debuginfod: Option<debuginfod::Config>,
        redactor: Arc<Redactor>,
    ) -> std::io::Result<Self> {
        let client = debuginfod.map(debuginfod::Client::start).transpose()?;
        let (sender, receiver) = sync_channel(BACKLOG);
        let cost = Arc::new(AtomicU64::new(0));
        let written = Arc::clone(&cost);
        let thread = std::thread::Builder::new()
            .name("memtrace-store".to_owned())
            .spawn(move || run(writer, client, redactor, &receiver, &written))?;
        Ok(Self {
            sender,
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

    fn finish(mut self: Box<Self>, time_ns: u64) -> Result<(), recording::Error> {
        // If it has stopped, the thread's result has the reason.
        let _ = self.sender.send(Order::Finish(time_ns));
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    }
}

fn run(
    mut writer: Writer,
    client: Option<debuginfod::Client>,
    redactor: Arc<Redactor>,
    receiver: &Receiver<Order>,
    cost: &AtomicU64,
) -> Result<(), recording::Error> {
    let mut looking = Looking::default();
    let mut names = Names {
        symbolizer: Symbolizer::new(client),
        modules: HashMap::new(),
        codes: HashMap::new(),
        generated: HashMap::new(),
        unfinished: Vec::new(),
        redactor: Arc::clone(&redactor),
    };
    // The channel closes without a Finish if the collector failed; committed data stays.
    for order in receiver {
        let message = match order {
            Order::Write(message) => message,
            Order::Finish(time_ns) => {
                if let Some(patience) = names.symbolizer.patience() {
                    names.rewrite(&mut writer, Instant::now() + patience)?;
                }
                return writer.finish(time_ns);
            }
        };
        match message {
            Message::Module {
                index,
                path,
                file,
                build_id,
                root,
            } => {
                let module = names
                    .symbolizer
                    .module(&path, file, build_id, root.as_ref());
                names.modules.insert(index, module);
            }
            Message::Code(id, code) => {
                names.codes.insert(id, code);
            }
            Message::Stacks(news) => {
                for (id, location) in news.locations {
                    names.write(&mut writer, id, location)?;
                }
                writer.nodes(news.first_node, &news.nodes)?;
                for row in &news.stacks {
                    writer.stack(row)?;
                }
            }
            Message::Process(mut row) => {
                names.rename(&mut writer, row.tgid)?;
                // It has ended, or may be another program now.
                names.generated.remove(&row.tgid);
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
            Message::Interval(interval) => {
                let begin = cpu_time_ns();
                names.rewrite(&mut writer, Instant::now())?;
                let tgids: Vec<u32> = names.generated.keys().copied().collect();
                for tgid in tgids {
                    names.rename(&mut writer, tgid)?;
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
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` lives; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

struct Names {
    symbolizer: Symbolizer,
    modules: HashMap<ModuleIndex, ModuleId>,
    codes: HashMap<CodeId, Arc<CodeObject>>,
    /// By tgid.
    generated: HashMap<u32, Generated>,
    /// Locations written with the names that are known here, while better ones are being fetched:
    /// neither the ring buffer nor an interval waits for a server.
    unfinished: Vec<(LocationId, Location)>,
    redactor: Arc<Redactor>,
}

/// The generated code of a process.
#[derive(Default)]
struct Generated {
    map: Option<PerfMap>,
    /// Locations that the map does not name yet: runtimes write it behind their code.
    nameless: Vec<(LocationId, Location)>,
}

impl Names {
    /// Writes a location with the names that are known now.
    fn write(
        &mut self,
        writer: &mut Writer,
        id: LocationId,
        location: Location,
    ) -> Result<(), recording::Error> {
        let mut frames = self.frames(location);
        if let Location::Anonymous { tgid, .. } = location
            && frames.iter().all(|frame| frame.function.is_none())
        {
            let generated = self.generated.entry(tgid).or_default();
            generated.nameless.push((id, location));
        }
        if self.is_fetching(location) {
            self.unfinished.push((id, location));
        }
        if self.redactor.is_everything() {
            for path in frames.iter_mut().flat_map(|f| [&mut f.module, &mut f.file]) {
                *path = path.take().map(|path| self.redactor.path(&path));
            }
        }
        writer.location(id, &frames)
    }

    fn is_fetching(&self, location: Location) -> bool {
        let Location::File(index, _) = location else {
            return false;
        };
        let module = self.modules.get(&index);
        module.is_some_and(|&module| self.symbolizer.is_fetching(module))
    }

    /// Rewrites the locations whose debug files arrive before `deadline`.
    fn rewrite(&mut self, writer: &mut Writer, deadline: Instant) -> Result<(), recording::Error> {
        if !self.symbolizer.take_fetched(deadline) {
            return Ok(());
        }
        for (id, location) in std::mem::take(&mut self.unfinished) {
            self.write(writer, id, location)?;
        }
        Ok(())
    }

    /// Writes the generated code of a process again that had no name, if its map has changed.
    fn rename(&mut self, writer: &mut Writer, tgid: u32) -> Result<(), recording::Error> {
        let Some(generated) = self.generated.get_mut(&tgid) else {
            return Ok(());
        };
        if generated.nameless.is_empty() {
            return Ok(());
        }
        let changed = match &mut generated.map {
            Some(map) => map.refresh(),
            map => {
                *map = PerfMap::load(tgid).ok();
                map.is_some()
            }
        };
        if changed {
            for (id, location) in std::mem::take(&mut generated.nameless) {
                self.write(writer, id, location)?;
            }
        }
        Ok(())
    }

    fn frames(&mut self, location: Location) -> Vec<Frame> {
        match location {
            Location::File(index, offset) => match self.modules.get(&index) {
                Some(&module) => self.symbolizer.frames(module, offset),
                None => vec![Frame::unknown(offset, Cause::FileNotOpened)],
            },
            Location::Anonymous { tgid, abs_addr, .. } => {
                let map = &mut self.generated.entry(tgid).or_default().map;
                if map.is_none() {
                    *map = PerfMap::load(tgid).ok();
                }
                match map {
                    Some(map) => vec![map.frame(abs_addr)],
                    None => vec![Frame::unknown(abs_addr, Cause::NoPerfMap)],
                }
            }
            Location::Python(id, line) => match self.codes.get(&id) {
                Some(code) => vec![code.frame(line)],
                None => vec![Frame::unknown(0, Cause::CodeObjectLost)],
            },
            Location::UnknownPython(addr) => vec![Frame {
                kind: FrameKind::Python,
                ..Frame::unknown(addr, Cause::CodeRecordLost)
            }],
            Location::Unmapped(addr) => {
                vec![Frame::unknown(addr, Cause::NotMapped)]
            }
        }
    }
}
