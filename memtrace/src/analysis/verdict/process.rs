//! The verdicts on a process as a whole: one for each device on which its memory grows, and one on
//! its own memory.

use super::{
    advice::{self, Advice},
    caller,
    class::Class,
    context::Context,
    detectors::{rules, undetermined},
    device,
    diagnosis::{Scope, Verdict},
    finding::Finding,
    named::Named,
    order,
    quality::Quality,
    rule::{OfProcess, Unreliable},
    shape::Judged,
    site,
    subjects::Judging,
    thresholds::{LOST, PROCESS_FLOOR},
    types::Types,
};
use crate::{
    analysis::{
        account::{Account, accounts, touched},
        series::ProcessSeries,
        statistics::MIN_POINTS,
        system::SystemSeries,
        window::Window,
    },
    frames::mappings::Use,
    hash::FastMap,
    ledger::SiteKey,
    recording::{Holders, Stacks},
};

/// A process's verdict with its sites' and its tables.
pub(super) struct JudgedProcess {
    /// At least one: of its devices that grow, and of its own memory and counts.
    pub(super) verdicts: Vec<Verdict>,
    pub(super) sites: Vec<Verdict>,
    pub(super) window: Window,
    pub(super) accounts: Vec<Account>,
    pub(super) named: Named,
}

/// Judges a process; `None` for a child that ended too early.
pub(super) fn judge(
    series: &ProcessSeries,
    stacks: &Stacks,
    quality: &Quality,
    machine: &SystemSeries,
    holders: &FastMap<SiteKey, Holders>,
    types: Option<&Types>,
) -> Option<JudgedProcess> {
    let n = series.times.len();
    let ends = series.times.first().zip(series.times.last());
    let lived = ends.map_or(0.0, |(first, last)| last - first + quality.interval);
    let is_short = lived < quality.least_life;
    if (n < MIN_POINTS || is_short) && series.kin.is_passing(&series.row) {
        return None;
    }
    let footprint = series.footprint();
    let held = footprint.clone().unwrap_or_else(|| series.live());
    let window = Window::after_start(&held, series.imported());
    let context = Context {
        series,
        stacks,
        window,
        quality,
        holders,
        types,
        touched: [Use::Program, Use::Stack, Use::Runtime]
            .map(|what| (what, touched(series, window, what))),
    };
    let judged = Judged::of(&series.times, &held, window.from, PROCESS_FLOOR);
    let sites = match &judged {
        Ok(judged) if !is_short => site::judge(&context, judged.is_material()),
        _ => vec![],
    };
    let too_few = judged.as_ref().err();
    let unreliable = unreliable(&Unreliable {
        too_few: too_few.map(|short| short.found + window.from),
        too_short: is_short.then_some((lived, quality.least_life)),
        lost: quality.lost,
    });
    let whole = Window {
        from: 0,
        to: window.to,
    };
    let judging = judged.as_ref().ok().map(|judged| Judging {
        context: &context,
        judged,
        sites: &sites,
        machine,
        whole,
    });
    let (own, window) = match (unreliable, &judging) {
        (None, Some(judging)) => order::find(judging),
        (found, _) => (
            vec![found.unwrap_or_else(|| undetermined::finding(vec![]))],
            window,
        ),
    };
    let reliable = quality.lost <= LOST;
    let devices = series.devices.iter().filter(|_| reliable && !is_short);
    let mut findings: Vec<Finding> = devices
        .filter_map(|of| device::judge(&context, of, &sites))
        .collect();
    let on_devices = findings.len();
    // If something grows, "nothing else grows" is not worth a verdict.
    let grows = findings.iter().any(|of| of.class != Class::GpuUnused);
    let own = own.into_iter();
    findings.extend(own.filter(|of| of.class != Class::None || !grows));
    let blamed: Vec<Class> = sites.iter().map(|site| site.verdict.class).collect();
    let next = |class, on_device| {
        if !reliable {
            vec![Advice::LoseLess]
        } else if (n < 2 * MIN_POINTS || is_short) && class == Class::Undetermined {
            vec![advice::enough(quality)]
        } else {
            advice::process(class, blamed.contains(&class), on_device, &context)
        }
    };
    let shared = judging.as_ref().and_then(Judging::shared_rise);
    let shared = shared.map(|of| of.trend.slope);
    let rises = judged.as_ref().is_ok_and(|of| of.trend.is_rising());
    let named = Named::of(&context, rises, shared);
    let verdicts = findings
        .into_iter()
        .enumerate()
        .map(|(nth, finding)| Verdict {
            process: series.row.id,
            tgid: series.row.tgid,
            scope: Scope::Process,
            class: finding.class,
            grade: finding.grade,
            next: next(finding.class, nth < on_devices),
            evidence: finding.evidence,
            runner_up: finding.runner_up,
            rate: finding.rate,
            blocks: None,
            caller: None,
            keeper: None,
            absent: None,
            runtime: None,
        });
    let mut sites: Vec<Verdict> = sites.into_iter().map(|site| site.verdict).collect();
    caller::assign(&context, &mut sites);
    Some(JudgedProcess {
        verdicts: verdicts.collect(),
        sites,
        window,
        accounts: accounts(series, window),
        named,
    })
}

fn unreliable(figures: &Unreliable) -> Option<Finding> {
    rules().find_map(|rule| match rule.find {
        OfProcess::Unreliable(find) => find(figures),
        _ => None,
    })
}
