//! Facts about a process that its walks need, kept as long as nothing changes.

use memtrace_common::{code_map::Snapshot, python::Imports};

use crate::{
    argument::{Argument, As},
    code,
    maps::IMPORTS,
    scratch::{Facts, Scratch},
};

/// Facts about the caller's process as of [`crate::scratch::WalkState::as_of`].
#[inline(always)]
fn of(scratch: &mut Scratch) -> &Facts {
    let facts = &scratch.walk.facts;
    if facts.space != scratch.caller.space || facts.as_of != scratch.walk.as_of {
        refresh(scratch.argument());
    }
    &scratch.walk.facts
}

/// The list of mappings.
#[inline(always)]
pub(crate) fn snapshot(scratch: &mut Scratch) -> Option<Snapshot> {
    let facts = of(scratch);
    (facts.has_snapshot != 0).then_some(facts.snapshot)
}

/// The import system whose imports are summarised; without files if none are.
#[inline(always)]
pub(crate) fn imports(scratch: &mut Scratch) -> Imports {
    of(scratch).imports
}

// VERIFIER: a global function: the programs that call it are verified without it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn refresh(scratch: As<Scratch>) -> u64 {
    let Some(scratch) = Scratch::of(scratch) else {
        return 0;
    };
    let space = scratch.caller.space;
    let facts = &mut scratch.walk.facts;
    facts.space = space;
    facts.as_of = scratch.walk.as_of;
    // SAFETY: copied at once.
    facts.imports = unsafe { IMPORTS.get(&space) }.copied().unwrap_or_default();
    facts.has_snapshot = 0;
    match code::snapshot(space) {
        Some(snapshot) => {
            facts.has_snapshot = 1;
            facts.snapshot = snapshot;
        }
        // It is searched again: there may be one soon.
        None => facts.as_of = 0,
    }
    0
}
