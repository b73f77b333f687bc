//! Decides which ended processes are folded: there may be so many short-lived ones that memory and
//! file would grow with every process that ever lived. See `docs/reference/recording.md`.

use std::collections::HashMap;

use crate::{
    ledger::{Ledger, ProcessId},
    recording::{Origin, ProcessRow, SHORT_LIVED},
};

/// The first processes of a command line are kept as they are; this many of each, and this many in
/// total.
const KEPT_EACH: u32 = 8;
const KEPT: u32 = 64;

/// Command lines with a group of their own; further ones are folded by the name of their program, and
/// further programs into one group.
const COMMAND_LINES: usize = 64;
const PROGRAMS: usize = 64;

/// The common properties of a group's processes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Kind {
    CommandLine(Vec<String>),
    Program(String),
    Any,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Folding {
    enabled: bool,
    /// Processes kept, by command line and in total.
    kept: HashMap<Vec<String>, u32>,
    all_kept: u32,
    groups: HashMap<Kind, Group>,
    command_lines: usize,
    programs: usize,
    folded: Vec<ProcessId>,
}

#[derive(Debug)]
struct Group {
    row: ProcessRow,
    changed: bool,
}

impl Folding {
    pub(super) fn new(enabled: bool) -> Self {
        Self {
            enabled,
            ..Self::default()
        }
    }

    /// Folds a process that has just ended, if it is to be folded.
    pub(super) fn ended(&mut self, row: &ProcessRow, ledger: &mut Ledger) {
        if !self.is_short_lived(row) || !ledger.is_foldable(row.id) || self.keep(row) {
            return;
        }
        let kind = self.kind(row);
        let id = match self.groups.get(&kind) {
            Some(group) => group.row.id,
            None => ledger.new_group(),
        };
        ledger.fold(row.id, id);
        self.folded.push(row.id);
        if !self.groups.contains_key(&kind) {
            self.add(&kind, id, row);
        }
        if let Some(group) = self.groups.get_mut(&kind) {
            let whole = &mut group.row;
            whole.folded = whole.folded.map(|count| count + 1);
            whole.started_ns = whole.started_ns.min(row.started_ns);
            whole.ended_ns = whole.ended_ns.max(row.ended_ns);
            group.changed = true;
        }
    }

    /// Groups that changed since the last call.
    pub(super) fn take_changed(&mut self) -> Vec<ProcessRow> {
        let groups = self.groups.values_mut();
        let changed = groups
            .filter_map(|group| std::mem::take(&mut group.changed).then(|| group.row.clone()));
        changed.collect()
    }

    /// Processes folded since the last call.
    pub(super) fn take_folded(&mut self) -> Vec<ProcessId> {
        std::mem::take(&mut self.folded)
    }

    fn is_short_lived(&self, row: &ProcessRow) -> bool {
        let lived = row.ended_ns.map(|end| end.saturating_sub(row.started_ns));
        let short = u64::try_from(SHORT_LIVED.as_nanos()).unwrap_or(u64::MAX);
        self.enabled && row.origin == Origin::Child && lived.is_some_and(|lived| lived < short)
    }

    fn keep(&mut self, row: &ProcessRow) -> bool {
        if self.all_kept == KEPT {
            return false;
        }
        let kept = self.kept.entry(row.cmdline.clone()).or_default();
        if *kept == KEPT_EACH {
            return false;
        }
        *kept += 1;
        self.all_kept += 1;
        true
    }

    fn kind(&self, row: &ProcessRow) -> Kind {
        let own = Kind::CommandLine(row.cmdline.clone());
        if self.command_lines < COMMAND_LINES || self.groups.contains_key(&own) {
            return own;
        }
        let program = Kind::Program(row.comm.clone());
        if self.programs < PROGRAMS || self.groups.contains_key(&program) {
            return program;
        }
        Kind::Any
    }

    fn add(&mut self, kind: &Kind, id: ProcessId, first: &ProcessRow) {
        let (comm, cmdline) = match kind {
            Kind::CommandLine(line) => {
                self.command_lines += 1;
                (first.comm.clone(), line.clone())
            }
            Kind::Program(comm) => {
                self.programs += 1;
                (comm.clone(), Vec::new())
            }
            Kind::Any => (String::new(), Vec::new()),
        };
        let row = ProcessRow {
            id,
            tgid: 0,
            ppid: 0,
            comm,
            cmdline,
            exit_status: None,
            rss_at_start: None,
            folded: Some(0),
            ..first.clone()
        };
        self.groups
            .insert(kind.clone(), Group { row, changed: true });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Action, Event, Layer, StackId};

    const SECOND: u64 = 1_000_000_000;

    /// Folds one process after another.
    struct Bench {
        ledger: Ledger,
        folding: Folding,
        tgid: u32,
    }

    impl Bench {
        fn new() -> Bench {
            Bench {
                ledger: Ledger::new(4096),
                folding: Folding::new(true),
                tgid: 0,
            }
        }

