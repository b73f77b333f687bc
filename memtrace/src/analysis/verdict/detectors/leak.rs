//! Live memory that keeps growing.

use crate::{
    analysis::verdict::{
        advice::Advice,
        buffers,
        class::{Class, Grade},
        diagnosis::{Scope, Verdict},
        evidence::{Amount, Statement},
        rule::{DESCRIPTION, Description, OF_SITES, OfProcess, OfSite, Rule},
        shape::{Judged, Shape},
        subjects::SiteFinding,
        thresholds::{OF_RESIDUAL, PROCESS_FLOOR, REPORTED},
    },
    event::Layer,
    frames::mappings::{Requester, Use},
};

pub(super) const CLASS: Description = Description {
    name: "leak",
    meaning: "memory that is never freed",
    mistaken_for: Some(Class::Cache),
    next: &[Advice::LookAtSites],
    next_of_site: Some(|context, site, _| match (site.key.layer, site.mapping) {
        (Layer::Python, _) => Advice::RecordObjects,
        (Layer::Vm, Some(Use::Program)) => match context.requester(&site.key) {
            Requester::Program => Advice::Unmap,
            Requester::Nameless => Advice::KeepSymbols,
            Requester::Other => Advice::FindKeeper,
        },
        _ => Advice::FindKeeper,
    }),
    is_leak: true,
    ..DESCRIPTION
};

/// Least growth of leaking sites that resident memory does not show, bytes or blocks: a small cache may still fill by less.
const UNSEEN_BYTES: f64 = 128.0 * 1024.0;
const UNSEEN_BLOCKS: f64 = 500.0;

/// Bytes that one live block can keep from being given back.
const PAGE: f64 = 4096.0;

static AROUND: Statement = Statement {
    name: "held_open_by_leak",
    sentence: "the allocator has {part} free; blocks from leaking sites hold open {holes} of {all} in resident holes",
};

static BETWEEN_BLOCKS: Statement = Statement {
    name: "kept_between_blocks",
    sentence: "the allocator has {part} free between {blocks} new live blocks, each of which can hold a page; live memory {live}",
};

pub(super) const SITES: Rule<OfProcess> = Rule {
    class: Class::Leak,
    evidence: OF_SITES,
    find: OfProcess::Sites,
};

pub(super) const SPREAD: Rule<OfProcess> = Rule {
    class: Class::Leak,
    evidence: "live memory where no single site grows enough, but all of them together rise steadily",
    find: OfProcess::Spread(&[Shape::Steady], Grade::C),
};

static OBJECTS_KEPT: Statement = Statement {
    name: "objects_kept",
    sentence: "objects of Python that become more take {part}, in memory that the interpreter had: most of them are kept",
};

pub(super) const OBJECTS: Rule<OfProcess> = Rule {
    class: Class::Leak,
    evidence: "objects of Python's types that become more steadily account for at least 30 % of it, memory rises steadily, and a container without a limit that got more of them, or leaked references, certainly keep most of what came",
    find: OfProcess::Unexplained(|growing| {
        let objects = growing.context.kept_objects()?;
        let explains = objects >= REPORTED * growing.residual && growing.context.is_steady();
        explains.then(|| {
            let evidence =
                OBJECTS_KEPT.with([("part", growing.amount(objects.min(growing.residual)))]);
            growing.rest(Class::Leak, Grade::C, evidence)
        })
    }),
};

static BUFFERS_FILL: Statement = Statement {
    name: "in_enlarged_buffers",
    sentence: "blocks that were enlarged when they were full take {part}: they fill again",
};

pub(super) const BUFFERS: Rule<OfProcess> = Rule {
    class: Class::Leak,
    evidence: "the blocks of one site fill, which were enlarged while recording",
    find: OfProcess::Unexplained(|growing| {
        let mut sites = growing.sites.iter();
        let fills = sites.find(|site| buffers::fill(&site.verdict.evidence))?;
        let part = growing.amount(fills.growth.min(growing.residual));
        let evidence = BUFFERS_FILL.with([("part", part)]);
        Some(growing.rest(Class::Leak, Grade::C, evidence))
    }),
};

pub(super) const HELD_OPEN: Rule<OfProcess> = Rule {
    class: Class::Leak,
    evidence: "the allocator has at least half of it free, and at least half of the resident holes in its heap are held open by blocks from leaking sites",
    find: OfProcess::Unexplained(|growing| {
        let retained = growing.retained();
        let (holes, grade) = growing.holes_of(Class::Leak)?;
        let all = growing.context.series.holes;
        let explains = holes >= OF_RESIDUAL * all && all >= OF_RESIDUAL * retained;
        (retained >= OF_RESIDUAL * growing.residual && explains).then(|| {
            let evidence = AROUND.with([
                ("part", growing.amount(retained)),
                ("holes", Amount::Bytes(holes)),
                ("all", Amount::Bytes(all)),
            ]);
            growing.rest(Class::Leak, grade, evidence)
        })
    }),
};

