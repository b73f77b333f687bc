//! The thread that names frames and writes the recording, so that neither a
//! large symbol table nor a slow disk holds up the ring buffer.

use std::{
    collections::HashMap,
    fs::File,
    path::PathBuf,
    sync::Arc,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::JoinHandle,
    time::Instant,
};

use super::{addresses::Location, modules::ModuleIndex, python::CodeId};
use crate::{
    probes::plan::Lacking,
    python::CodeObject,
    recording::{self, Interval, ProcessRow, StackRow, Writer},
    symbolize::{Frame, FrameKind, ModuleId, Symbolizer, debuginfod, perf_map::PerfMap},
};

/// What the collector hands over, in order.
pub(super) enum Message {
    Module {
        index: ModuleIndex,
        path: String,
        file: File,
        build_id: Option<String>,
        /// `/proc/PID/root` of a process that maps it.
        root: PathBuf,
    },
    Code(CodeId, Arc<CodeObject>),
    Stack {
        row: StackRow,
        frames: Vec<Location>,
    },
    Process(ProcessRow),
    /// A device's library, and what its version lacks.
    Library(String, Lacking),
    Interval(Box<Interval>),
    /// The recording is complete, CLOCK_MONOTONIC ns.
    Finish(u64),
}

/// Messages that may wait before the collector does. There is one for each new
/// stack, file and process and one an interval: the number of events plays no part.
const BACKLOG: usize = 65_536;

/// Handle of the thread.
pub struct Store {
    sender: SyncSender<Message>,
    thread: Option<JoinHandle<Result<(), recording::Error>>>,
}

/// The store has stopped; [`Store::finish`] tells why.
#[derive(Debug, thiserror::Error)]
#[error("the recording can no longer be written")]
pub struct Stopped;

impl Store {
    /// Starts the thread, and with `debuginfod` the one that fetches debug files.
    ///
    /// # Errors
    /// A thread could not be started.
    pub(super) fn start(
        writer: Writer,
        debuginfod: Option<debuginfod::Config>,
    ) -> std::io::Result<Self> {
        let client = debuginfod.map(debuginfod::Client::start).transpose()?;
        let (sender, receiver) = sync_channel(BACKLOG);
        let thread = std::thread::Builder::new()
            .name("memtrace-store".to_owned())
            .spawn(move || run(writer, client, &receiver))?;
        Ok(Self {
            sender,
            thread: Some(thread),
        })
    }

    /// Hands over a message; waits if too many are waiting.
    ///
    /// # Errors
    /// The store has failed.
    pub(super) fn send(&self, message: Message) -> Result<(), Stopped> {
        self.sender.send(message).map_err(|_| Stopped)
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    /// Why the recording could not be written.
    pub(super) fn finish(mut self, time_ns: u64) -> Result<(), recording::Error> {
        // If it has stopped, the thread's result says why.
        let _ = self.send(Message::Finish(time_ns));
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
    receiver: &Receiver<Message>,
) -> Result<(), recording::Error> {
    let mut names = Names {
        symbolizer: Symbolizer::new(client),
        modules: HashMap::new(),
        codes: HashMap::new(),
        perf_maps: HashMap::new(),
        unfinished: Vec::new(),
    };
    // The channel closes without a Finish if the collector failed; what was
    // committed stays.
    for message in receiver {
        match message {
            Message::Module {
                index,
                path,
                file,
                build_id,
                root,
            } => {
                let module = names.symbolizer.module(&path, file, build_id, Some(&root));
                names.modules.insert(index, module);
            }
            Message::Code(id, code) => {
                names.codes.insert(id, code);
            }
            Message::Stack { row, frames } => {
                writer.stack(&row, &names.resolve(&frames))?;
                if names.is_fetching(&frames) {
                    names.unfinished.push((row, frames));
                }
            }
            Message::Process(row) => {
                // It may be another program now.
                names.perf_maps.remove(&row.tgid);
                writer.process(&row)?;
            }
            Message::Library(file, lacking) => {
                writer.library(&file, lacking.library, &lacking.symbols)?;
            }
            Message::Interval(interval) => {
                names.rewrite(&mut writer, Instant::now())?;
                writer.interval(&interval)?;
            }
            Message::Finish(time_ns) => {
                if let Some(patience) = names.symbolizer.patience() {
                    tracing::warn!("waiting for debug files, for {patience:?} at most");
                    names.rewrite(&mut writer, Instant::now() + patience)?;
                }
                return writer.finish(time_ns);
            }
        }
    }
    Ok(())
}

struct Names {
    symbolizer: Symbolizer,
    modules: HashMap<ModuleIndex, ModuleId>,
    codes: HashMap<CodeId, Arc<CodeObject>>,
    /// By tgid, once asked for.
    perf_maps: HashMap<u32, PerfMap>,
    /// Stacks written with the names that are known here, while better ones are being fetched:
    /// neither the ring buffer nor an interval waits for a server.
    unfinished: Vec<(StackRow, Vec<Location>)>,
}

impl Names {
    fn resolve(&mut self, frames: &[Location]) -> Vec<Frame> {
        let frames = frames.iter();
        frames.flat_map(|&location| self.frames(location)).collect()
    }

    fn is_fetching(&self, frames: &[Location]) -> bool {
        frames.iter().any(|location| match location {
            Location::File(index, _) => self
                .modules
                .get(index)
                .is_some_and(|&module| self.symbolizer.is_fetching(module)),
            Location::Anonymous(..)
            | Location::Python(..)
            | Location::UnknownPython(_)
            | Location::Unmapped(_) => false,
        })
    }

    /// Writes the stacks again whose debug files come until `deadline`.
    fn rewrite(&mut self, writer: &mut Writer, deadline: Instant) -> Result<(), recording::Error> {
        if !self.symbolizer.take_fetched(deadline) {
            return Ok(());
        }
        for (row, frames) in std::mem::take(&mut self.unfinished) {
            writer.stack(&row, &self.resolve(&frames))?;
            if self.is_fetching(&frames) {
                self.unfinished.push((row, frames));
            }
        }
        Ok(())
    }

    fn frames(&mut self, location: Location) -> Vec<Frame> {
        match location {
            Location::File(index, offset) => match self.modules.get(&index) {
                Some(&module) => self.symbolizer.frames(module, offset),
                None => vec![Symbolizer::unknown(offset, "its file could not be opened")],
            },
            Location::Anonymous(tgid, addr) => {
                if !self.perf_maps.contains_key(&tgid)
                    && let Ok(map) = PerfMap::load(tgid)
                {
                    self.perf_maps.insert(tgid, map);
                }
                match self.perf_maps.get_mut(&tgid) {
                    Some(map) => vec![map.frame(addr)],
                    None => vec![Symbolizer::unknown(
                        addr,
                        "generated code, and its process keeps no perf map",
                    )],
                }
            }
            Location::Python(id, line) => match self.codes.get(&id) {
                Some(code) => vec![code.frame(line)],
                None => vec![Symbolizer::unknown(0, "its code object was lost")],
            },
            Location::UnknownPython(addr) => vec![Frame {
                kind: FrameKind::Python,
                ..Symbolizer::unknown(addr, "the record of its code object was lost")
            }],
            Location::Unmapped(addr) => {
                vec![Symbolizer::unknown(addr, "not in a known mapping")]
            }
        }
    }
}
