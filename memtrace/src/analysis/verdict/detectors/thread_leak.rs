//! Stacks of threads that ended and were not joined, or of threads that do not end.

use crate::{
    analysis::{
        series::Figure,
        verdict::{
            advice::Advice,
            class::Class,
            evidence::{Amount, Statement},
            rule::{DESCRIPTION, Description, OF_SITES, OfProcess, OfSite, Rule},
        },
    },
    frames::mappings::Use,
};

pub(super) const CLASS: Description = Description {
    name: "thread-leak",
    meaning: "stacks of threads that are never joined or never end",
    mistaken_for: Some(Class::ThreadChurn),
    next_of_site: Some(|context, site, _| match context.threads_ended(site) {
        true => Advice::JoinThreads,
        false => Advice::LimitThreads,
    }),
    ..DESCRIPTION
};

static STACKS: Statement = Statement {
    name: "stacks_of_threads",
    sentence: "{stacks} stacks of threads, but {threads} threads: a stack stays until its thread has ended and was joined or detached",
};

pub(super) const SITES: Rule<OfProcess> = Rule {
    class: Class::ThreadLeak,
    evidence: OF_SITES,
    find: OfProcess::Sites,
};

pub(super) const UNSEEN: Rule<OfProcess> = Rule {
    class: Class::ThreadLeak,
    evidence: "stacks of threads become more",
    find: OfProcess::Flat(|judging| {
        (judging.growth_of(Class::ThreadLeak) > 0.0).then(|| judging.unseen(Class::ThreadLeak))
    }),
};

pub(super) const SITE: Rule<OfSite> = Rule {
    class: Class::ThreadLeak,
    evidence: "keeps growing like a leak, in stacks of threads, at least 20 of them",
    find: OfSite::Growing(|grown| {
        let grade = grown.leaks()?;
        (grown.site.mapping == Some(Use::Stack)).then(|| {
            let window = grown.context.window;
            let threads = grown.context.series.figure(Figure::Threads);
            let threads = threads.map_or(0.0, |threads| window.change(threads));
            let mut found = grown.leak(grade);
            found.evidence = vec![STACKS.with([
                (
                    "stacks",
                    Amount::CountChange(window.change(&grown.site.live_count)),
                ),
                ("threads", Amount::CountChange(threads)),
            ])];
            found
        })
    }),
};
