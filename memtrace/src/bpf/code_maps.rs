//! Publishes the meaning of a process's addresses to the kernel side (see
//! `memtrace_common::code_map`).

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant},
};

use aya::{
    Ebpf,
    maps::{Array, HashMap as BpfHashMap, MapData, MapError},
};
use memtrace_common::{
    code_map::{LOG_EXEC, Log, Mapping, Snapshot},
    element::Table,
    python::{Imports, Interpreter, NONE},
};

use super::{
    changes::Changes,
    elements::{ElementMap, Elements},
    error::{CodeError, TracerError},
    interpreters::Interpreters,
    maps::{descriptor, take},
    raw::{Plain, Raw, Shared},
};

/// A list that nothing refers to any more is overwritten only after this time: a
/// walk that uses it, and a fork that has just copied its place, are over by then.
const QUARANTINE: Duration = Duration::from_secs(2);

/// Most mappings of one process; the kernel side's search takes no more.
const MOST: usize = (1 << 14) - 1;

/// The snapshots of all processes.
pub(crate) struct CodeMaps {
    mappings: Shared<Mapping>,
    snapshots: ElementMap<u32, Snapshot>,
    logs: ElementMap<u32, Log>,
    requests: ElementMap<u32, u8>,
    /// The keys of `requests`.
    requested: BpfHashMap<MapData, u32, u8>,
    interpreters: Array<MapData, Raw<Interpreter>>,
    interpreter_of: ElementMap<u32, u32>,
    imports: ElementMap<u32, Imports>,
    code_ends: ElementMap<u32, u32>,
    numbers: Interpreters,
    extents: Extents,
    /// By tgid: the place of its snapshot.
    published: HashMap<u32, (Extent, Snapshot)>,
    /// Number of lists so far.
    lists: u64,
    changes: Changes,
}

impl CodeMaps {
    pub(super) fn take(ebpf: &mut Ebpf, elements: &Arc<Elements>) -> Result<Self, TracerError> {
        let fd = descriptor(ebpf, "MAPPINGS")?;
        let array = ebpf
            .map("MAPPINGS")
            .ok_or(TracerError::Missing("MAPPINGS"))?;
        let capacity = Array::<_, Raw<Mapping>>::try_from(array)?.len();
        Ok(Self {
            mappings: Shared::map(fd.as_fd(), capacity as usize).map_err(TracerError::State)?,
            snapshots: ElementMap::new(elements, Table::Snapshots),
            logs: ElementMap::new(elements, Table::Logs),
            requests: ElementMap::new(elements, Table::Requests),
            requested: BpfHashMap::try_from(take(ebpf, "REQUESTS")?)?,
            interpreters: no_interpreter(Array::try_from(take(ebpf, "INTERPRETERS")?)?)?,
            interpreter_of: ElementMap::new(elements, Table::InterpreterOf),
            imports: ElementMap::new(elements, Table::Imports),
            code_ends: ElementMap::new(elements, Table::CodeEnds),
            numbers: Interpreters::default(),
            extents: Extents::new(capacity),
            published: HashMap::new(),
            lists: 0,
            changes: Changes::of(ebpf)?,
        })
    }

    /// Begins to log the changes of a process's code.
    pub(super) fn begin(&mut self, tgid: u32) -> Result<(), MapError> {
        self.set_log(tgid, Log::default())
    }

    /// Has the imports of a process summarised, whose import system this is; `None`: not any more.
    pub(crate) fn set_imports(
        &mut self,
        tgid: u32,
        imports: Option<Imports>,
    ) -> Result<(), MapError> {
        set(&mut self.imports, tgid, imports)?;
        self.changes.announce();
        Ok(())
    }

    /// Publishes that the end of each code object of a process is seen, of the interpreter in the file number `exec`;
    /// `None`: it is not any more.
    pub(crate) fn set_code_ends(&mut self, tgid: u32, exec: Option<u32>) -> Result<(), MapError> {
        set(&mut self.code_ends, tgid, exec)?;
        // As in `publish`.
        if self.logs.get(tgid).is_err() {
            let _ = self.code_ends.remove(tgid);
        }
        self.changes.announce();
        Ok(())
    }

    /// Invalidates the published snapshot of a process until it is published again. Only for a
    /// process with nothing recorded yet: its changes were not logged.
    pub(crate) fn distrust(&mut self, tgid: u32) -> Result<(), MapError> {
        let log = Log {
            sequence: LOG_EXEC,
            ..Log::default()
        };
        self.set_log(tgid, log)
    }

