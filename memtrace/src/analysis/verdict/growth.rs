//! Finds the part of a growing process that grows.

use super::{
    Class, Evidence, Grade,
    detectors::{rules, undetermined},
    evidence::{Amount, Statement, grown},
    process::Judging,
    rule::{Finding, OfProcess},
    shape::{Judged, Shape},
    site::{Context, JudgedSite},
    thresholds::{MAJORITY, PROCESS_FLOOR, REPORTED, SITE_FLOOR},
};
use crate::{
    analysis::{
        account::{Account, Kind, Term, accounts},
        series::{Figure, Place, place},
    },
    frames::mappings::Use,
};

static TOGETHER: Statement = Statement {
    name: "footprint_grows",
    sentence: "resident and swapped memory {growth} in {length}, {rate}, Mann–Kendall p = {p}",
};

static CALLED: Statement = Statement {
    name: "part_of_sites",
    sentence: "sites classified as {class} grew {part}, with the allocator's rounding",
};

static SPREAD: Statement = Statement {
    name: "part_of_many_sites",
    sentence: "live memory grew {part}, spread over many sites: those with a verdict account for less than {least} of it",
};

static ONE_SITE: Statement = Statement {
    name: "part_of_one_site",
    sentence: "live memory grew {part}, most of it at a site whose own growth is not clear",
};

/// A process that grows.
pub(super) struct Growing<'a> {
    pub(super) context: &'a Context<'a>,
    sites: &'a [JudgedSite],
    /// Bytes; more than 0.
    pub(super) growth: f64,
    /// Growth of anonymous memory explained by live blocks, and the rest of it.
    pub(super) live: f64,
    pub(super) residual: f64,
}

/// A class and how much of the growth it has.
pub(super) struct Part {
    pub(super) class: Class,
    pub(super) share: f64,
    pub(super) grade: Grade,
    pub(super) evidence: Evidence,
}

/// The class of the largest part; the next one that matters is the runner-up.
pub(super) fn largest(judging: &Judging) -> Finding {
    let growing = Growing::of(judging);
    let trend = &judging.judged.trend;
    let [growth, length, rate] = grown(trend);
    let p = ("p", Amount::Probability(trend.p_value));
    let mut evidence = vec![TOGETHER.with([growth, length, rate, p])];
    let mut parts = growing.parts();
    parts.retain(|part| part.share >= REPORTED);
    parts.sort_by(|a, b| b.share.total_cmp(&a.share));
    // Free memory between leaking blocks cannot be distinguished from memory that would be free
    // without them.
    let leak = parts.iter().position(|part| part.class == Class::Leak);
    if let Some(leak) = leak
        && parts[0].class == Class::Retention
    {
        parts[..=leak].rotate_right(1);
    }
    let mut parts = parts.into_iter();
    let Some(first) = parts.next() else {
        evidence.push(undetermined::no_part(&growing));
        return undetermined::finding(evidence);
    };
    evidence.push(first.evidence);
    let second = parts.next();
    let runner_up = second.as_ref().map(|second| second.class);
    evidence.extend(second.map(|second| Evidence {
        of_runner_up: true,
        ..second.evidence
    }));
    let runner_up = runner_up.filter(|class| *class != first.class);
    Finding {
        class: first.class,
        grade: first.grade,
        evidence,
        runner_up: runner_up.or(first.class.description().mistaken_for),
        rate: Some(trend.slope),
    }
}

/// Grade by how much of the growth a class explains.
pub(super) fn grade_of(share: f64) -> Grade {
    if share >= MAJORITY {
        Grade::B
    } else {
        Grade::C
    }
}

