//! The process that reads symbols. Its files were written by others, and the libraries that read them have no limits,
//! so it has: memory, nothing to write to, and no rights but to read the files it was given.

use std::{collections::HashMap, fs, io, thread};

use rustix::{
    process::{
        DumpableBehavior, Resource, Rlimit, Signal, set_dumpable_behavior,
        set_parent_process_death_signal, setrlimit,
    },
    thread::{
        CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set,
        set_capabilities, set_no_new_privs,
    },
};

use super::line::{Answer, Line, Named, Place, Request};
use crate::{
    file::BUDGET,
    helper,
    symbolize::{ModuleId, Symbolizer, demangle::demangle, perf_map::PerfMap},
};

/// The hidden subcommand that is this process.
pub(crate) const SUBCOMMAND: &str = "name";

/// For recursion over debug information and mangled names, bytes: a limit of the user's shell may be much lower.
const STACK: usize = 8 << 20;

/// The life of the process.
///
/// # Errors
/// A limit could not be set.
pub(crate) fn run() -> io::Result<()> {
    // No `pkill memtrace` means it.
    let line = Line::new(helper::begin(c"name-symbols"));
    confine()?;
    let served = thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || serve(line))?
        .join();
    served.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn confine() -> io::Result<()> {
    // It may be in the middle of a file that takes for ever.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // If memory runs out, it is the one to end.
    if let Err(error) = fs::write("/proc/self/oom_score_adj", "1000") {
        tracing::debug!("cannot write oom_score_adj: {error}");
    }
    for (resource, most) in [
        (Resource::Data, BUDGET),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
    ] {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit)?;
    }
    // A pipe for core dumps would get one in spite of the limit.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_no_new_privs(true)?;
    // blazesym opens its files again, by their descriptors.
    let kept = CapabilitySet::DAC_READ_SEARCH;
    for capability in CapabilitySet::all().difference(kept).iter() {
        // Without CAP_SETPCAP, or before the kernel knew of it: it is not gained without privileges to gain either.
        let _ = remove_capability_from_bounding_set(capability);
    }
    let permitted = capabilities(None)?.permitted & kept;
    set_capabilities(
        None,
        CapabilitySets {
            effective: permitted,
            permitted,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}

/// Answers requests until the line ends.
///
/// # Errors
/// The line is broken.
pub(super) fn serve(mut line: Line) -> io::Result<()> {
    let mut state = State::default();
    while let Some(request) = line.receive()? {
        state.answer(request, &mut line)?;
    }
    Ok(())
}

#[derive(Default)]
pub(super) struct State {
    symbolizer: Symbolizer,
    modules: HashMap<u32, ModuleId>,
    /// By tgid.
    maps: HashMap<u32, PerfMap>,
}

impl State {
    /// # Errors
    /// The line is broken, or the request makes no sense.
    pub(super) fn answer(&mut self, request: Request, line: &mut Line) -> io::Result<()> {
        let file = line.take_file();
        let lacking = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        match request {
            Request::Module {
                module,
                path,
                build_id,
                detail,
            } => {
                let file = file.ok_or_else(|| lacking("no file"))?;
                let (id, wanted) = self.symbolizer.add(&path, file, build_id, detail);
                self.modules.insert(module, id);
                line.send(&Answer::Module(wanted), None)
            }
            Request::DebugFile { module, proof } => {
                let file = file.ok_or_else(|| lacking("no file"))?;
                let id = self.module(module)?;
                let is_taken = self.symbolizer.offer(id, file, proof);
                line.send(&Answer::Taken(is_taken), None)
            }
            Request::Frames { module, places } => {
                let id = self.module(module)?;
                places.into_iter().try_for_each(|place| {
                    let frames = match place {
                        Place::FileOffset(offset) => self.symbolizer.frames(id, offset),
                        Place::VirtOffset(offset) => self.symbolizer.frames_at(id, offset),
                    };
                    let is_cut = self.symbolizer.is_cut(id);
                    line.send(&Answer::Frames(Named { frames, is_cut }), None)
                })
            }
            Request::Map {
                tgid,
                path,
                was_rewritten,
            } => {
                let file = file.ok_or_else(|| lacking("no file"))?;
                let is_new = match self.maps.get_mut(&tgid) {
                    Some(map) => map.update(file, was_rewritten),
                    None => {
                        self.maps.insert(tgid, PerfMap::new(path, file));
                        true
                    }
                };
                line.send(&Answer::Taken(is_new), None)
            }
            Request::Generated { tgid, addresses } => {
                let map = self.maps.get(&tgid).ok_or_else(|| lacking("no map"))?;
                addresses.into_iter().try_for_each(|address| {
                    let frame = map.frame(address);
                    let named = Named {
                        is_cut: map.is_cut() && frame.function.is_none(),
                        frames: vec![frame],
                    };
                    line.send(&Answer::Frames(named), None)
                })
            }
            Request::Demangle { names } => names.iter().try_for_each(|name| {
                line.send(&Answer::Readable(demangle(name).into_owned()), None)
            }),
            Request::Forget { tgid } => {
                self.maps.remove(&tgid);
                Ok(())
            }
        }
    }

    fn module(&self, module: u32) -> io::Result<ModuleId> {
        let id = self.modules.get(&module).copied();
        id.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no such module"))
    }
}
