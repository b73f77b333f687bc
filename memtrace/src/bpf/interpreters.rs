//! Numbers of Python interpreters. Each process that was not forked from another has its own, because its
//! addresses differ, so a number is given again once no process has it any more.

use std::collections::{HashMap, VecDeque};

use memtrace_common::python::Interpreter;

/// Who has which number.
#[derive(Debug, Default)]
pub(super) struct Interpreters {
    /// By tgid.
    of: HashMap<u32, u32>,
    /// By number, and how many processes have it.
    known: HashMap<u32, (Interpreter, u32)>,
    /// The number released first is reused first: a child whose birth was lost may still have the
    /// latest.
    free: VecDeque<u32>,
}

impl Interpreters {
    /// The number of a process's interpreter, and whether it is a new one. Number 0 is none.
    pub(super) fn number(&mut self, tgid: u32, interpreter: Interpreter) -> (u32, bool) {
        self.release(tgid);
        let mut known = self.known.iter_mut();
        let found = known.find(|(_, (known, _))| *known == interpreter);
        let (number, new) = match found {
            Some((number, (_, users))) => {
                *users += 1;
                (*number, false)
            }
            None => {
                // If none is free, they have no gaps.
                let next = self.known.len() as u32 + 1;
                let number = self.free.pop_front().unwrap_or(next);
                self.known.insert(number, (interpreter, 1));
                (number, true)
            }
        };
        self.of.insert(tgid, number);
        (number, new)
    }

    /// A child has its parent's.
    pub(super) fn forked(&mut self, parent: u32, child: u32) {
        self.release(child);
        if let Some(number) = self.of.get(&parent).copied()
            && let Some((_, users)) = self.known.get_mut(&number)
        {
            *users += 1;
            self.of.insert(child, number);
        }
    }

    /// A process has none any more.
    pub(super) fn release(&mut self, tgid: u32) {
        if let Some(number) = self.of.remove(&tgid)
            && let Some((_, users)) = self.known.get_mut(&number)
        {
            *users -= 1;
            if *users == 0 {
                self.known.remove(&number);
                self.free.push_back(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interpreter(exec: u32) -> Interpreter {
        Interpreter {
            exec,
            ..Interpreter::default()
        }
    }

    #[test]
    fn a_number_is_given_again_after_its_last_process() {
        let mut interpreters = Interpreters::default();
        assert_eq!(interpreters.number(10, interpreter(1)), (1, true));
        assert_eq!(interpreters.number(11, interpreter(1)), (1, false));
        assert_eq!(interpreters.number(12, interpreter(2)), (2, true));
        interpreters.forked(10, 13);
        for ended in [10, 11] {
            interpreters.release(ended);
        }
        assert_eq!(interpreters.number(14, interpreter(3)), (3, true));
        interpreters.release(13);
        assert_eq!(interpreters.number(15, interpreter(4)), (1, true));
        // Exec into another one.
        assert_eq!(interpreters.number(15, interpreter(5)), (1, true));
        interpreters.forked(99, 15);
        assert_eq!(interpreters.number(16, interpreter(6)), (1, true));
    }

    #[test]
    fn ever_new_processes_take_no_ever_new_numbers() {
        let mut interpreters = Interpreters::default();
        for tgid in 1..5000 {
            let (number, _) = interpreters.number(tgid, interpreter(tgid));
            assert!(number <= 11, "{number}");
            interpreters.release(tgid.saturating_sub(10));
        }
    }
}
