//! Which further hosts would tell two facts apart.

use super::split::{Condition, Split};

/// A fact whose test is at most this many times worse may be the true one.
const CLOSE: f64 = 20.0;

/// Two kinds of hosts: those that meet only the first, and those that meet only the second.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decisive(pub(crate) [Condition; 2]);

/// The best fact and the one that comes next, if it comes close. `ranked`: the best first.
pub(super) fn decisive(ranked: &[(f64, &Split)]) -> Option<Decisive> {
    let (best, split) = ranked.first()?;
    let first = split.conditions.first()?;
    let is_other = |rival: &&Condition| thing(&rival.field) != thing(&first.field);
    let close = ranked.iter().take_while(|(test, _)| *test <= CLOSE * best);
    let mut rivals = close.flat_map(|(_, split)| &split.conditions);
    let rival = rivals.find(is_other)?;
    Some(Decisive([first.clone(), rival.clone()]))
}

/// What a field describes: build id, path and size of a library are of one thing.
fn thing(field: &str) -> &str {
    match field
        .strip_prefix("lib.")
        .and_then(|rest| rest.rsplit_once('.'))
    {
        Some((library, _)) => library,
        None => field,
    }
}
