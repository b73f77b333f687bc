//! A growing process as the rules see it, and the parts of its growth.

use super::{process::Judging, site::JudgedSite};
use crate::analysis::{
    account::{Account, Kind, Term, accounts},
    series::Figure,
    verdict::{
        class::{Class, Grade},
        context::Context,
        evidence::{Amount, Evidence},
        shape::Judged,
        thresholds::{MAJORITY, PROCESS_FLOOR},
    },
};

/// A process that grows.
pub(in super::super) struct Growing<'a> {
    pub(in super::super) context: &'a Context<'a>,
    pub(in super::super) sites: &'a [JudgedSite],
    /// Bytes; more than 0.
    pub(in super::super) growth: f64,
    /// Growth explained by live blocks and mappings, but not of shared memory, and the rest of anonymous memory.
    pub(in super::super) live: f64,
    pub(in super::super) residual: f64,
    /// Growth of the pages of files that the program has mapped since.
    pub(in super::super) new_files: f64,
}

/// A class and how much of the growth it has.
pub(in super::super) struct Part {
    pub(in super::super) class: Class,
    pub(in super::super) share: f64,
    pub(in super::super) grade: Grade,
    pub(in super::super) evidence: Evidence,
}

/// Grade by how much of the growth a class explains.
pub(in super::super) fn grade_of(share: f64) -> Grade {
    if share >= MAJORITY {
        Grade::B
    } else {
        Grade::C
    }
}

impl<'a> Growing<'a> {
    pub(in super::super) fn of(judging: &Judging<'a>) -> Growing<'a> {
        let Context { series, window, .. } = judging.context;
        let footprint = series.footprint().unwrap_or_else(|| series.live());
        let growth = window.change(&footprint).max(f64::MIN_POSITIVE);
        let accounts = accounts(series, *window);
        let of_kind = |kind| accounts.iter().find(|account| account.kind == kind);
        let mapped = |kind| of_kind(kind).map_or(0.0, |of| of.of(Term::LiveMappings).max(0.0));
        let (live, residual) = match of_kind(Kind::Anonymous) {
            Some(account) => {
                // Less than nothing: the blocks took memory that was resident before.
                let residual = account.retained() + account.of(Term::Unattributed).max(0.0);
                let anonymous = account.growth - residual;
                (anonymous + mapped(Kind::File), residual)
            }
            None => (growth, 0.0),
        };
        Growing {
            context: judging.context,
            sites: judging.sites,
            growth,
            live,
            residual,
            new_files: mapped(Kind::File),
        }
    }

    /// Bytes of the growth, and their share of it.
    pub(in super::super) fn amount(&self, bytes: f64) -> Amount {
        Amount::Part(bytes, self.growth)
    }

    /// A part of this many bytes, graded by its size.
    pub(in super::super) fn part(&self, class: Class, bytes: f64, evidence: Evidence) -> Part {
        let share = bytes / self.growth;
        Part {
            class,
            share,
            grade: grade_of(share),
            evidence,
        }
    }

    /// All growth that live allocations do not explain.
    pub(in super::super) fn rest(&self, class: Class, grade: Grade, evidence: Evidence) -> Part {
        Part {
            grade,
            ..self.part(class, self.residual, evidence)
        }
    }

    /// The part of a figure's growth that is anonymous memory, bytes.
    pub(in super::super) fn of_anonymous(&self, figure: Figure) -> f64 {
        let Context { series, window, .. } = self.context;
        let share = series.share(figure, Figure::Anon, *window).unwrap_or(0.0);
        share.clamp(0.0, 1.0) * self.change(series.figure(Figure::Anon))
    }

    /// Change of a series, if there is one.
    pub(in super::super) fn change(&self, values: Option<&[f64]>) -> f64 {
        values.map_or(0.0, |values| self.context.window.change(values))
    }

    /// Memory that the allocator keeps beyond its live blocks, bytes.
    pub(in super::super) fn retained(&self) -> f64 {
        accounts(self.context.series, self.context.window)
            .first()
            .map_or(0.0, Account::retained)
    }

    /// Memory that blocks of a class's sites hold open, bytes, and the worst grade of these; `None`
    /// if they hold nothing open.
    pub(in super::super) fn holes_of(&self, class: Class) -> Option<(f64, Grade)> {
        let sites = self.sites.iter().filter(|site| site.verdict.class == class);
        let holding = sites.filter(|site| site.holes > 0.0);
        let grade = holding.clone().map(|site| site.verdict.grade).max()?;
        Some((holding.map(|site| site.holes).sum(), grade))
    }

    /// Growth rate of live memory.
    pub(in super::super) fn live_rate(&self) -> Amount {
        let Context { series, window, .. } = self.context;
        match Judged::of(&series.times, &series.live(), window.from, PROCESS_FLOOR) {
            Ok(judged) => Amount::ByteRate((&judged.trend).into()),
            Err(short) => Amount::NoRate(short),
        }
    }
}
