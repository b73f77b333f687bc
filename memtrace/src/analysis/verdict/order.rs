//! The order in which the rules on a process's own memory and counts are tried, and that of what they
//! find.

use super::{
    detectors::{PROCESS, rules},
    finding::Finding,
    growth,
    rule::OfProcess,
    subjects::Judging,
};
use crate::analysis::window::Window;

/// Everything that the rules find, the fastest first, and the part of the course that it is about. One finding never
/// hides another of its question, or one that is made in addition.
pub(super) fn find(judging: &Judging) -> (Vec<Finding>, Window) {
    let (mut window, whole) = (judging.context.window, judging.whole);
    let always = rules().find_map(|rule| match rule.find {
        OfProcess::Always(find) => find(judging),
        _ => None,
    });
    if let Some(found) = always {
        return (vec![found], whole);
    }
    let passing = rules().find_map(|rule| match rule.find {
        OfProcess::Passing(find) => find(judging),
        _ => None,
    });
    let largest = || match judging.judged.is_material() {
        true => growth::largest(judging),
        false => None,
    };
    let first = passing.or_else(largest);
    let grows = first.is_some();
    let mut found: Vec<Finding> = first.into_iter().collect();
    for question in PROCESS {
        if !grows && !found.is_empty() {
            break;
        }
        for rule in question.rules {
            let is_first = !grows && found.is_empty();
            let is_new = !found.iter().any(|of| of.class == rule.class);
            let more = match rule.find {
                OfProcess::Beside(find) if is_new => find(judging),
                OfProcess::Flat(find) if !grows && is_new => find(judging),
                OfProcess::State(find) if is_first => find(judging).inspect(|_| window = whole),
                OfProcess::Otherwise(find) if is_first => Some(find(judging)),
                _ => None,
            };
            found.extend(more);
        }
    }
    let speed = |of: &Finding| of.rate.unwrap_or(0.0);
    found.sort_by(|a, b| speed(b).total_cmp(&speed(a)));
    (found, window)
}