pub(super) const HOLES: Rule<OfProcess> = Rule {
    class: Class::Leak,
    evidence: "no holes were seen in its heap, the allocator has mapped at least half of it beyond its live blocks, live memory rises steadily, and there are enough new blocks to hold one page each",
    find: OfProcess::Unexplained(|growing| {
        let retained = growing.retained();
        let series = growing.context.series;
        let window = growing.context.window;
        let blocks = window.change(&series.live_blocks);
        let heap = Judged::of(&series.times, &series.heap, window.from, PROCESS_FLOOR);
        let rises = heap.is_ok_and(|heap| heap.shape() == Shape::Steady);
        let is_unknown = series.holes == 0.0;
        let enough = retained >= OF_RESIDUAL * growing.residual && blocks * PAGE >= retained;
        (is_unknown && enough && rises).then(|| {
            let evidence = BETWEEN_BLOCKS.with([
                ("part", growing.amount(retained)),
                ("blocks", Amount::Count(blocks)),
                ("live", growing.live_rate()),
            ]);
            growing.rest(Class::Leak, Grade::C, evidence)
        })
    }),
};

pub(super) const UNSEEN: Rule<OfProcess> = Rule {
    class: Class::Leak,
    evidence: "sites leak too little for resident memory to show it, but at least 128 KiB or 500 blocks in total, or blocks that nothing points to",
    find: OfProcess::Flat(|judging| {
        let is_lost =
            |of: &Verdict| matches!(of.scope, Scope::Site(site) if judging.context.is_lost(&site));
        let mut leaking = judging.sites.iter().map(|of| &of.verdict);
        let leaks = judging.growth_of(Class::Leak) >= UNSEEN_BYTES
            || judging.blocks_of(Class::Leak) >= UNSEEN_BLOCKS
            || leaking.any(|of| of.class == Class::Leak && is_lost(of));
        // If growth shows, but not what leaks, the leak is not what grows.
        (leaks && !judging.judged.is_slow()).then(|| judging.unseen(Class::Leak))
    }),
};

pub(super) const SITE: Rule<OfSite> = Rule {
    class: Class::Leak,
    evidence: "keeps growing: the late slope is at least 0.7 × the early one by time, 0.8 × by the allocations of other sites; rises in 6 of the last 8 parts; 95 % of the blocks that outlived a quarter of the time are still live",
    find: OfSite::Growing(|grown| grown.leaks().map(|grade| grown.leak(grade))),
};

static BACKLOG: Statement = Statement {
    name: "backlog",
    sentence: "{freed} blocks from before the recording were freed, and resident memory rises in a straight line: like a queue that is filled faster than it is emptied",
};

pub(super) const QUEUE: Rule<OfSite> = Rule {
    class: Class::Leak,
    evidence: "of an attached process that is recorded alone: rises in 6 of the last 8 parts, without an end in sight, by 60 % of the process's growth, which is steady by time; 60 % of the blocks that outlived a quarter of the time are still live; blocks from before the recording were freed, at least 5 % as many as it gained",
    find: OfSite::Growing(|grown| {
        let freed = grown.context.quality.unknown_frees;
        grown.is_backlog().then(|| SiteFinding {
            evidence: vec![BACKLOG.with([("freed", Amount::Count(freed))])],
            ..grown.leak(Grade::C)
        })
    }),
};

static STEADY_BACKLOG: Statement = Statement {
    name: "steady_backlog",
    sentence: "the oldest blocks are freed first, and live longer and longer: like a queue that is filled faster than it is emptied",
};

pub(super) const STEADY_QUEUE: Rule<OfSite> = Rule {
    class: Class::Leak,
    evidence: "of malloc: keeps growing, and rises in 6 of the last 8 parts, in a process whose growth is steady by time; in each eighth of the time, what it allocates and what it gains are between 0.5 × and 1.5 × the mean of all; of the blocks allocated first (15 % or more), at most half as large a share is live as of those a quarter as old, and those freed lived for times that differ by a factor of two or more",
    find: OfSite::Growing(|grown| {
        grown.is_steady_backlog().then(|| SiteFinding {
            evidence: vec![STEADY_BACKLOG.with([])],
            ..grown.leak(Grade::C)
        })
    }),
};

static WITH_CONTAINER: Statement = Statement {
    name: "grows_with_container",
    sentence: "a container without a limit certainly keeps the blocks and gets as many items",
};

pub(super) const KEPT: Rule<OfSite> = Rule {
    class: Class::Leak,
    evidence: "by 60 % of the process's growth, which is steady by time; the late slope is at least 0.7 × the early one; a container without a limit certainly keeps the blocks and gets elements at least 0.8 × as fast",
    find: OfSite::Growing(|grown| {
        grown.grows_with_container().then(|| SiteFinding {
            evidence: vec![WITH_CONTAINER.with([])],
            ..grown.leak(Grade::C)
        })
    }),
};