impl<'a> Growing<'a> {
    fn of(judging: &Judging<'a>) -> Growing<'a> {
        let Context { series, window, .. } = judging.context;
        let footprint = series.footprint().unwrap_or_else(|| series.live());
        let growth = window.change(&footprint).max(f64::MIN_POSITIVE);
        let accounts = accounts(series, *window);
        let mut accounts = accounts.iter();
        let (live, residual) = match accounts.find(|account| account.kind == Kind::Anonymous) {
            Some(account) => {
                let residual = account.retained() + account.of(Term::Unattributed);
                (account.growth - residual, residual)
            }
            None => (growth, 0.0),
        };
        Growing {
            context: judging.context,
            sites: judging.sites,
            growth,
            live,
            residual,
        }
    }

    /// In the order of the rules.
    fn parts(&self) -> Vec<Part> {
        let parts = rules().filter_map(|rule| match rule.find {
            OfProcess::Part(find) => find(self),
            _ => None,
        });
        let mut parts: Vec<Part> = parts.collect();
        if self.live / self.growth >= REPORTED {
            parts.extend(self.outstanding());
        }
        if self.residual / self.growth >= REPORTED {
            parts.extend(rules().find_map(|rule| match rule.find {
                OfProcess::Unexplained(find) => find(self),
                _ => None,
            }));
        }
        parts
    }

    /// By site, or in total if it is spread over many.
    fn outstanding(&self) -> Vec<Part> {
        let sites = rules().filter_map(|rule| match rule.find {
            OfProcess::Sites => self.of_sites(rule.class),
            _ => None,
        });
        let sites: Vec<Part> = sites.collect();
        match sites.iter().any(|part| part.share >= REPORTED) {
            true => sites,
            false => self.spread().into_iter().collect(),
        }
    }

    /// Bytes of the growth, and their share of it.
    pub(super) fn amount(&self, bytes: f64) -> Amount {
        Amount::Part(bytes, self.growth)
    }

    /// A part of this many bytes, graded by its size.
    pub(super) fn part(&self, class: Class, bytes: f64, evidence: Evidence) -> Part {
        let share = bytes / self.growth;
        Part {
            class,
            share,
            grade: grade_of(share),
            evidence,
        }
    }

    /// All growth that live allocations do not explain.
    pub(super) fn rest(&self, class: Class, grade: Grade, evidence: Evidence) -> Part {
        Part {
            grade,
            ..self.part(class, self.residual, evidence)
        }
    }

    /// The part of the growth at sites of a class.
    fn of_sites(&self, class: Class) -> Option<Part> {
        let sites = || {
            let host = self.sites.iter().filter(|site| site.is_of_host());
            host.filter(|site| site.verdict.class == class)
        };
        let bytes = sites().map(|site| site.resident.min(self.live));
        let bytes = bytes.sum::<f64>().min(self.live);
        let worst = sites().map(|site| site.verdict.grade).min();
        let evidence = CALLED.with([
            ("class", Amount::Class(class)),
            ("part", self.amount(bytes)),
        ]);
        (bytes > 0.0).then(|| Part {
            grade: grade_of(bytes / self.growth).max(worst.unwrap_or(Grade::C)),
            ..self.part(class, bytes, evidence)
        })
    }

    /// Many sites that grow a little each: the class that the shape of all together has.
    fn spread(&self) -> Option<Part> {
        let Context { series, window, .. } = self.context;
        let mut all = series.live();
        for (sum, mapped) in all.iter_mut().zip(series.mapped(Use::Program)) {
            *sum += mapped;
        }
        let shape = Judged::of(&series.times, &all, window.from, SITE_FLOOR)
            .map_or(Shape::Flat, |judged| judged.shape());
        let mut host = series
            .sites
            .iter()
            .filter(|site| place(&site.key) == Place::Host);
        let is_one = host.any(|site| window.change(&site.live_bytes) >= MAJORITY * self.live);
        // If a single site certainly kept growing, it would have its own verdict.
        let shape = match shape {
            Shape::Steady if is_one => Shape::Between,
            other => other,
        };
        let part = ("part", self.amount(self.live));
        let evidence = match is_one {
            true => ONE_SITE.with([part]),
            false => SPREAD
                .with([part])
                .against([("least", Amount::Share(REPORTED))]),
        };
        rules().find_map(|rule| match rule.find {
            OfProcess::Spread(shapes, grade) if shapes.contains(&shape) => Some(Part {
                grade,
                ..self.part(rule.class, self.live, evidence.clone())
            }),
            _ => None,
        })
    }

    /// The part of a figure's growth that is anonymous memory, bytes.
    pub(super) fn of_anonymous(&self, figure: Figure) -> f64 {
        let Context { series, window, .. } = self.context;
        let share = series.share(figure, Figure::Anon, *window).unwrap_or(0.0);
        share.clamp(0.0, 1.0) * self.change(series.figure(Figure::Anon))
    }

    /// Change of a series, if there is one.
    pub(super) fn change(&self, values: Option<&[f64]>) -> f64 {
        values.map_or(0.0, |values| self.context.window.change(values))
    }

    /// Memory that the allocator keeps beyond its live blocks, bytes.
    pub(super) fn retained(&self) -> f64 {
        accounts(self.context.series, self.context.window)
            .first()
            .map_or(0.0, Account::retained)
    }

    /// Memory that blocks of a class's sites hold open, bytes, and the worst grade of these; `None`
    /// if they hold nothing open.
    pub(super) fn held_open_by(&self, class: Class) -> Option<(f64, Grade)> {
        let sites = self.sites.iter().filter(|site| site.verdict.class == class);
        let holding = sites.filter(|site| site.held_open > 0.0);
        let grade = holding.clone().map(|site| site.verdict.grade).max()?;
        Some((holding.map(|site| site.held_open).sum(), grade))
    }

    /// Growth rate of live memory.
    pub(super) fn live_rate(&self) -> Amount {
        let Context { series, window, .. } = self.context;
        match Judged::of(&series.times, &series.live(), window.from, PROCESS_FLOOR) {
            Ok(judged) => Amount::ByteRate((&judged.trend).into()),
            Err(short) => Amount::NoRate(short),
        }
    }
}
