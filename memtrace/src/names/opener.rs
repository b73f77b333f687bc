//! Opens what is gone when a process has ended, its root and its perf map, as soon as it may be needed: names of other
//! files may take long.

use std::{
    fs::File,
    sync::mpsc::{Receiver, Sender},
};

use super::{map_file::MapFile, thread};
use crate::{process_root::Root, recording::LocationId};

pub(super) enum Request {
    Module {
        index: u32,
        path: String,
        file: File,
        build_id: Option<String>,
        tgid: u32,
    },
    /// The perf map of a process.
    Map(u32),
    /// An offset in a module, bytes.
    Name(LocationId, u32, u64),
    /// An absolute address in generated code of a process.
    NameGenerated(LocationId, u32, u64),
    Forget(u32),
    Finish,
}

/// The thread's work: passes on requests in order, with files.
pub(super) fn run(requests: &Receiver<Request>, next: &Sender<thread::Request>) {
    for request in requests {
        let request = match request {
            Request::Module {
                index,
                path,
                file,
                build_id,
                tgid,
            } => thread::Request::Module {
                index,
                path,
                file,
                build_id,
                root: Root::of_process(tgid).ok(),
            },
            Request::Map(tgid) => match MapFile::open(tgid) {
                Ok(map) => thread::Request::Map(tgid, map),
                // It is looked for again now and then.
                Err(_) => continue,
            },
            Request::Name(id, index, offset) => {
                thread::Request::Name(id, thread::Spot::Module(index), offset)
            }
            Request::NameGenerated(id, tgid, abs_addr) => {
                thread::Request::Name(id, thread::Spot::Process(tgid), abs_addr)
            }
            Request::Forget(tgid) => thread::Request::Forget(tgid),
            Request::Finish => thread::Request::Finish,
        };
        if next.send(request).is_err() {
            return;
        }
    }
}
