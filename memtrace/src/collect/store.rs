//! The thread that names frames and writes the recording, so that neither a
//! large symbol table nor a slow disk holds up the ring buffer.

use std::{
    collections::HashMap,
    fs::File,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::JoinHandle,
};

use super::{addresses::Location, modules::ModuleIndex};
use crate::{
    recording::{self, Interval, ProcessRow, StackRow, Writer},
    symbolize::{Frame, ModuleId, Symbolizer},
};

/// What the collector hands over, in order.
pub(super) enum Message {
    Module {
        index: ModuleIndex,
        path: String,
        file: File,
        build_id: Option<String>,
    },
    Stack {
        row: StackRow,
        frames: Vec<Location>,
    },
    Process(ProcessRow),
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
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread could not be started.
    pub(super) fn start(writer: Writer) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel(BACKLOG);
        let thread = std::thread::Builder::new()
            .name("memtrace-store".to_owned())
            .spawn(move || run(writer, &receiver))?;
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

fn run(mut writer: Writer, receiver: &Receiver<Message>) -> Result<(), recording::Error> {
    let mut names = Names {
        symbolizer: Symbolizer::new(),
        modules: HashMap::new(),
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
            } => {
                let module = names.symbolizer.module(&path, file, build_id);
                names.modules.insert(index, module);
            }
            Message::Stack { row, frames } => {
                let frames: Vec<Frame> = frames
                    .iter()
                    .flat_map(|&location| names.frames(location))
                    .collect();
                writer.stack(&row, &frames)?;
            }
            Message::Process(row) => writer.process(&row)?,
            Message::Interval(interval) => writer.interval(&interval)?,
            Message::Finish(time_ns) => return writer.finish(time_ns),
        }
    }
    Ok(())
}

struct Names {
    symbolizer: Symbolizer,
    modules: HashMap<ModuleIndex, ModuleId>,
}

impl Names {
    fn frames(&mut self, location: Location) -> Vec<Frame> {
        match location {
            Location::File(index, offset) => match self.modules.get(&index) {
                Some(&module) => self.symbolizer.frames(module, offset),
                None => vec![Symbolizer::unknown(offset, "its file could not be opened")],
            },
            Location::Anonymous(addr) => {
                vec![Symbolizer::unknown(addr, "code that no file holds")]
            }
            Location::Unmapped(addr) => {
                vec![Symbolizer::unknown(addr, "not in a known mapping")]
            }
        }
    }
}
