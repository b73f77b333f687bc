//! Address space or mappings that grow while resident memory does not.

use crate::{
    analysis::{
        series::Figure,
        verdict::{
            advice::Advice,
            class::Class,
            context::Context,
            evidence::{Amount, Statement},
            rule::{DESCRIPTION, Description, OF_SITES, OfProcess, OfSite, Rule},
            subjects::{COUNT_FLOOR, counted},
            thresholds::OF_RESIDUAL,
        },
    },
    frames::mappings::Use,
};

pub(super) const CLASS: Description = Description {
    name: "mapping-leak",
    meaning: "address space that is mapped and never unmapped",
    next: &[Advice::LookAtMappings],
    next_of_site: Some(|_, _, _| Advice::ListMappings),
    ..DESCRIPTION
};

/// Mappings of one arena or stack: the part in use, and the rest of it or its guard.
const MAPPINGS_OF_ONE: f64 = 2.0;

static RISES: Statement = Statement {
    name: "mappings_rise",
    sentence: "mappings: {growth} in {length}, {rate}",
};

static NOT_TOUCHED: Statement = Statement {
    name: "not_touched",
    sentence: "resident memory grew by {share} of the mapped size: most of it was never touched",
};

pub(super) const SITES: Rule<OfProcess> = Rule {
    class: Class::MappingLeak,
    evidence: OF_SITES,
    find: OfProcess::Sites,
};

pub(super) const COUNT: Rule<OfProcess> = Rule {
    class: Class::MappingLeak,
    evidence: "mappings, by 20 or more than allocators, stacks and libraries account for",
    find: OfProcess::Flat(|judging| {
        let judged = judging.rising(Figure::Mappings, COUNT_FLOOR)?;
        let Context { series, window, .. } = judging.context;
        let others = series.sites.iter();
        let others = others.filter(|site| !matches!(site.mapping, None | Some(Use::Program)));
        let others: f64 = others.map(|site| window.change(&site.live_count)).sum();
        let own = judged.trend.growth() - MAPPINGS_OF_ONE * others;
        (own >= COUNT_FLOOR).then(|| counted(Class::MappingLeak, &RISES, &judged))
    }),
};

pub(super) const UNSEEN: Rule<OfProcess> = Rule {
    class: Class::MappingLeak,
    evidence: "sites leak address space that is never touched",
    find: OfProcess::Flat(|judging| {
        (judging.growth_of(Class::MappingLeak) > 0.0).then(|| judging.unseen(Class::MappingLeak))
    }),
};

pub(super) const SITE: Rule<OfSite> = Rule {
    class: Class::MappingLeak,
    evidence: "keeps growing like a leak, in mappings less than half of which became resident",
    find: OfSite::Growing(|grown| {
        let grade = grown.leaks()?;
        let share = grown.context.touched(grown.site)?;
        (share < OF_RESIDUAL).then(|| {
            let mut found = grown.leak(grade);
            found.evidence = vec![NOT_TOUCHED.with([("share", Amount::Share(share))])];
            found
        })
    }),
};
