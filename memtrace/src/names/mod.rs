//! Names for the recording. Threads open debug files and perf maps, and a process of its own reads them and all other
//! files with symbols ([`process`]), because whoever wrote them may have made them to take all memory and time.
//! Nothing waits for names: they come when they come, and some come again when there are better ones.

mod helper;
mod line;
mod map_file;
mod module;
mod namer;
mod opener;
mod process;
mod thread;

use std::{
    collections::HashSet,
    fs::File,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
};

use crate::{recording::LocationId, symbolize::debuginfod};
pub(crate) use line::{Named, Place};
pub(crate) use namer::{ModuleKey, Namer};
use opener::Request;
pub(crate) use process::{SUBCOMMAND, run};
pub(crate) use thread::Answer;
use thread::SLICE;

/// Handle of the threads, which end with it.
pub(crate) struct Names {
    requests: Sender<Request>,
    /// Processes with generated code.
    generating: HashSet<u32>,
    answers: Receiver<Answer>,
    is_over: Arc<AtomicBool>,
}

impl Names {
    /// `client` fetches debug files that are not on this machine.
    pub(crate) fn start(client: Option<debuginfod::Client>) -> io::Result<Self> {
        let (requests, receiver) = channel();
        let (opened, receives_opened) = channel();
        let (sender, answers) = channel();
        let is_over = Arc::<AtomicBool>::default();
        let namer = Namer::new(client, Arc::clone(&is_over));
        let start = |name: &str| std::thread::Builder::new().name(name.to_owned());
        start("memtrace-open").spawn(move || opener::run(&receiver, &opened))?;
        start("memtrace-names").spawn(move || thread::run(namer, &receives_opened, &sender))?;
        Ok(Self {
            requests,
            generating: HashSet::new(),
            answers,
            is_over,
        })
    }

    /// Adds a file of process `tgid` by its number, as [`Namer::add`].
    pub(crate) fn module(
        &self,
        index: u32,
        path: String,
        file: File,
        build_id: Option<String>,
        tgid: u32,
    ) {
        self.request(Request::Module {
            index,
            path,
            file,
            build_id,
            tgid,
        });
    }

    /// Requests the names of a location: an offset in a file, bytes.
    pub(crate) fn name(&self, id: LocationId, index: u32, offset: u64) {
        self.request(Request::Name(id, index, offset));
    }

    /// Requests the names of generated code at an absolute address.
    pub(crate) fn name_generated(&mut self, id: LocationId, tgid: u32, abs_addr: u64) {
        if self.generating.insert(tgid) {
            self.request(Request::Map(tgid));
        }
        self.request(Request::NameGenerated(id, tgid, abs_addr));
    }

    /// The process has ended, or is another program now.
    pub(crate) fn forget(&mut self, tgid: u32) {
        if self.generating.remove(&tgid) {
            self.request(Request::Forget(tgid));
        }
    }

    /// The answers that have come.
    pub(crate) fn answers(&self) -> impl Iterator<Item = Answer> {
        self.answers.try_iter()
    }

    /// No more will be requested: from now on, [`Names::last`] has the answers.
    pub(crate) fn finish(&self) {
        self.request(Request::Finish);
    }

    /// The next answer, while there are any, and until it `is_over`.
    pub(crate) fn last(&self, is_over: &AtomicBool) -> Option<Answer> {
        loop {
            match self.answers.recv_timeout(SLICE) {
                Ok(answer) => return Some(answer),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if is_over.load(Ordering::Relaxed) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// If a thread is gone, names stay away, which the end of the recording counts.
    fn request(&self, request: Request) {
        let _ = self.requests.send(request);
    }
}

impl Drop for Names {
    /// A thread may be in the middle of a file that takes for ever: nobody waits for it.
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
