//! The line that starts the child processes that become more: starting one takes memory, if only for a moment.

use super::{
    class::Class,
    diagnosis::{Diagnosis, Scope},
};
use crate::{
    frames::{Frame, Shown, own_line, starters::starts_process},
    hash::FastMap,
    ledger::{ProcessId, SiteKey},
    recording::{Error, Recording},
};

/// The share of what starting processes allocated that one line has if it starts most of them.
const MOST: f64 = 0.8;

/// Names that line for each process whose children become more.
pub(super) fn assign(recording: &Recording, diagnosis: &mut Diagnosis) -> Result<(), Error> {
    let Diagnosis {
        verdicts,
        accounts,
        stacks,
        ..
    } = diagnosis;
    let verdicts = verdicts.iter();
    let parents =
        verdicts.filter(|of| of.class == Class::ProcessLeak && of.scope == Scope::Process);
    let parents: Vec<ProcessId> = parents.map(|of| of.process).collect();
    if parents.is_empty() {
        return Ok(());
    }
    // A site of each line, and its blocks.
    let mut lines: FastMap<(ProcessId, Shown<'_>), (SiteKey, u64)> = FastMap::default();
    recording.each_site(|_, site| {
        let stack = stacks.get(site.key.stack);
        if !parents.contains(&site.key.process) || !starts_process(stack.frames()) {
            return;
        }
        let frames: Vec<&Frame> = stack.of_caller().collect();
        if let Some(line) = own_line(&frames) {
            let of_line = (site.key.process, line.shown());
            let known = lines.entry(of_line).or_insert((site.key, 0));
            known.1 += site.totals.alloc_count;
        }
    })?;
    for parent in parents {
        let of_parent = || lines.iter().filter(|((process, _), _)| *process == parent);
        let all: u64 = of_parent().map(|(_, (_, blocks))| blocks).sum();
        let most = of_parent().find(|(_, (_, blocks))| *blocks as f64 >= MOST * all as f64);
        let account = accounts.iter_mut().find(|of| of.process == parent);
        if let (Some((_, (site, _))), Some(account)) = (most, account) {
            account.named.starts_processes = Some(*site);
        }
    }
    Ok(())
}
