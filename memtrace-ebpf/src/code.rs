//! The meaning of a process's addresses: the collector's snapshot of its executable mappings, and later changes (see
//! `memtrace_common::code_map`).

use memtrace_common::{
    code_map::{Change, LOG, LOG_EXEC, Log, Mapping, Snapshot, mapping_kind},
    process::Process,
    row_cache::FoundRow,
    unwind::End,
};

use crate::{
    arch::{keep_order_of_reads, publish},
    atomic::{add, take_number, word},
    emit,
    maps::{
        CODE_ENDS, IMPORTS, INTERPRETER_OF, INTERPRETERS, LOGS, MAPPINGS, REQUESTS, SETTINGS,
        SNAPSHOTS, changed, loaded,
    },
    rows,
};

/// The code of one process at one moment.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Code {
    tgid: u32,
    pad: u32,
    /// [`Log::sequence`] at that moment.
    sequence: u64,
    snapshot: Snapshot,
}

/// Steps of a search among mappings; a snapshot has fewer than 2 to that.
const MAPPING_STEPS: usize = 14;

impl Code {
    /// The code of the process `tgid` now.
    ///
    /// # Errors
    /// It is not known: no snapshot yet, or too many changes since.
    #[inline(always)]
    pub(crate) fn of(tgid: u32) -> Result<Self, End> {
        let sequence = sequence(tgid).ok_or(End::Stale)?;
        Self::at(tgid, sequence, snapshot(tgid).ok_or(End::Stale)?)
    }

    /// The same, where its [`sequence`] and its snapshot are known.
    ///
    /// # Errors
    /// Too many changes since.
    #[inline(always)]
    pub(crate) fn at(tgid: u32, sequence: u64, snapshot: Snapshot) -> Result<Self, End> {
        if sequence.wrapping_sub(snapshot.as_of) > LOG as u64 {
            return Err(End::Stale);
        }
        Ok(Self {
            tgid,
            pad: 0,
            sequence,
            snapshot,
        })
    }

    /// [`Log::sequence`] at that moment.
    #[inline(always)]
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether the code has not changed since [`Code::of`].
    #[inline(always)]
    pub(crate) fn is_current(&self) -> bool {
        sequence(self.tgid) == Some(self.sequence)
    }

    /// Whether something has changed since the snapshot.
    #[inline(always)]
    fn is_logged_since(&self) -> bool {
        self.sequence != self.snapshot.as_of
    }

    /// The result of an earlier walk for the code at `pc`. Only if the list of mappings has not changed since, because
    /// only then it gives the meaning of an address by itself.
    #[inline(always)]
    pub(crate) fn known(&self, pc: u64) -> Option<FoundRow> {
        if self.is_logged_since() {
            return None;
        }
        rows::known(self.snapshot.list, pc)
    }

    /// Keeps the result of a walk for the code at `pc`.
    #[inline(always)]
    pub(crate) fn remember(&self, pc: u64, row: FoundRow) {
        if !self.is_logged_since() {
            rows::remember(self.snapshot.list, pc, row);
        }
    }

    /// The mapping that `pc` lies in.
    ///
    /// # Errors
    /// There is none, or the log is just being written.
    #[inline(always)]
    pub(crate) fn find(&self, pc: u64) -> Result<Mapping, End> {
        if self.is_logged_since()
            && let Some(mapping) = self.find_in_log(pc)?
        {
            return Ok(mapping);
        }
        let mapping = self.last_before(pc.wrapping_add(1)).ok_or(End::NoMapping)?;
        if pc < mapping.start || pc >= mapping.end || mapping.kind == mapping_kind::UNKNOWN {
            return Err(End::NoMapping);
        }
        Ok(*mapping)
    }

