//! The thread's work: requests in order, and another look at places whose names may become better.

use std::{
    collections::BTreeMap,
    fs::File,
    sync::{
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::{Duration, Instant},
};

use super::{ModuleKey, Named, Namer, Place, map_file::MapFile};
use crate::{process_root::Root, recording::LocationId};

/// How often a wait looks whether it is over.
pub(super) const SLICE: Duration = Duration::from_millis(20);

/// How often files are looked at that may have better names now.
const REFRESH: Duration = Duration::from_millis(250);

/// How long failed requests may take when the recording has ended and everything waits for names.
const PATIENCE_AT_THE_END: Duration = Duration::from_secs(10);

/// The names of a location, which may come again, with better ones.
pub(crate) type Answer = (LocationId, Named);

pub(super) enum Request {
    Module {
        index: u32,
        path: String,
        file: File,
        build_id: Option<String>,
        root: Option<Root>,
    },
    /// The perf map of a process.
    Map(u32, MapFile),
    /// An offset in a module, or an absolute address.
    Name(LocationId, Spot, u64),
    Forget(u32),
    Finish,
}

/// What a place is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Spot {
    Module(u32),
    Process(u32),
}

/// Places and their locations.
type Spots = BTreeMap<Spot, Vec<(LocationId, u64)>>;

struct Thread<'a> {
    namer: Namer,
    modules: BTreeMap<u32, ModuleKey>,
    answers: &'a Sender<Answer>,
    wanted: Spots,
    /// May have better names later: a debug file is being fetched, or a runtime writes its map behind its code.
    improvable: Spots,
    /// When to look at them again.
    next_look: Instant,
}

pub(super) fn run(namer: Namer, requests: &Receiver<Request>, answers: &Sender<Answer>) {
    let mut thread = Thread {
        namer,
        modules: BTreeMap::new(),
        answers,
        wanted: Spots::new(),
        improvable: Spots::new(),
        next_look: Instant::now(),
    };
    // False: nobody waits for names any more.
    while thread.turn(requests) {}
}

impl Thread<'_> {
    fn turn(&mut self, requests: &Receiver<Request>) -> bool {
        let until = self.next_look.saturating_duration_since(Instant::now());
        let first = match self.improvable.is_empty() {
            true => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => requests.recv_timeout(until),
        };
        let mut next = match first {
            Ok(request) => Some(request),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return false,
        };
        while let Some(request) = next {
            match request {
                Request::Module {
                    index,
                    path,
                    file,
                    build_id,
                    root,
                } => {
                    let key = self.namer.add(path, file, build_id, root);
                    self.modules.insert(index, key);
                }
                Request::Map(tgid, map) => self.namer.add_map(tgid, map),
                Request::Name(id, spot, at) => self.wanted.entry(spot).or_default().push((id, at)),
                Request::Forget(tgid) => {
                    if !self.name_wanted() || !self.look_again(Spot::Process(tgid)) {
                        return false;
                    }
                    self.improvable.remove(&Spot::Process(tgid));
                    self.namer.forget(tgid);
                }
                Request::Finish => {
                    self.finish();
                    return false;
                }
            }
            next = requests.try_recv().ok();
        }
        if !self.name_wanted() {
            return false;
        }
        if Instant::now() >= self.next_look {
            self.next_look = Instant::now() + REFRESH;
            return self.look_at_all();
        }
        true
    }

    fn name_wanted(&mut self) -> bool {
        std::mem::take(&mut self.wanted)
            .into_iter()
            .all(|(spot, places)| self.name(spot, places))
    }

    /// Names places, and keeps those in mind whose names may become better. False: nobody waits any more.
    fn name(&mut self, spot: Spot, places: Vec<(LocationId, u64)>) -> bool {
        let answers = self.answers;
        let mut rest = places.iter();
        let mut is_heard = true;
        let mut nameless = Vec::new();
        let mut pass = |named: Named| {
            if let Some(&(id, at)) = rest.next() {
                if named.frames.iter().all(|frame| frame.function.is_none()) {
                    nameless.push((id, at));
                }
                is_heard &= answers.send((id, named)).is_ok();
            }
        };
        let is_done = match spot {
            Spot::Module(index) => {
                let Some(&key) = self.modules.get(&index) else {
                    return true;
                };
                let at: Vec<Place> = places
                    .iter()
                    .map(|&(_, at)| Place::FileOffset(at))
                    .collect();
                let is_done = self.namer.name(key, &at, &mut pass);
                if self.namer.is_fetching(key) {
                    self.improvable.entry(spot).or_default().extend(places);
                }
                is_done
            }
            Spot::Process(tgid) => {
                let at: Vec<u64> = places.iter().map(|&(_, at)| at).collect();
                let is_done = self.namer.name_generated(tgid, &at, &mut pass);
                if !nameless.is_empty() {
                    self.improvable.entry(spot).or_default().extend(nameless);
                }
                is_done
            }
        };
        is_done && is_heard
    }

    fn look_at_all(&mut self) -> bool {
        let spots: Vec<Spot> = self.improvable.keys().copied().collect();
        spots.into_iter().all(|spot| self.look_again(spot))
    }

    fn look_again(&mut self, spot: Spot) -> bool {
        if !self.improvable.contains_key(&spot) {
            return true;
        }
        let (is_over, is_better) = match spot {
            Spot::Module(index) => {
                let key = self.modules.get(&index);
                match key.and_then(|&key| self.namer.take_fetched(key)) {
                    Some(has_come) => (true, has_come),
                    None => (false, false),
                }
            }
            Spot::Process(tgid) => (false, self.namer.refresh(tgid)),
        };
        if !is_over && !is_better {
            return true;
        }
        let places = self.improvable.remove(&spot).unwrap_or_default();
        !is_better || self.name(spot, places)
    }

    fn finish(&mut self) {
        self.namer.limit(PATIENCE_AT_THE_END);
        if !self.name_wanted() || !self.look_at_all() {
            return;
        }
        let is_fetched = |spot: &Spot| matches!(spot, Spot::Module(_));
        let deadline = Instant::now() + self.namer.patience().unwrap_or_default();
        while self.improvable.keys().any(is_fetched)
            && Instant::now() < deadline
            && !self.namer.is_over.load(Ordering::Relaxed)
        {
            std::thread::sleep(SLICE);
            if !self.look_at_all() {
                return;
            }
        }
    }
}