    fn set_log(&mut self, tgid: u32, log: Log) -> Result<(), MapError> {
        self.logs.insert(tgid, log)?;
        self.changes.announce();
        Ok(())
    }

    /// Whether a process's code has changed, or may have, since it was published.
    pub(crate) fn is_behind(&self, tgid: u32) -> bool {
        let snapshot = self.snapshots.get(tgid);
        match (self.sequence(tgid), snapshot) {
            (Ok(sequence), Ok(snapshot)) => sequence != snapshot.as_of,
            _ => true,
        }
    }

    /// Number of changes so far: to be read before the mappings are read.
    ///
    /// # Errors
    /// The process is not traced.
    pub(crate) fn sequence(&self, tgid: u32) -> Result<u64, MapError> {
        Ok(self.logs.get(tgid)?.sequence)
    }

    /// Publishes the executable mappings of a process, sorted by address, as of `sequence`.
    ///
    /// # Errors
    /// There is no room, or the kernel refuses; the process's walks are then marked stale.
    pub(crate) fn publish(
        &mut self,
        tgid: u32,
        sequence: u64,
        mappings: &[Mapping],
    ) -> Result<(), CodeError> {
        let mappings = &mappings[..mappings.len().min(MOST)];
        if let Some((extent, snapshot)) = self.published.get_mut(&tgid) {
            let first = extent.first as usize;
            let known = self.mappings.get(first..first + snapshot.count as usize);
            if known == Some(mappings) {
                snapshot.as_of = sequence;
                self.snapshots.insert(tgid, *snapshot)?;
                self.changes.announce();
                return Ok(());
            }
        }
        let extent = self
            .extents
            .allocate(mappings.len() as u32, Instant::now())
            .ok_or(CodeError::Full(mappings.len()))?;
        let first = extent.first as usize;
        if let Some(place) = self.mappings.get_mut(first..first + mappings.len()) {
            place.copy_from_slice(mappings);
        }
        self.lists += 1;
        let snapshot = Snapshot {
            list: self.lists,
            first: extent.first,
            count: mappings.len() as u32,
            as_of: sequence,
        };
        self.snapshots.insert(tgid, snapshot)?;
        self.changes.announce();
        if let Some((old, _)) = self.published.insert(tgid, (extent, snapshot)) {
            self.extents.release(old, Instant::now());
        }
        // The kernel side removes both when a process ends; it may just have.
        if self.logs.get(tgid).is_err() {
            let _ = self.snapshots.remove(tgid);
        }
        Ok(())
    }

    /// A forked child has its parent's code; the kernel side has copied its location. False if the
    /// parent has another snapshot by now, so that the child needs its own.
    pub(crate) fn forked(&mut self, parent: u32, child: u32) -> bool {
        self.numbers.forked(parent, child);
        let copied = self.snapshots.get(child);
        match (self.published.get(&parent), copied) {
            (Some(&(extent, known)), Ok(snapshot)) if snapshot == known => {
                self.extents.share(extent);
                if let Some((old, _)) = self.published.insert(child, (extent, known)) {
                    self.extents.release(old, Instant::now());
                }
                true
            }
            _ => false,
        }
    }

    /// Forgets a process that has ended.
    pub(crate) fn ended(&mut self, tgid: u32) {
        self.numbers.release(tgid);
        if let Some((extent, _)) = self.published.remove(&tgid) {
            self.extents.release(extent, Instant::now());
        }
    }

    /// Publishes which interpreter a process runs; `None`: its stacks have no Python frames any more.
    ///
    /// # Errors
    /// There are too many different ones, or the kernel refuses; stacks then have no Python frames.
    pub(crate) fn set_interpreter(
        &mut self,
        tgid: u32,
        interpreter: Option<Interpreter>,
    ) -> Result<(), MapError> {
        let Some(interpreter) = interpreter else {
            self.numbers.release(tgid);
            set(&mut self.interpreter_of, tgid, None)?;
            self.changes.announce();
            return Ok(());
        };
        let (number, new) = self.numbers.number(tgid, interpreter);
        if new && let Err(error) = self.interpreters.set(number, Raw(interpreter), 0) {
            self.numbers.release(tgid);
            return Err(error);
        }
        self.interpreter_of.insert(tgid, number)?;
        // As in `publish`.
        if self.logs.get(tgid).is_err() {
            let _ = self.interpreter_of.remove(tgid);
        }
        self.changes.announce();
        Ok(())
    }