    /// The logged change. The process runs this very program, so it is there.
    #[inline(always)]
    fn log(&self) -> Result<&'static Log, End> {
        // VERIFIER: a copy on the stack; older kernels accept a key from nowhere else.
        let tgid = self.tgid;
        // SAFETY: a live map value. Readers of a change check its sequence.
        LOGS.get_ptr(&tgid)
            .map(|log| unsafe { &*log })
            .ok_or(End::Stale)
    }

    #[inline(always)]
    fn find_in_log(&self, pc: u64) -> Result<Option<Mapping>, End> {
        let log = self.log()?;
        for age in 1..=LOG as u64 {
            let sequence = self.sequence.wrapping_sub(age);
            if sequence.wrapping_add(1) == self.snapshot.as_of {
                break;
            }
            let change = change(log, sequence);
            if change.sequence != sequence.wrapping_add(1) {
                return Err(End::Stale);
            }
            keep_order_of_reads();
            if pc >= change.mapping.start && pc < change.mapping.end {
                return if change.mapping.kind == mapping_kind::UNKNOWN {
                    Err(End::NoMapping)
                } else {
                    Ok(Some(change.mapping))
                };
            }
        }
        Ok(None)
    }

    /// The last mapping of the snapshot that starts before `addr`; the first one if none does.
    #[inline(always)]
    fn last_before(&self, addr: u64) -> Option<&'static Mapping> {
        let (mut base, mut len) = (self.snapshot.first, self.snapshot.count);
        for _ in 0..MAPPING_STEPS {
            if len <= 1 {
                break;
            }
            let half = len >> 1;
            let probe = base + half;
            let start = MAPPINGS.get(probe)?.start;
            // VERIFIER: a mask instead of a branch. Addresses of user space are positive.
            let before = ((start as i64).wrapping_sub(addr as i64) >> 63) as u32;
            base = base & !before | probe & before;
            len -= half;
        }
        if len == 0 { None } else { MAPPINGS.get(base) }
    }

    /// Whether something in the range has changed since the snapshot.
    #[inline(always)]
    fn has_changed(&self, start: u64, end: u64) -> bool {
        let Ok(log) = self.log() else {
            return true;
        };
        for age in 1..=LOG as u64 {
            let sequence = self.sequence.wrapping_sub(age);
            if sequence.wrapping_add(1) == self.snapshot.as_of {
                break;
            }
            let mapping = &change(log, sequence).mapping;
            if start < mapping.end && mapping.start < end {
                return true;
            }
        }
        false
    }

    /// Whether the snapshot has code in the range.
    #[inline(always)]
    fn had_code(&self, start: u64, end: u64) -> bool {
        // Sorted and disjoint: if any overlaps, the last that starts before the end does.
        self.last_before(end)
            .is_some_and(|mapping| start < mapping.end && mapping.start < end)
    }
}

/// The snapshot of a process.
///
/// Looked up twice: the collector's update gives the entry a new place, and the old one, which we may have got, to another
/// process. A value that is confirmed by a second look is this one's. It stays true for the time of a walk, as the
/// collector writes over a list only long after it was replaced.
#[inline(always)]
pub(crate) fn snapshot(tgid: u32) -> Option<Snapshot> {
    // SAFETY: copied at once.
    let look_up = || unsafe { SNAPSHOTS.get(&tgid) }.copied();
    let snapshot = look_up()?;
    (look_up() == Some(snapshot)).then_some(snapshot)
}

/// The number of a process's interpreter among INTERPRETERS; 0 if there is none.
#[inline(always)]
pub(crate) fn interpreter(tgid: u32) -> u32 {
    // SAFETY: copied at once.
    unsafe { INTERPRETER_OF.get(&tgid) }.copied().unwrap_or(0)
}

/// Whether the end of each code object is seen in a process that has the interpreter with this number.
#[inline(always)]
pub(crate) fn has_code_ends(tgid: u32, interpreter: u32) -> bool {
    // SAFETY: copied at once.
    let file = unsafe { CODE_ENDS.get(&tgid) }.copied();
    let python = INTERPRETERS.get(interpreter);
    file.is_some() && python.map(|python| python.exec) == file
}

/// Whether a process's imports are summarised.
#[inline(always)]
pub(crate) fn has_imports(tgid: u32) -> bool {
    // SAFETY: not kept.
    unsafe { IMPORTS.get(&tgid) }.is_some()
}

/// [`Log::sequence`] of a process.
#[inline(always)]
pub(crate) fn sequence(tgid: u32) -> Option<u64> {
    let log = LOGS.get_ptr(&tgid)?;
    // SAFETY: a live map value.
    Some(unsafe { core::ptr::read_volatile(&raw const (*log).sequence) })
}

#[inline(always)]
fn change(log: &Log, sequence: u64) -> &Change {
    &log.changes[sequence as usize & (LOG - 1)]
}

/// Logs that `mapping` is code of the process now (or, with kind UNKNOWN, that the contents of its range are unknown).
#[inline(always)]
pub(crate) fn mapped(tgid: u32, mapping: Mapping) {
    let Some(log) = LOGS.get_ptr_mut(&tgid) else {
        return;
    };
    // SAFETY: a live map value. Its sequence is the change's own from the moment it is taken; readers
    // check the change's copy of it, which is written last.
    unsafe {
        let which = word::LOG | u64::from(tgid);
        let Some(sequence) = take_number(&raw mut (*log).sequence, 1, which) else {
            // Nothing is known any more.
            add(&raw mut (*log).sequence, LOG_EXEC);
            return;
        };
        let change = &raw mut (*log).changes[sequence as usize & (LOG - 1)];
        core::ptr::write_volatile(&raw mut (*change).sequence, 0);
        (*change).mapping = mapping;
        publish(&raw mut (*change).sequence, sequence.wrapping_add(1));
    }
    changed();
    request_snapshot(tgid);
}