        /// A process that begins at `start` seconds and ends after `lived`.
        fn process(&mut self, origin: Origin, line: &str, start: u64, lived: u64) -> ProcessId {
            self.tgid += 1;
            let id = self.ledger.start_process(self.tgid);
            for action in [
                Action::Alloc {
                    layer: Layer::Heap,
                    addr: 16,
                    size: 10,
                    stack: StackId(1),
                },
                Action::Exit { status: 0 },
            ] {
                self.ledger.apply(&Event {
                    time_ns: 1,
                    tgid: self.tgid,
                    tid: self.tgid,
                    action,
                });
            }
            let cmdline: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let row = ProcessRow {
                id,
                tgid: self.tgid,
                ppid: 1,
                origin,
                comm: cmdline[0].clone(),
                cmdline,
                started_ns: start * SECOND,
                ended_ns: Some((start + lived) * SECOND),
                exit_status: Some(256),
                rss_at_start: None,
                folded: None,
            };
            self.folding.ended(&row, &mut self.ledger);
            id
        }

        fn children(&mut self, count: u32, line: &str) {
            for _ in 0..count {
                self.process(Origin::Child, line, 1, 1);
            }
        }

        /// Name and command line of each group, and its processes.
        fn groups(&mut self) -> Vec<(String, String, u64)> {
            let rows = self.folding.groups.values().map(|group| &group.row);
            let mut groups: Vec<_> = rows
                .map(|row| {
                    let line = row.cmdline.join(" ");
                    (row.comm.clone(), line, row.folded.unwrap())
                })
                .collect();
            groups.sort();
            groups
        }
    }

    #[test]
    fn the_first_of_a_command_line_are_kept_and_the_others_folded() {
        let mut b = Bench::new();
        b.children(KEPT_EACH + 3, "sh -c :");
        b.children(KEPT_EACH, "cc -c a.c");
        assert_eq!(b.groups(), [("sh".into(), "sh -c :".into(), 3)]);
        assert_eq!(b.folding.take_folded().len(), 3);
        let changed = b.folding.take_changed();
        assert_eq!(changed.len(), 1);
        assert_eq!((changed[0].tgid, changed[0].exit_status), (0, None));
        assert!(b.folding.take_changed().is_empty() && b.folding.take_folded().is_empty());
        b.process(Origin::Child, "sh -c :", 5, 2);
        let group = b.folding.take_changed().remove(0);
        assert_eq!(group.id, changed[0].id);
        assert_eq!(
            (group.started_ns, group.ended_ns, group.folded),
            (SECOND, Some(7 * SECOND), Some(4))
        );
    }

    #[test]
    fn only_short_lived_children_are_folded() {
        let mut b = Bench::new();
        b.children(KEPT_EACH, "a");
        b.process(Origin::Attached, "a", 1, 1);
        b.process(Origin::Launched, "a", 1, 1);
        b.process(Origin::Child, "a", 1, SHORT_LIVED.as_secs());
        assert_eq!(b.groups(), []);
        b.process(Origin::Child, "a", 1, SHORT_LIVED.as_secs() - 1);
        assert_eq!(b.groups().len(), 1);
        b.folding.enabled = false;
        b.process(Origin::Child, "a", 1, 1);
        assert_eq!(b.groups(), [("a".into(), "a".into(), 1)]);
    }

    #[test]
    fn ever_new_command_lines_take_no_ever_new_groups() {
        let mut b = Bench::new();
        for number in 0..1000 {
            b.children(1, &format!("cc -c {number}.c"));
        }
        for number in 0..1000 {
            b.children(1, &format!("tool{number}"));
        }
        let (lines, programs) = (COMMAND_LINES as u64, PROGRAMS as u64);
        let groups = b.groups();
        assert_eq!(groups.len() as u64, lines + programs + 1);
        let of = |comm: &str| -> Vec<u64> {
            let of_comm = groups
                .iter()
                .filter(|group| group.0 == comm && group.1.is_empty());
            of_comm.map(|group| group.2).collect()
        };
        assert_eq!(of("cc"), [1000 - u64::from(KEPT) - lines]);
        // One of the programs is cc.
        assert_eq!(of(""), [1000 - (programs - 1)]);
        let all: u64 = groups.iter().map(|group| group.2).sum();
        assert_eq!(all, 2000 - u64::from(KEPT));
        assert!(b.folding.kept.len() as u32 <= KEPT);
    }

    #[test]
    fn a_group_has_the_figures_of_its_processes() {
        let mut b = Bench::new();
        b.children(KEPT_EACH + 5, "a");
        let group = b.folding.take_changed().remove(0).id;
        let changes = b.ledger.take_changes();
        let layer = |process| {
            let mut layers = changes.layers.iter();
            layers
                .find(|((of, _), _)| *of == process)
                .map(|(_, layer)| layer.totals)
        };
        assert_eq!(layer(group).unwrap().alloc_bytes, 50);
        for process in b.folding.take_folded() {
            assert_eq!(layer(process), None);
        }
    }
}