    /// Processes for which the kernel side requests a new snapshot.
    pub(crate) fn requests(&mut self) -> Vec<u32> {
        let wanted: Vec<u32> = self.requested.keys().filter_map(Result::ok).collect();
        for tgid in &wanted {
            let _ = self.requests.remove(*tgid);
        }
        wanted
    }
}

/// Sets a process's value, or removes it if there is one.
fn set<V: Plain>(
    map: &mut ElementMap<u32, V>,
    tgid: u32,
    value: Option<V>,
) -> Result<(), MapError> {
    match value {
        Some(value) => map.insert(tgid, value),
        None => match map.remove(tgid) {
            Err(MapError::KeyNotFound) => Ok(()),
            removed => removed,
        },
    }
}

/// Number 0 stands for no interpreter, so it must not have code.
fn no_interpreter(
    mut interpreters: Array<MapData, Raw<Interpreter>>,
) -> Result<Array<MapData, Raw<Interpreter>>, MapError> {
    let none = Interpreter {
        exec: NONE,
        ..Interpreter::default()
    };
    interpreters.set(0, Raw(none), 0)?;
    Ok(interpreters)
}

/// A range of MAPPINGS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    first: u32,
    len: u32,
}

/// Who uses which part of MAPPINGS.
#[derive(Debug)]
struct Extents {
    /// Free extents, first → length; neighbours are merged.
    free: BTreeMap<u32, u32>,
    /// First → number of processes.
    users: HashMap<u32, u32>,
    /// Extents that become free, in order of time.
    quarantine: VecDeque<(Instant, Extent)>,
}

impl Extents {
    fn new(capacity: u32) -> Self {
        Self {
            free: BTreeMap::from([(0, capacity)]),
            users: HashMap::new(),
            quarantine: VecDeque::new(),
        }
    }

    fn allocate(&mut self, len: u32, now: Instant) -> Option<Extent> {
        while let Some(&(since, extent)) = self.quarantine.front()
            && now.duration_since(since) >= QUARANTINE
        {
            self.quarantine.pop_front();
            self.reuse(extent);
        }
        // An empty list takes a place too, so that each list has one of its own.
        let len = len.max(1);
        let (&first, &found) = self.free.iter().find(|&(_, &found)| found >= len)?;
        self.free.remove(&first);
        if found > len {
            self.free.insert(first + len, found - len);
        }
        self.users.insert(first, 1);
        Some(Extent { first, len })
    }

    fn share(&mut self, extent: Extent) {
        *self.users.entry(extent.first).or_default() += 1;
    }

    fn release(&mut self, extent: Extent, now: Instant) {
        if let Some(users) = self.users.get_mut(&extent.first) {
            *users -= 1;
            if *users == 0 {
                self.users.remove(&extent.first);
                self.quarantine.push_back((now, extent));
            }
        }
    }

    fn reuse(&mut self, Extent { mut first, mut len }: Extent) {
        if let Some((&before, &before_len)) = self.free.range(..first).next_back()
            && before + before_len == first
        {
            first = before;
            len += before_len;
        }
        if let Some(after_len) = self.free.remove(&(first + len)) {
            len += after_len;
        }
        self.free.insert(first, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_reused_only_after_its_last_user_and_the_quarantine() {
        let start = Instant::now();
        let mut extents = Extents::new(10);
        let first = extents.allocate(6, start).unwrap();
        assert_eq!(extents.allocate(6, start), None);
        extents.share(first);
        extents.release(first, start);
        assert_eq!(extents.allocate(6, start + QUARANTINE), None);
        extents.release(first, start);
        assert_eq!(extents.allocate(6, start), None);
        assert_eq!(extents.allocate(6, start + QUARANTINE), Some(first));
    }

    #[test]
    fn neighbours_become_one() {
        let start = Instant::now();
        let mut extents = Extents::new(9);
        let lists = [(); 3].map(|()| extents.allocate(3, start).unwrap());
        for index in [0, 2, 1] {
            extents.release(lists[index], start);
        }
        let later = start + QUARANTINE;
        assert_eq!(
            extents.allocate(9, later),
            Some(Extent { first: 0, len: 9 })
        );
    }

    #[test]
    fn an_empty_list_has_a_place_of_its_own() {
        let mut extents = Extents::new(2);
        let now = Instant::now();
        assert_ne!(extents.allocate(0, now), extents.allocate(0, now));
    }
}
