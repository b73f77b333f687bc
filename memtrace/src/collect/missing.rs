//! The gaps of a recording, for its last line.

use std::fmt;

use memtrace_common::loss::{Effect, Reason};

/// Counts by effect: a stack that ends early loses no record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Allocations and releases.
    records: u64,
    /// Processes, or parts of them.
    untraced: u64,
    stacks: u64,
}

impl Missing {
    pub(crate) fn of(losses: &[(Reason, u64)]) -> Missing {
        let mut missing = Missing::default();
        for (reason, count) in losses {
            match reason.effect() {
                Effect::AllocationsLost | Effect::ReleasesLost => missing.records += count,
                Effect::Untraced => missing.untraced += count,
                Effect::StackLost => missing.stacks += count,
                Effect::NamesLost | Effect::Filtered => {}
            }
        }
        missing
    }

    /// Allocations and releases that were lost.
    pub(crate) fn records(self) -> u64 {
        self.records
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lost", self.records)?;
        match self.stacks {
            0 => {}
            1 => f.write_str("; 1 stack ends early")?,
            n => write!(f, "; {n} stacks end early")?,
        }
        match self.untraced {
            0 => Ok(()),
            1 => f.write_str("; 1 process or library not traced"),
            n => write!(f, "; {n} processes or libraries not traced"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_stacks_are_not_lost_records() {
        let text = |losses: &[(Reason, u64)]| Missing::of(losses).to_string();
        assert_eq!(text(&[]), "0 lost");
        let stacks = [(Reason::StackNoRow, 190), (Reason::StackTruncated, 7)];
        assert_eq!(text(&stacks), "0 lost; 197 stacks end early");
        let all = [
            (Reason::RingFullAlloc, 2),
            (Reason::RingFullFree, 3),
            (Reason::StackStale, 1),
            (Reason::AttachFailed, 1),
            (Reason::UnknownFree, 9),
        ];
        let expected = "5 lost; 1 stack ends early; 1 process or library not traced";
        assert_eq!(text(&all), expected);
    }
}
