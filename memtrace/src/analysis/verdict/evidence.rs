//! The evidence of a verdict, as data: measurements and the limits they were compared with. A
//! detector declares the evidence; `render` decides how to show it.

use super::class::Class;
use crate::{
    analysis::statistics::{TooShort, Trend},
    event::Device,
};

/// The description of one kind of evidence.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    /// Stable name in JSON.
    pub name: &'static str,
    /// The sentence shown in text. Values and limits appear in it by name: `{growth}`, with the
    /// number of decimals if it differs from the default, `{ratio:.2}`.
    pub sentence: &'static str,
}

/// One thing that speaks for a verdict.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Evidence {
    pub kind: &'static Statement,
    /// Measurements, by name.
    pub values: Vec<(&'static str, Amount)>,
    /// The limits they were compared with.
    pub limits: Vec<(&'static str, Amount)>,
    /// It speaks for the runner-up.
    pub of_runner_up: bool,
}

/// A value with its unit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Amount {
    /// Bytes; negative values count as 0.
    Bytes(f64),
    /// Bytes more, or less.
    Change(f64),
    BytesPerSecond(f64),
    /// Change of bytes per second, with its interval of 95 %.
    ByteRate(Rate),
    Seconds(f64),
    Count(f64),
    CountChange(f64),
    /// Change of a count per second, with its interval of 95 %.
    CountRate(Rate),
    Sites(u64),
    /// 1 is all.
    Share(f64),
    Ratio(f64),
    Probability(f64),
    /// Change of bytes, and the change that it is a part of.
    Part(f64, f64),
    Class(Class),
    Device(Device),
    /// Name of a measured thing.
    Name(&'static str),
    /// A line of the program.
    Text(String),
    /// A type of Python.
    Type(String),
    /// For the sentence only: scripts get it in other ways.
    Word(&'static str),
    /// Stands in for a missing rate.
    NoRate(TooShort),
}

/// A slope per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate {
    pub slope: f64,
    /// 95 %.
    pub interval: (f64, f64),
}

impl Statement {
    /// Evidence of this kind.
    pub(super) fn with<const N: usize>(
        &'static self,
        values: [(&'static str, Amount); N],
    ) -> Evidence {
        Evidence {
            kind: self,
            values: values.into(),
            limits: vec![],
            of_runner_up: false,
        }
    }

    /// Evidence that a series of bytes grew, see [`grown`]; its sentence has `{growth}`, `{length}`
    /// and `{rate}`.
    pub(super) fn of(&'static self, trend: &Trend) -> Evidence {
        self.with(grown(trend))
    }
}

impl Evidence {
    pub(super) fn against<const N: usize>(
        mut self,
        limits: [(&'static str, Amount); N],
    ) -> Evidence {
        self.limits = limits.into();
        self
    }

    /// The value or limit of a name.
    pub(crate) fn amount(&self, name: &str) -> Option<&Amount> {
        let mut all = self.values.iter().chain(&self.limits);
        all.find(|(known, _)| *known == name)
            .map(|(_, amount)| amount)
    }
}

impl From<&Trend> for Rate {
    fn from(trend: &Trend) -> Rate {
        Rate {
            slope: trend.slope,
            interval: trend.interval,
        }
    }
}

/// Growth of a series of bytes, the time it took, and its rate.
pub(super) fn grown(trend: &Trend) -> [(&'static str, Amount); 3] {
    let (growth, seconds) = trend.measured();
    [
        ("growth", Amount::Change(growth)),
        ("length", Amount::Seconds(seconds)),
        ("rate", Amount::ByteRate(trend.into())),
    ]
}
