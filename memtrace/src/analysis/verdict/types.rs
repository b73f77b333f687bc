//! The types of Python's objects that became more and more.

use super::{
    keepers::{Keeper, keeper_of_type},
    thresholds::OF_RESIDUAL,
};
use crate::recording::{Census, GrowingType, Stacks};

/// What was counted of the objects of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Types {
    pub(crate) census: Census,
    /// The one that took the most memory first.
    pub(crate) growing: Vec<GrowingType>,
}

impl Types {
    /// Bytes per second by which their objects grew.
    pub(crate) fn rate(&self) -> f64 {
        let types = self.growing.iter();
        types.map(GrowingType::bytes_per_s).sum()
    }

    /// What certainly keeps at least half of what they grew by: one container, or alike references that were leaked.
    pub(crate) fn keeper(&self, stacks: &Stacks) -> Option<Keeper> {
        let mut keepers: Vec<(Keeper, f64)> = Vec::new();
        for of in &self.growing {
            let Some(keeper) = keeper_of_type(of, stacks).filter(Keeper::is_certain) else {
                continue;
            };
            let is_same = |(known, _): &&mut (Keeper, f64)| known.is_same(&keeper);
            match keepers.iter_mut().find(is_same) {
                Some((_, bytes)) => *bytes += of.bytes_per_s(),
                None => keepers.push((keeper, of.bytes_per_s())),
            }
        }
        let most = keepers.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let (keeper, bytes) = most?;
        (bytes >= OF_RESIDUAL * self.rate()).then_some(keeper)
    }
}
