//! How likely chance separates hosts as well as facts do.

use fastrand::Rng;

use super::{hosts::Hosts, split::Split};
use crate::hash::FastMap;

/// How often growth is given to other hosts at random.
const DRAWS: usize = 1_999;

/// The probability of the likeliest explanation that draws can tell from chance.
pub(super) const LEAST: f64 = 1.0 / (DRAWS + 1) as f64;

/// A fact whose own test is worse than this is not tried together with another one.
const PROMISING: f64 = 0.1;

/// Facts that are tried together, the best ones.
const MOST_PROMISING: usize = 50;

/// Some hosts, and the ways to part them.
pub(super) struct Chance<'a> {
    hosts: Vec<usize>,
    grow: &'a Hosts,
    splits: &'a [Split],
    /// Logarithms of factorials.
    factorials: Vec<f64>,
    /// By hosts that are known, have the fact and grow: the probability for each number that does both.
    tails: FastMap<[usize; 3], Vec<f64>>,
}

/// Two splits, by their numbers: the hosts that are on the one side of both.
type Pair = (usize, usize);

impl<'a> Chance<'a> {
    pub(super) fn new(hosts: &Hosts, grow: &'a Hosts, splits: &'a [Split]) -> Self {
        let hosts = hosts.numbers();
        let mut factorials = vec![0.0; hosts.len() + 1];
        for n in 1..factorials.len() {
            factorials[n] = factorials[n - 1] + (n as f64).ln();
        }
        Self {
            hosts,
            grow,
            splits,
            factorials,
            tails: FastMap::default(),
        }
    }

    /// The test of each split, 0 to 1: the less, the better.
    pub(super) fn tests(&mut self) -> Vec<f64> {
        self.tests_for(self.grow)
    }

    /// The pair with the best test.
    pub(super) fn best_pair(&mut self) -> Option<(f64, Pair)> {
        self.best_pair_for(self.grow)
    }

    /// The probability that the best of all splits has a test as good as this by chance: the share of random draws of as
    /// many growing hosts in which it has (Westfall and Young, "Resampling-Based Multiple Testing", 1993). It accounts for
    /// the number of facts, and for facts that go together.
    pub(super) fn of_the_best(&mut self, test: f64) -> f64 {
        self.of(test, |chance, drawn| {
            chance.tests_for(drawn).into_iter().fold(1.0, f64::min)
        })
    }

    /// The same for the best of all pairs.
    pub(super) fn of_the_best_pair(&mut self, test: f64) -> f64 {
        self.of(test, |chance, drawn| {
            chance.best_pair_for(drawn).map_or(1.0, |(test, _)| test)
        })
    }

    fn of(&mut self, test: f64, best: impl Fn(&mut Self, &Hosts) -> f64) -> f64 {
        // The same input gives the same answer.
        let mut rng = Rng::with_seed(1);
        let mut hosts = self.hosts.clone();
        let (all, growing) = (hosts.len(), self.grow.len());
        let n = hosts.iter().max().map_or(0, |last| last + 1);
        // Sums of the same terms in another order differ in the last digits.
        let test = test * (1.0 + 1e-9);
        let mut as_good = 1;
        for _ in 0..DRAWS {
            let mut is_drawn = vec![false; n];
            for place in 0..growing {
                hosts.swap(place, rng.usize(place..all));
                is_drawn[hosts[place]] = true;
            }
            let drawn = Hosts::of(n, |host| is_drawn[host]);
            as_good += usize::from(best(self, &drawn) <= test);
        }
        as_good as f64 * LEAST
    }

    fn tests_for(&mut self, grow: &Hosts) -> Vec<f64> {
        let splits = self.splits.iter();
        splits
            .map(|split| {
                let growing = split.known.overlap(grow);
                self.test(
                    [split.known.len(), split.has.len(), growing],
                    split.has.overlap(grow),
                )
            })
            .collect()
    }

    fn best_pair_for(&mut self, grow: &Hosts) -> Option<(f64, Pair)> {
        let tests = self.tests_for(grow).into_iter().enumerate();
        let mut promising: Vec<(usize, f64)> =
            tests.filter(|(_, test)| *test <= PROMISING).collect();
        promising.sort_by(|a, b| a.1.total_cmp(&b.1));
        promising.truncate(MOST_PROMISING);
        let promising: Vec<usize> = promising.into_iter().map(|(number, _)| number).collect();
        let mut best: Option<(f64, Pair)> = None;
        for (place, &a) in promising.iter().enumerate() {
            for &b in &promising[place + 1..] {
                let [one, other] = [a, b].map(|number| &self.splits[number]);
                if one.is_of_one_fact(other) {
                    continue;
                }
                let known = one.known.both(&other.known);
                let has = one.has.both(&other.has);
                let margins = [known.len(), has.len(), known.overlap(grow)];
                let test = self.test(margins, has.overlap(grow));
                if best.is_none_or(|(known, _)| test < known) {
                    best = Some((test, (a, b)));
                }
            }
        }
        best
    }

    /// Fisher's exact test on one side: the probability that at least this many of the hosts with the fact grow, if it had
    /// nothing to do with growth. `margins`: hosts whose value is known, those that have the fact, and those that grow.
    fn test(&mut self, margins: [usize; 3], both: usize) -> f64 {
        let [of, with, growing] = margins;
        let factorials = &self.factorials;
        let tails = self.tails.entry(margins).or_insert_with(|| {
            let choose = |n: usize, k: usize| factorials[n] - factorials[k] - factorials[n - k];
            let mut tails = vec![0.0; with.min(growing) + 1];
            let mut sum = 0.0;
            for both in (0..tails.len()).rev() {
                // No more hosts without the fact can grow than there are.
                if growing - both <= of - with {
                    let ways = choose(with, both) + choose(of - with, growing - both);
                    sum += (ways - choose(of, growing)).exp();
                }
                tails[both] = f64::min(sum, 1.0);
            }
            tails
        });
        tails[both]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(known: usize, grow: impl Fn(usize) -> bool) -> f64 {
        let hosts = Hosts::of(8, |_| true);
        let grow = Hosts::of(8, grow);
        let split = Split {
            known: Hosts::of(8, |host| host < known),
            has: Hosts::of(8, |host| host < known / 2),
            conditions: Vec::new(),
        };
        Chance::new(&hosts, &grow, &[split]).tests()[0]
    }

    #[test]
    fn fishers_test_has_the_textbooks_values() {
        // The lady tasting tea: all eight cups right has a probability of 1 in 70, six of them of 17 in 70.
        let is = |test: f64, expected: f64| assert!((test - expected).abs() < 1e-12, "{test}");
        is(test(8, |host| host < 4), 1.0 / 70.0);
        is(test(8, |host| host < 3 || host == 5), 17.0 / 70.0);
        is(test(8, |host| host >= 4), 1.0);
        // Hosts with an unknown value do not count.
        is(test(6, |host| host < 3 || host == 7), 1.0 / 20.0);
    }
}
