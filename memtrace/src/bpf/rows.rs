//! Hands unwind tables to the kernel side (see `memtrace_common::unwind_table::Exec`).

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::{
        Mutex, PoisonError,
        atomic::{Ordering, fence},
    },
};

use aya::{
    Ebpf,
    maps::{MapData, MapError},
};
use aya_obj::generated::bpf_map_type;
use memtrace_common::{
    unwind::{EXECS, Rule, cfa},
    unwind_table::{BLOCK, Exec, RULES, exec_state},
};

use super::{
    error::TracerError,
    maps::descriptor,
    raw::{Shared, update},
};
use crate::unwind::Table;

/// As the kernel side declares the arrays of rows: BPF_F_INNER_MAP | BPF_F_MMAPABLE.
const ROWS_FLAGS: u32 = 0x1400;

/// Why a table could not be handed over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RowsError {
    #[error("cannot make a map for it: {0}")]
    Map(#[from] MapError),
    #[error("cannot write it: {0}")]
    Write(#[from] io::Error),
    #[error("the limit of {EXECS} files is reached")]
    TooManyFiles,
}

/// The destination of tables.
pub(crate) trait Loader: Send + Sync {
    /// Makes `table` the one of file number `exec`; `None`: it has none, which is
    /// to be walked along frame pointers.
    ///
    /// # Errors
    /// The kernel refuses, usually for lack of memory; walks then end in the file.
    fn load(&self, exec: u32, table: Option<&Table>) -> Result<(), RowsError>;
}

/// The tables of all files. Shared by the threads that compile them.
pub(crate) struct Rows {
    outer: OwnedFd,
    execs: OwnedFd,
    rules: Mutex<Rules>,
}

impl Rows {
    pub(super) fn new(ebpf: &Ebpf) -> Result<Self, TracerError> {
        Ok(Self {
            outer: descriptor(ebpf, "ROWS")?,
            execs: descriptor(ebpf, "EXECS")?,
            rules: Mutex::new(Rules::new(
                Shared::map(descriptor(ebpf, "RULES")?.as_fd(), RULES as usize)
                    .map_err(TracerError::State)?,
            )),
        })
    }
}

impl Loader for Rows {
    fn load(&self, exec: u32, table: Option<&Table>) -> Result<(), RowsError> {
        if exec >= EXECS {
            return Err(RowsError::TooManyFiles);
        }
        let Some(table) = table else {
            let exec_entry = Exec {
                state: exec_state::NO_TABLES,
                ..Exec::default()
            };
            return Ok(update(self.execs.as_fd(), exec, exec_entry)?);
        };
        let global: Vec<u32> = {
            let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
            table.rules.iter().map(|&rule| rules.number(rule)).collect()
        };
        let blocks = table.words.len().div_ceil(BLOCK);
        let inner = MapData::create(
            aya_obj::Map::new_from_params(
                bpf_map_type::BPF_MAP_TYPE_ARRAY as u32,
                size_of::<u32>() as u32,
                (BLOCK * size_of::<u32>()) as u32,
                u32::try_from(blocks).unwrap_or(u32::MAX),
                ROWS_FLAGS,
            ),
            "rows",
            None,
        )?;
        let mut words: Shared<u32> = Shared::map(inner.fd().as_fd(), blocks * BLOCK)?;
        let directory = table.exec.pages as usize + 1;
        for (index, (to, &from)) in words.iter_mut().zip(&table.words).enumerate() {
            *to = if index < directory {
                from
            } else {
                // A row: its rule by the number that it has among all files' rules.
                let number = global.get((from & 0xffff) as usize).copied().unwrap_or(0);
                from & 0xffff_0000 | number
            };
        }
        update(
            self.outer.as_fd(),
            exec,
            inner.fd().as_fd().as_raw_fd().cast_unsigned(),
        )?;
        // Twice, because a concurrent walk keeps its first result: once the state lets it read the
        // rest, the rest must be there.
        for state in [exec_state::NOT_LOADED, exec_state::ROWS] {
            let entry = Exec {
                state,
                ..table.exec
            };
            update(self.execs.as_fd(), exec, entry)?;
            // Neither update is ordered by itself.
            fence(Ordering::SeqCst);
        }
        Ok(())
    }
}

/// The RULES map. Number 0 stands for rules that could not be numbered.
struct Rules {
    shared: Shared<Rule>,
    numbers: HashMap<Rule, u32>,
}

impl Rules {
    fn new(mut shared: Shared<Rule>) -> Self {
        let unsupported = Rule {
            cfa: cfa::UNSUPPORTED,
            ..Rule::default()
        };
        if let Some(first) = shared.first_mut() {
            *first = unsupported;
        }
        Self {
            shared,
            numbers: HashMap::from([(unsupported, 0)]),
        }
    }

    fn number(&mut self, rule: Rule) -> u32 {
        if let Some(&number) = self.numbers.get(&rule) {
            return number;
        }
        let number = self.numbers.len();
        let Some(place) = self.shared.get_mut(number) else {
            return 0;
        };
        *place = rule;
        let number = number as u32;
        self.numbers.insert(rule, number);
        number
    }
}
