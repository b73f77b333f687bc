//! Names for places in files of other users, read by a process that may fail: which file makes it fail is found out,
//! and read in less detail, then not at all. No other file loses its names.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    path::Path,
    sync::{Arc, atomic::AtomicBool, mpsc::TryRecvError},
    time::{Duration, Instant},
};

use super::{
    helper::{Failure, Helper, Spawn, spawn},
    line::{Answer, Named, Place, Request},
    map_file::MapFile,
    module::{Module, Search},
};
use crate::{
    frames::{Cause, Frame},
    process_root::Root,
    symbolize::{
        Detail,
        debug_files::{Places, Proof, Wanted},
        debuginfod::Client,
        demangle::is_mangled,
    },
};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A file that was added to a [`Namer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ModuleKey(u32);

/// A file with symbols, or a perf map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Subject {
    Module(ModuleKey),
    /// Of the process.
    Map(u32),
    /// Mangled names.
    Mangled,
}

/// See the module. It starts its process when the first name is wanted.
pub(crate) struct Namer {
    spawn: Spawn,
    helper: Option<Helper>,
    /// What the process has read, or was reading when it failed.
    known: HashSet<Subject>,
    modules: Vec<Module>,
    /// By tgid.
    maps: HashMap<u32, Map>,
    places: Places,
    client: Option<Client>,
    pub(super) is_over: Arc<AtomicBool>,
    /// Time that failed requests may still take, or all if somebody waits for each.
    left: Duration,
    is_awaited: bool,
}

struct Map {
    of: MapFile,
    /// Its file is not read any more.
    is_given_up: bool,
}

impl Namer {
    /// `client` fetches debug files that are not on this machine. Waits end when it `is_over`.
    pub(super) fn new(client: Option<Client>, is_over: Arc<AtomicBool>) -> Self {
        Self {
            spawn,
            helper: None,
            known: HashSet::new(),
            modules: Vec::new(),
            maps: HashMap::new(),
            places: Places::new(),
            client,
            is_over,
            left: Duration::MAX,
            is_awaited: false,
        }
    }

    /// One that somebody waits for: requests take `most` altogether, then there are no more names.
    pub(crate) fn awaited(most: Duration) -> Self {
        let mut namer = Self::new(None, Arc::default());
        namer.limit(most);
        namer.is_awaited = true;
        namer
    }

    /// From now on failed requests may take `most`.
    pub(super) fn limit(&mut self, most: Duration) {
        self.left = most;
    }

    /// Adds a module. `path` is its path as the process sees it, `file` the very inode that is mapped, `build_id`
    /// lower-case hex. `root` is the process's, with its own debug files; without it only this process's root is
    /// searched. Nothing is read before a name is wanted.
    pub(crate) fn add(
        &mut self,
        path: String,
        file: File,
        build_id: Option<String>,
        root: Option<Root>,
    ) -> ModuleKey {
        let key = ModuleKey(self.modules.len() as u32);
        self.modules.push(Module {
            path,
            file,
            build_id,
            detail: Some(Detail::Full),
            search: Search::Open { root, without: 0 },
        });
        key
    }

    /// Adds the perf map of process `tgid`. Without one, it is looked for when names are wanted.
    pub(super) fn add_map(&mut self, tgid: u32, of: MapFile) {
        let is_given_up = false;
        self.maps.entry(tgid).or_insert(Map { of, is_given_up });
    }

    /// Passes on the names of places in a module, in order. False if there are not all of them, because nobody waits
    /// for them any more or the process cannot be started.
    pub(crate) fn name(
        &mut self,
        key: ModuleKey,
        places: &[Place],
        mut pass: impl FnMut(Named),
    ) -> bool {
        let mut rest = places;
        while !rest.is_empty() {
            let Some(module) = self.modules.get(key.0 as usize) else {
                return false;
            };
            if module.detail.is_none() {
                rest.iter().for_each(|&place| pass(module.given_up(place)));
                return true;
            }
            let subject = Subject::Module(key);
            let named = self.prepare(key).and_then(|()| {
                let request = Request::Frames {
                    module: key.0,
                    places: rest.to_vec(),
                };
                self.send(subject, &request, None)?;
                while !rest.is_empty() {
                    pass(self.named(subject)?);
                    rest = rest.get(1..).unwrap_or_default();
                }
                Ok(())
            });
            match named {
                Ok(()) => return true,
                Err(Failed::Module) => {
                    if let Some(module) = self.modules.get_mut(key.0 as usize) {
                        module.reduce();
                    }
                }
                Err(Failed::Other) => {}
                Err(Failed::Over) => return false,
            }
        }
        true
    }

    /// As [`Namer::name`], for generated code of a process at absolute addresses.
    pub(super) fn name_generated(
        &mut self,
        tgid: u32,
        addresses: &[u64],
        mut pass: impl FnMut(Named),
    ) -> bool {
        let mut rest = addresses;
        let unnamed = |address: u64, cause, is_cut| Named {
            frames: vec![Frame::unknown(address, cause)],
            is_cut,
        };
        while !rest.is_empty() {
            self.open_map(tgid);
            let Some(map) = self.maps.get(&tgid) else {
                rest.iter()
                    .for_each(|&at| pass(unnamed(at, Cause::NoPerfMap, false)));
                return true;
            };
            if map.is_given_up {
                rest.iter()
                    .for_each(|&at| pass(unnamed(at, Cause::NamesBudget, true)));
                return true;
            }
            let subject = Subject::Map(tgid);
            let named = self.prepare_map(tgid).and_then(|()| {
                let request = Request::Generated {
                    tgid,
                    addresses: rest.to_vec(),
                };
                self.send(subject, &request, None)?;
                while !rest.is_empty() {
                    pass(self.named(subject)?);
                    rest = rest.get(1..).unwrap_or_default();
                }
                Ok(())
            });
            match named {
                Ok(()) => return true,
                Err(Failed::Module) => {
                    if let Some(map) = self.maps.get_mut(&tgid) {
                        map.is_given_up = true;
                    }
                }
                Err(Failed::Other) => {}
                Err(Failed::Over) => return false,
            }
        }
        true
    }

    /// Readable names for mangled ones; those that cannot be read in time stay as they are.
    pub(crate) fn demangle(&mut self, names: Vec<String>) -> Vec<String> {
        let mut readable = Vec::new();
        // Most need no process.
        if !names.iter().any(|name| is_mangled(name)) {
            return names;
        }
        while let Some(rest) = names.get(readable.len()..).filter(|rest| !rest.is_empty()) {
            let request = Request::Demangle {
                names: rest.to_vec(),
            };
            let done = self.send(Subject::Mangled, &request, None).and_then(|()| {
                for _ in rest {
                    readable.push(self.readable()?);
                }
                Ok(())
            });
            match done {
                Ok(()) => {}
                Err(Failed::Module) => readable.extend(names.get(readable.len()).cloned()),
                Err(Failed::Other) => {}
                Err(Failed::Over) => {
                    let rest = names.get(readable.len()..).unwrap_or_default().to_vec();
                    readable.extend(rest);
                }
            }
        }
        readable
    }

    fn readable(&mut self) -> Result<String, Failed> {
        match self.receive(Subject::Mangled)? {
            Answer::Readable(name) => Ok(name),
            _ => Err(self.failed(Subject::Mangled, unexpected(), Duration::ZERO)),
        }
    }

    /// Whether the map of a process has changed, so that its generated code is worth another look.
    pub(super) fn refresh(&mut self, tgid: u32) -> bool {
        let Some(map) = self.maps.get_mut(&tgid) else {
            return self.open_map(tgid);
        };
        if map.is_given_up {
            return false;
        }
        let Some(was_rewritten) = map.of.reopen() else {
            return false;
        };
        // A process that does not have it yet will read all of it.
        if !self.knows(Subject::Map(tgid)) {
            return true;
        }
        let changed = self.send_map(tgid, was_rewritten);
        if let (Err(Failed::Module), Some(map)) = (&changed, self.maps.get_mut(&tgid)) {
            map.is_given_up = true;
        }
        // After a failure, the next request finds out more.
        changed.unwrap_or(true)
    }

    /// The process has ended, or is another program now.
    pub(super) fn forget(&mut self, tgid: u32) {
        self.maps.remove(&tgid);
        if self.known.remove(&Subject::Map(tgid))
            && let Some(helper) = &mut self.helper
            && helper.send(&Request::Forget { tgid }, None).is_err()
        {
            self.stop();
        }
    }

    /// Whether a debug file of the module is being fetched.
    pub(super) fn is_fetching(&self, key: ModuleKey) -> bool {
        let module = self.modules.get(key.0 as usize);
        module.is_some_and(|module| matches!(module.search, Search::Fetching(_)))
    }

    /// Whether a fetch for the module has ended: `Some(true)` with a file, so that there are better names.
    pub(super) fn take_fetched(&mut self, key: ModuleKey) -> Option<bool> {
        let module = self.modules.get_mut(key.0 as usize)?;
        let Search::Fetching(fetched) = &module.search else {
            return None;
        };
        let file = match fetched.try_recv() {
            Ok(file) => file,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => None,
        };
        let Some(file) = file else {
            module.search = Search::Over(None);
            return Some(false);
        };
        module.search = Search::Over(Some((file.try_clone().ok()?, Proof::FETCHED)));
        // A process that does not know the module will get both.
        if self.knows(Subject::Module(key))
            && let Err(Failed::Module | Failed::Other) = self.offer(key, &file, Proof::FETCHED)
            && let Some(module) = self.modules.get_mut(key.0 as usize)
        {
            module.search = Search::Over(None);
        }
        Some(true)
    }

    /// Longest time to wait for fetches when nothing else is left to do.
    pub(super) fn patience(&self) -> Option<Duration> {
        self.client.as_ref().map(Client::patience)
    }

    /// Has the process read a module and its debug file, unless it has.
    fn prepare(&mut self, key: ModuleKey) -> Result<(), Failed> {
        let subject = Subject::Module(key);
        let Some(module) = self.modules.get(key.0 as usize) else {
            return Err(Failed::Over);
        };
        if self.knows(subject) {
            return Ok(());
        }
        let is_too_large = self.helper.as_ref().is_some_and(Helper::is_too_large);
        let request = Request::Module {
            module: key.0,
            path: module.path.clone(),
            build_id: module.build_id.clone(),
            detail: module.detail.unwrap_or(Detail::Symbols),
        };
        let file = module.file.try_clone().map_err(|_| Failed::Over)?;
        if is_too_large {
            self.stop();
        }
        self.send(subject, &request, Some(&file))?;
        match self.receive(subject)? {
            Answer::Module(wanted) => self.find(key, &wanted),
            _ => Err(self.failed(subject, unexpected(), Duration::ZERO)),
        }
    }

    /// Finds the debug file of a module, and has the process read it.
    fn find(&mut self, key: ModuleKey, wanted: &Wanted) -> Result<(), Failed> {
        let Some(module) = self.modules.get(key.0 as usize) else {
            return Err(Failed::Over);
        };
        let build_id = module.build_id.clone();
        let (first, candidates): (usize, Vec<_>) = match &module.search {
            Search::Open { root, without } => {
                let path = Path::new(&module.path);
                let found =
                    self.places
                        .candidates(path, build_id.as_deref(), wanted, root.as_ref());
                (*without, found.skip(*without).collect())
            }
            Search::Over(Some((file, proof))) => {
                let file = file.try_clone().map_err(|_| Failed::Over)?;
                (0, vec![(file, *proof)])
            }
            Search::Fetching(_) | Search::Over(None) => return Ok(()),
        };
        let mut found = None;
        for (at, (file, proof)) in (first..).zip(candidates) {
            match self.offer(key, &file, proof) {
                Ok(true) => {
                    found = Some((file, proof));
                    break;
                }
                Ok(false) => {}
                // The module does not depend on it.
                Err(Failed::Module | Failed::Other) => {
                    let module = self.modules.get_mut(key.0 as usize);
                    match module.map(|module| &mut module.search) {
                        Some(Search::Open { without, .. }) => *without = at + 1,
                        Some(search) => *search = Search::Over(None),
                        None => {}
                    }
                    return Err(Failed::Other);
                }
                Err(Failed::Over) => return Err(Failed::Over),
            }
        }
        let client = self.client.as_ref();
        let client = client.filter(|_| found.is_none() && wanted.lacks_debug_info);
        let fetched = client.and_then(|client| client.request(build_id.as_deref()?));
        if let Some(module) = self.modules.get_mut(key.0 as usize)
            && matches!(module.search, Search::Open { .. })
        {
            module.search = match fetched {
                Some(fetched) => Search::Fetching(fetched),
                None => Search::Over(found),
            };
        }
        Ok(())
    }

    /// Has the process read a debug file. True if it is the module's.
    fn offer(&mut self, key: ModuleKey, file: &File, proof: Proof) -> Result<bool, Failed> {
        let subject = Subject::Module(key);
        let module = key.0;
        self.send(subject, &Request::DebugFile { module, proof }, Some(file))?;
        self.taken(subject)
    }

    /// True if there is a map that was not there before.
    fn open_map(&mut self, tgid: u32) -> bool {
        if self.maps.contains_key(&tgid) {
            return false;
        }
        match MapFile::open(tgid) {
            Ok(of) => {
                self.add_map(tgid, of);
                true
            }
            Err(error) => {
                tracing::debug!("no perf map: {error}");
                false
            }
        }
    }

    fn prepare_map(&mut self, tgid: u32) -> Result<(), Failed> {
        match self.knows(Subject::Map(tgid)) {
            true => Ok(()),
            false => self.send_map(tgid, true).map(drop),
        }
    }

    /// True if it has something new.
    fn send_map(&mut self, tgid: u32, was_rewritten: bool) -> Result<bool, Failed> {
        let Some(map) = self.maps.get(&tgid) else {
            return Err(Failed::Over);
        };
        let file = map.of.file.try_clone().map_err(|_| Failed::Over)?;
        let request = Request::Map {
            tgid,
            path: map.of.path.display().to_string(),
            was_rewritten,
        };
        let subject = Subject::Map(tgid);
        self.send(subject, &request, Some(&file))?;
        self.taken(subject)
    }

    /// Whether the process has read it.
    fn knows(&self, subject: Subject) -> bool {
        self.helper.is_some() && self.known.contains(&subject)
    }

    fn send(
        &mut self,
        subject: Subject,
        request: &Request,
        file: Option<&File>,
    ) -> Result<(), Failed> {
        if self.left.is_zero() {
            return Err(Failed::Over);
        }
        if self.helper.is_none() {
            match Helper::start(self.spawn, PATIENCE) {
                Ok(helper) => self.helper = Some(helper),
                Err(failure) => return Err(self.failed(subject, failure, Duration::ZERO)),
            }
        }
        self.known.insert(subject);
        let Some(helper) = &mut self.helper else {
            return Err(Failed::Over);
        };
        let begun = Instant::now();
        let sent = helper.send(request, file);
        sent.map_err(|failure| self.failed(subject, failure, begun.elapsed()))
    }

    fn receive(&mut self, subject: Subject) -> Result<Answer, Failed> {
        let Some(helper) = &mut self.helper else {
            return Err(Failed::Over);
        };
        let begun = Instant::now();
        let answer = helper.receive(PATIENCE.min(self.left), &self.is_over);
        if self.is_awaited && answer.is_ok() {
            self.left = self.left.saturating_sub(begun.elapsed());
        }
        answer.map_err(|failure| self.failed(subject, failure, begun.elapsed()))
    }

    fn taken(&mut self, subject: Subject) -> Result<bool, Failed> {
        match self.receive(subject)? {
            Answer::Taken(is_taken) => Ok(is_taken),
            _ => Err(self.failed(subject, unexpected(), Duration::ZERO)),
        }
    }

    fn named(&mut self, subject: Subject) -> Result<Named, Failed> {
        match self.receive(subject)? {
            Answer::Frames(mut named) if !named.frames.is_empty() => {
                if let Subject::Module(key) = subject
                    && let Some(module) = self.modules.get(key.0 as usize)
                {
                    named.is_cut |= module.detail != Some(Detail::Full);
                }
                Ok(named)
            }
            _ => Err(self.failed(subject, unexpected(), Duration::ZERO)),
        }
    }

    /// Ends the process, and finds out whose failure it was.
    fn failed(&mut self, subject: Subject, failure: Failure, took: Duration) -> Failed {
        let is_alone = self.known.iter().all(|of| *of == subject);
        self.stop();
        self.left = self.left.saturating_sub(took);
        match failure {
            Failure::Over => return Failed::Over,
            Failure::NotStarted(_) => {
                tracing::warn!("functions will have no names: {failure}");
                return Failed::Over;
            }
            Failure::Died(_) | Failure::TooLarge | Failure::TooSlow => {
                tracing::debug!("no names of {subject:?} ({is_alone}): {failure}");
            }
        }
        if self.left.is_zero() {
            return Failed::Over;
        }
        // Memory may have been taken by others. Time has not.
        match is_alone || matches!(failure, Failure::TooSlow) {
            true => Failed::Module,
            false => Failed::Other,
        }
    }

    fn stop(&mut self) {
        self.helper = None;
        self.known.clear();
    }
}

/// The process was taken over by a file's author, perhaps.
fn unexpected() -> Failure {
    Failure::Died(std::io::ErrorKind::InvalidData.into())
}

/// What to do after a failure, which has ended the process.
enum Failed {
    /// Read less of the file in hand.
    Module,
    /// Try again.
    Other,
    /// Nothing.
    Over,
}

#[cfg(test)]
mod tests;
