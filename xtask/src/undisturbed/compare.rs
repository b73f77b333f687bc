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
    /// Their results differ from run to run untraced, and traced they have no others.
    unstable: Vec<String>,
    differ: Vec<Difference>,
}

/// A test that had a result traced that it never had untraced.
#[derive(Debug, PartialEq, Eq)]
struct Difference {
    test: String,
    untraced: Vec<String>,
    traced: String,
    /// How many traced runs had such a result.
    runs: usize,
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
            let mut others: Vec<String> = traced.iter().map(result).collect();
            others.retain(|it| !expected.contains(it));
            if let Some(other) = others.first() {
                comparison.differ.push(Difference {
                    test: name.clone(),
                    traced: other.clone(),
                    runs: others.len(),
                    untraced: expected.into_iter().collect(),
                });
            } else if expected.len() > 1 {
                comparison.unstable.push(name.clone());
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
        let differ = self.differ.iter().map(|it| {
            format!(
                "  DIFFERS in {} traced runs: {}\n    untraced: {}\n    traced:   {}\n",
                it.runs,
                it.test,
                it.untraced.join("\n       or:    "),
                it.traced
            )
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
    fn results_that_no_untraced_run_had_differ() {
        let untraced = runs(&[
            &[
                ("stable", "ok"),
                ("flaky", "ok"),
                ("worse", "ok"),
                ("gone", "ok"),
            ],
            &[
                ("stable", "ok"),
                ("flaky", "failed"),
                ("worse", "failed"),
                ("gone", "ok"),
            ],
        ]);
        let traced = runs(&[
            &[("stable", "ok"), ("flaky", "ok"), ("worse", "crashed")],
            &[
                ("stable", "failed"),
                ("flaky", "failed"),
                ("worse", "ok"),
                ("gone", "ok"),
            ],
        ]);
        let comparison = Comparison::of(&untraced, &traced);
        assert_eq!(comparison.tests, 4);
        assert_eq!(comparison.unstable, ["flaky"]);
        let differ: Vec<_> = comparison
            .differ
            .iter()
            .map(|it| (it.test.as_str(), it.traced.as_str(), it.runs))
            .collect();
        assert_eq!(
            differ,
            [
                ("gone", MISSING, 1),
                ("stable", "failed", 1),
                ("worse", "crashed", 1)
            ]
        );
        assert!(!Comparison::of(&untraced, &untraced).is_disturbed());
    }
}
