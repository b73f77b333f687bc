//! Compares the results of tests, untraced and traced.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// Results of a run: by test.
pub(super) type Results = BTreeMap<String, String>;

/// The heading of [`Comparison`]'s row.
pub(super) const COLUMNS: &str = "  tests  unstable untraced  differ traced";

/// What became of each test.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    tests: usize,
    /// Their results differ from run to run, untraced.
    unstable: Vec<String>,
    /// A traced run had another result than every untraced one: the test, both results, and how many traced runs.
    differ: Vec<(String, String, String, usize)>,
}

/// The result of a test that has none.
const MISSING: &str = "missing";

impl Comparison {
    pub(super) fn of(untraced: &[Results], traced: &[Results]) -> Self {
        let names: BTreeSet<&String> = untraced
            .iter()
            .chain(traced)
            .flat_map(Results::keys)
            .collect();
        let mut comparison = Self {
            tests: names.len(),
            ..Self::default()
        };
        for name in names {
            let result =
                |run: &'_ Results| run.get(name).map_or(MISSING, String::as_str).to_owned();
            let expected: BTreeSet<String> = untraced.iter().map(result).collect();
            let Some(first) = expected.first().filter(|_| expected.len() == 1) else {
                comparison.unstable.push(name.clone());
                continue;
            };
            let others: Vec<String> = traced.iter().map(result).filter(|it| it != first).collect();
            if let Some(other) = others.first() {
                let both = (first.clone(), other.clone());
                comparison
                    .differ
                    .push((name.clone(), both.0, both.1, others.len()));
            }
        }
        comparison
    }

    pub(super) fn is_disturbed(&self) -> bool {
        !self.differ.is_empty()
    }

    /// A line or more for each test that is unstable or differs.
    pub(super) fn details(&self) -> String {
        let unstable = self
            .unstable
            .iter()
            .map(|name| format!("  unstable untraced: {name}\n"));
        let differ = self.differ.iter().map(|(name, untraced, traced, runs)| {
            format!("  DIFFERS in {runs} traced runs: {name}\n    untraced: {untraced}\n    traced:   {traced}\n")
        });
        unstable.chain(differ).collect()
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [unstable, differ] = [self.unstable.len(), self.differ.len()];
        write!(f, "{:>7} {unstable:>18} {differ:>14}", self.tests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(results: &[&[(&str, &str)]]) -> Vec<Results> {
        let run = |run: &&[(&str, &str)]| {
            run.iter()
                .map(|(name, result)| ((*name).into(), (*result).into()))
                .collect()
        };
        results.iter().map(run).collect()
    }

    #[test]
    fn only_stable_tests_can_differ() {
        let untraced = runs(&[
            &[("stable", "ok"), ("unstable", "ok"), ("gone", "ok")],
            &[("stable", "ok"), ("unstable", "failed"), ("gone", "ok")],
        ]);
        let traced = runs(&[
            &[("stable", "ok"), ("unstable", "crashed")],
            &[("stable", "failed"), ("unstable", "ok"), ("gone", "ok")],
        ]);
        let comparison = Comparison::of(&untraced, &traced);
        assert_eq!(comparison.tests, 3);
        assert_eq!(comparison.unstable, ["unstable"]);
        let differ: Vec<_> = comparison
            .differ
            .iter()
            .map(|it| (it.0.as_str(), it.2.as_str(), it.3))
            .collect();
        assert_eq!(differ, [("gone", MISSING, 1), ("stable", "failed", 1)]);
        assert!(!Comparison::of(&untraced, &untraced).is_disturbed());
    }
}
