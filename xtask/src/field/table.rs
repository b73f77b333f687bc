//! The programs, their faults, and the right answers. None of these is taken from memtrace's output.

mod managed;
mod native;
mod packages;
mod python;
mod quiet;

use super::program::source;
use crate::targets::marks;
use anyhow::Result;

pub(super) const CASES: [&[Case]; 5] = [
    packages::CASES,
    python::CASES,
    native::CASES,
    managed::CASES,
    quiet::CASES,
];

/// Versions of packages as requirements of pip, separated by spaces.
pub(super) struct Packages {
    /// The version of Python that both have wheels for.
    pub(super) python: &'static str,
    /// `None`: the program itself has the fault.
    faulty: Option<&'static str>,
    fixed: &'static str,
}

impl Packages {
    pub(super) fn requirement(&self, leaks: bool) -> &'static str {
        self.faulty.filter(|_| leaks).unwrap_or(self.fixed)
    }

    pub(super) fn requirements(&self) -> impl Iterator<Item = &'static str> {
        self.faulty.into_iter().chain([self.fixed])
    }
}

/// A program.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) language: &'static str,
    /// What the program shows, for the table of results.
    pub(super) kind: &'static str,
    /// Below `tests/targets/field/`. Lines that allocate what leaks have the comment `allocates`.
    pub(super) source: &'static str,
    /// Which of the program's faults, if it has several.
    pub(super) fault: Option<&'static str>,
    pub(super) packages: Option<Packages>,
    /// Recorded from its start, not attached to.
    pub(super) launched: bool,
    /// Seconds.
    pub(super) seconds: u32,
    /// Right classes with the fault; none: the program has no fault.
    pub(super) classes: &'static [&'static str],
    /// For faults in lines that cannot be seen: one of these is on the first screen.
    pub(super) functions: &'static [&'static str],
    /// What keeps the memory: one of these is on the first screen. Empty: not judged.
    pub(super) keeper: &'static [&'static str],
    /// What would mislead.
    pub(super) never: &'static [&'static str],
    /// Right classes without the fault, besides `none`.
    pub(super) quiet: &'static [&'static str],
    /// How the fault was established without memtrace, besides the growth of resident memory.
    pub(super) truth: &'static str,
}

impl Case {
    /// Most programs: attached to for 30 s, and a leak.
    const fn new(
        name: &'static str,
        language: &'static str,
        kind: &'static str,
        source: &'static str,
    ) -> Case {
        Case {
            name,
            language,
            kind,
            source,
            fault: None,
            packages: None,
            launched: false,
            seconds: 30,
            classes: &["leak"],
            functions: &[],
            keeper: &[],
            never: &[],
            quiet: &[],
            truth: "",
        }
    }

    /// With the fault, if it has one, and without it.
    pub(super) fn modes(&self) -> impl Iterator<Item = bool> + use<> {
        let has_fault = !self.classes.is_empty();
        [true, false]
            .into_iter()
            .filter(move |leaks| has_fault || !leaks)
    }

    /// The marked lines.
    ///
    /// # Errors
    /// The source cannot be read.
    pub(super) fn lines(&self) -> Result<Vec<u32>> {
        marks::lines(&source(self), "allocates", self.fault)
    }
}

#[cfg(test)]
mod tests {
    use super::CASES;
    use std::collections::BTreeSet;

    #[test]
    fn each_fault_has_its_line_or_function() {
        let mut names = BTreeSet::new();
        for case in CASES.iter().copied().flatten() {
            assert!(names.insert(case.name), "{} is there twice", case.name);
            assert!(!case.truth.is_empty(), "{}", case.name);
            let is_named = !case.lines().unwrap().is_empty() || !case.functions.is_empty();
            let needs_name = !case.classes.is_empty() && case.kind != "managed heap";
            assert!(is_named || !needs_name, "{}", case.name);
        }
        assert!(names.len() >= 60);
    }
}