/// Whether so many changes wait for the collector that it may come too late: the
/// process has to wait for it then. Not once it has come too late.
#[inline(always)]
pub(crate) fn is_far_behind(tgid: u32) -> bool {
    let Some(log) = LOGS.get_ptr(&tgid) else {
        return false;
    };
    // SAFETY: a live map value, and one that is copied.
    let (sequence, snapshot) = unsafe {
        let sequence = core::ptr::read_volatile(&raw const (*log).sequence);
        (sequence, SNAPSHOTS.get(&tgid).copied().unwrap_or_default())
    };
    let behind = sequence.wrapping_sub(snapshot.as_of);
    behind > LOG as u64 / 2 && behind <= LOG as u64
}

/// Asks the collector for a new snapshot. One that is full of requests looks anyway.
#[inline(always)]
pub(crate) fn request_snapshot(tgid: u32) {
    let _ = REQUESTS.insert(&tgid, &1, 0);
}

/// The kernel maps and unmaps whole pages, whatever the request.
#[inline(always)]
pub(crate) fn whole_pages(len: u64) -> u64 {
    let page = u64::from(loaded(&SETTINGS.page_size));
    len.wrapping_add(page.wrapping_sub(1)) & !page.wrapping_sub(1)
}

// VERIFIER: global functions, these two: the programs that call them are verified without them.
/// Logs that a range no longer holds code, if it may have held any.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn unmapping(tgid: u32, start: u64, len: u64) -> u64 {
    let end = start.wrapping_add(whole_pages(len));
    // An unknown range may hold code.
    if Code::of(tgid).is_ok_and(|code| !code.has_changed(start, end) && !code.had_code(start, end))
    {
        return 0;
    }
    mapped(tgid, unknown(start, end));
    0
}

/// Logs the same once it is done, if a snapshot was taken in between: it still has the code, and
/// came after the first word of its end.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn unmapped(tgid: u32, start: u64, len: u64) -> u64 {
    let end = start.wrapping_add(whole_pages(len));
    if Code::of(tgid).is_ok_and(|code| code.had_code(start, end) && !code.has_changed(start, end)) {
        mapped(tgid, unknown(start, end));
    }
    0
}

#[inline(always)]
fn unknown(start: u64, end: u64) -> Mapping {
    Mapping {
        start,
        end,
        bias: 0,
        exec: 0,
        kind: mapping_kind::UNKNOWN,
    }
}

/// A forked child's code is its parent's.
#[inline(always)]
pub(crate) fn forked(parent: u32, child: u32) {
    // SAFETY: copied by the helpers; a change that is being written meanwhile shows by its sequence.
    unsafe {
        // Without either, the child's walks end as stale.
        if let Some(log) = LOGS.get_ptr(&parent) {
            let _ = LOGS.insert(&child, &*log, 0);
        }
        if let Some(snapshot) = SNAPSHOTS.get(&parent) {
            let _ = SNAPSHOTS.insert(&child, snapshot, 0);
        }
        if let Some(interpreter) = INTERPRETER_OF.get(&parent) {
            let _ = INTERPRETER_OF.insert(&child, interpreter, 0);
        }
    }
}

static EMPTY: Log = Log {
    sequence: LOG_EXEC,
    changes: [Change {
        sequence: 0,
        mapping: Mapping {
            start: 0,
            end: 0,
            bias: 0,
            exec: 0,
            kind: mapping_kind::UNKNOWN,
        },
    }; LOG],
};

/// Nothing is known of a new program.
#[inline(always)]
pub(crate) fn executed(tgid: u32) {
    let _ = CODE_ENDS.remove(&tgid);
    let _ = IMPORTS.remove(&tgid);
    let _ = INTERPRETER_OF.remove(&tgid);
    match LOGS.get_ptr_mut(&tgid) {
        // SAFETY: a live map value.
        Some(log) => unsafe {
            add(&raw mut (*log).sequence, LOG_EXEC);
        },
        // A vfork child had its parent's until now.
        None => {
            let _ = LOGS.insert(&tgid, &EMPTY, 0);
        }
    }
}

/// Forgets a process that has ended.
#[inline(always)]
pub(crate) fn exited(tgid: u32) {
    let _ = CODE_ENDS.remove(&tgid);
    let _ = IMPORTS.remove(&tgid);
    let _ = INTERPRETER_OF.remove(&tgid);
    let _ = LOGS.remove(&tgid);
    let _ = SNAPSHOTS.remove(&tgid);
}

/// Another epoch than before, and than any relative's: forked children begin with their parent's, and may map different
/// code at the same address. By the time as well: a child may get the number of one that has ended.
#[inline(always)]
pub(crate) fn next_epoch(process: &Process, tgid: u32) -> u64 {
    (process.epoch ^ (tgid as u64) << 32 ^ emit::now())
        .wrapping_mul(0x5851_f42d_4c95_7f2d)
        .wrapping_add(0x1405_7b7e_f767_814f)
}
