//! The facts that separate the hosts that grow from the others: the best of all, then the best among the hosts on
//! either side of it.

use super::{
    chance::{Chance, LEAST},
    host::Host,
    hosts::Hosts,
    rivals::{self, Decisive},
    split::{self, Condition, Split},
};

/// A fact is named if chance separates the hosts as well in at most this share of draws.
const LEVEL: f64 = 0.05;

/// Facts within facts: that many, one inside the other.
const DEPTH: usize = 3;

/// How many of some hosts grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) grow: usize,
    pub(crate) of: usize,
}

/// A fact that separates hosts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cause {
    /// What the hosts that grow more often have. Several, if the same hosts have all of them: the likeliest first.
    pub(crate) conditions: Vec<Condition>,
    /// What they also have, if it takes two facts.
    pub(crate) and: Vec<Condition>,
    /// The conditions that the compared hosts meet, and those that they do not: the first of each earlier cause.
    pub(crate) among: Vec<(Condition, bool)>,
    pub(crate) with: Share,
    pub(crate) without: Share,
    /// The probability that the best of all facts separates these hosts as well by chance. 0 to 1.
    pub(crate) chance: f64,
    /// Hosts that would tell it from the next best fact.
    pub(crate) decisive: Option<Decisive>,
}

/// The result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Separation {
    pub(crate) all: Share,
    /// Facts that differ between the hosts.
    pub(crate) facts: usize,
    /// The first separates all hosts; others separate hosts on one side of an earlier one.
    pub(crate) causes: Vec<Cause>,
    /// Without a cause: the fact that comes nearest.
    pub(crate) nearest: Option<Cause>,
}

/// Looks for what separates the hosts that grow from the others.
pub(crate) fn separate(hosts: &[Host]) -> Separation {
    let mut search = Search {
        grow: Hosts::of(hosts.len(), |host| hosts[host].grows),
        splits: split::splits(hosts),
        causes: Vec::new(),
    };
    let all = Hosts::of(hosts.len(), |_| true);
    let nearest = search.part(&all, &[], LEVEL);
    Separation {
        all: search.share(&all),
        facts: split::fields(&search.splits),
        causes: search.causes,
        nearest,
    }
}

struct Search {
    grow: Hosts,
    splits: Vec<Split>,
    causes: Vec<Cause>,
}

impl Search {
    fn share(&self, hosts: &Hosts) -> Share {
        Share {
            grow: hosts.both(&self.grow).len(),
            of: hosts.len(),
        }
    }

    /// Separates these hosts, then those on either side. Each step may be wrong half as often as the one before, so
    /// that all together are seldom wrong. If none is good enough: the fact that comes nearest.
    fn part(&mut self, hosts: &Hosts, among: &[(Condition, bool)], level: f64) -> Option<Cause> {
        let cause = self.best(hosts, among)?;
        if cause.chance > level {
            return Some(cause);
        }
        let first = cause.conditions[0].clone();
        let (known, has) = self.sides(&first);
        let with = has.both(hosts);
        // A host whose value is not known is on neither side.
        let without = known.both(hosts).without(&with);
        let is_pair = !cause.and.is_empty();
        self.causes.push(cause);
        // What else grows beside two facts together is not asked.
        if among.len() + 1 < DEPTH && !is_pair {
            for (side, meets) in [(with, true), (without, false)] {
                let mut among = among.to_vec();
                among.push((first.clone(), meets));
                self.part(&side, &among, level / 2.0);
            }
        }
        None
    }

    /// The hosts whose value is known, and those of them that meet the condition.
    fn sides(&self, condition: &Condition) -> (Hosts, Hosts) {
        let mut splits = self.splits.iter();
        let split = splits.find(|split| split.conditions.contains(condition));
        split.map_or_else(Default::default, |split| {
            (split.known.clone(), split.has.clone())
        })
    }

    /// The fact that separates these hosts best; two that do so together, if chance explains these less.
    fn best(&self, hosts: &Hosts, among: &[(Condition, bool)]) -> Option<Cause> {
        let splits = split::within(&self.splits, hosts);
        let grow = hosts.both(&self.grow);
        let mut chance = Chance::new(hosts, &grow, &splits);
        let mut ranked: Vec<(f64, &Split)> = chance.tests().into_iter().zip(&splits).collect();
        ranked.sort_by(|a, b| {
            let order = a.0.total_cmp(&b.0);
            order.then_with(|| a.1.conditions.cmp(&b.1.conditions))
        });
        let (test, split) = *ranked.first()?;
        if split.has.overlap(&grow) == 0 || split.known.overlap(&grow) == split.known.len() {
            return None;
        }
        let of = |one: &Split, other: Option<&Split>, chance: f64| {
            let other = other.unwrap_or(one);
            let known = one.known.both(&other.known);
            let has = one.has.both(&other.has);
            Cause {
                conditions: one.conditions.clone(),
                and: Vec::new(),
                among: among.to_vec(),
                with: self.share(&has),
                without: self.share(&known.without(&has)),
                // It is the better of two answers.
                chance: (2.0 * chance).min(1.0),
                decisive: None,
            }
        };
        let alone = chance.of_the_best(test);
        let mut cause = of(split, None, alone);
        cause.decisive = rivals::decisive(&ranked);
        if alone <= LEAST {
            return Some(cause);
        }
        let Some((test, (one, other))) = chance.best_pair() else {
            return Some(cause);
        };
        let together = chance.of_the_best_pair(test);
        if together < alone {
            let [one, other] = [one, other].map(|number| &splits[number]);
            cause = of(one, Some(other), together);
            cause.and.clone_from(&other.conditions);
        }
        Some(cause)
    }
}
