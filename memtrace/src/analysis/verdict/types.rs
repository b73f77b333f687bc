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
    /// What certainly keeps at least half of what they grew by: one container, or alike references that were leaked.
    pub(crate) keeper: Option<Keeper>,
    /// Bytes per second of the types of which it keeps most objects.
    pub(crate) kept: f64,
}

/// The share of their growth that is nearly all: what is left may have come or gone while it was searched.
const NEARLY_ALL: f64 = 0.8;

impl Types {
    pub(crate) fn new(census: Census, growing: Vec<GrowingType>, stacks: &Stacks) -> Self {
        let mut types = Self {
            census,
            growing,
            ..Self::default()
        };
        let mut keepers: Vec<(Keeper, f64)> = Vec::new();
        for of in &types.growing {
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
        if let Some((keeper, kept)) = most.filter(|(_, of)| *of >= OF_RESIDUAL * types.rate()) {
            (types.keeper, types.kept) = (Some(keeper), kept);
        }
        types
    }

    /// Takes it that the objects are probably kept by this, and not by the references that seem to be leaked.
    pub(super) fn doubt(&mut self, keeper: Keeper) {
        self.keeper = Some(keeper);
        for of in &mut self.growing {
            (of.examined, of.unreached) = (0, 0);
        }
    }

    /// Whether what keeps most of them keeps nearly all: then it fills every new arena.
    pub(crate) fn have_one_keeper(&self) -> bool {
        self.keeper.is_some() && self.kept >= NEARLY_ALL * self.rate()
    }

    /// Bytes per second by which their objects grew.
    pub(crate) fn rate(&self) -> f64 {
        let types = self.growing.iter();
        types.map(GrowingType::bytes_per_s).sum()
    }
}
