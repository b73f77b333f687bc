//! The code through which probed functions return, in the page `[uprobes]` that the kernel maps
//! into a probed process. From Linux 6.11 on it makes a system call in which the kernel runs the
//! probe, and a signal that comes meanwhile interrupts the instruction after it: half of all
//! signals do in a process that allocates all the time.

use memtrace_common::{
    unwind::{Rule, cfa, fp},
    unwind_table::{BLOCK, Exec, exec_state},
};

use super::{Table, rules::NO_ROW};
use crate::arch::TRAMPOLINE;

/// The page's name in `/proc/PID/maps`.
pub(crate) const NAME: &str = "[uprobes]";

impl Table {
    /// The table of the page `[uprobes]`. On older kernels its code is a breakpoint, and never
    /// the code that a signal interrupts.
    pub(crate) fn of_trampoline() -> Table {
        let rules = TRAMPOLINE.map(|(_, offset)| match offset {
            0 => NO_ROW,
            cfa_offset => Rule {
                cfa: cfa::SP,
                fp: fp::SAME,
                fp_offset: 0,
                cfa_offset,
            },
        });
        // The directory of one page, and its rows behind it.
        let mut words = vec![2, 2 + TRAMPOLINE.len() as u32];
        words.extend(
            (0..)
                .zip(TRAMPOLINE)
                .map(|(rule, (start, _))| start << 16 | rule),
        );
        words.resize(BLOCK, 0);
        Table {
            exec: Exec {
                state: exec_state::ROWS,
                first_page: 0,
                pages: 1,
                pad: 0,
            },
            rules: rules.to_vec(),
            words,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_valid_and_covers_the_end_of_the_system_call() {
        let table = Table::of_trampoline();
        let checked = Table::checked(table.exec, table.rules.clone(), table.words.clone());
        assert_eq!(checked, Some(table.clone()));
        let offsets = [12, 13, 14, 15, 16].map(|vaddr| table.lookup(vaddr).cfa_offset);
        assert_eq!(offsets, [0, 24, 24, 16, 8]);
        for vaddr in [0, 12, 17, 4095] {
            assert_eq!(table.lookup(vaddr), NO_ROW);
        }
    }
}
