//! An allocation of device memory failed: it is larger than the device, free memory is fragmented,
//! other processes hold it, or the process uses it all.

use crate::analysis::verdict::{
    advice::Advice,
    class::{Class, Grade},
    evidence::{Amount, Statement},
    rule::{DESCRIPTION, Description, OfProcess, Rule},
    subjects::OutOfMemory,
    thresholds::REPORTED,
};

pub(super) const CLASS: Description = Description {
    name: "gpu-out-of-memory",
    meaning: "an allocation of GPU memory failed",
    on_screen: 4,
    ..DESCRIPTION
};

pub(in crate::analysis::verdict) static ASKED: Statement = Statement {
    name: "out_of_memory",
    sentence: "{line} failed to allocate {requested} on {device} at {time}",
};

pub(in crate::analysis::verdict) static REPEATED: Statement = Statement {
    name: "out_of_memory_repeated",
    sentence: "this failed {count} times in total; the figures are from the last time",
};

pub(in crate::analysis::verdict) static HELD: Statement = Statement {
    name: "out_of_memory_held",
    sentence: "{cache}: {reserved} reserved, {allocated} of it in blocks, {unused} in none",
};

pub(in crate::analysis::verdict) static LARGEST: Statement = Statement {
    name: "out_of_memory_largest_free",
    sentence: "its largest free block was {largest}",
};

pub(in crate::analysis::verdict) static KNOWN: Statement = Statement {
    name: "out_of_memory_known",
    sentence: "the process held at least {known}",
};

pub(in crate::analysis::verdict) static CAPACITY: Statement = Statement {
    name: "device_capacity",
    sentence: "the device has {capacity}",
};

pub(in crate::analysis::verdict) static HOLDER: Statement = Statement {
    name: "out_of_memory_holder",
    sentence: "{line} held {bytes} in {blocks} blocks",
};

static TOO_LARGE: Statement = Statement {
    name: "larger_than_device",
    sentence: "the request is larger than the device",
};

static ENOUGH_IN_PIECES: Statement = Statement {
    name: "fragmented",
    sentence: "fragmentation: {unused} is reserved but in no block, split into pieces or kept for other streams",
};

static MOSTLY_UNUSED: Statement = Statement {
    name: "mostly_unused",
    sentence: "probably fragmentation: {unused} ({share}) of the reserved memory is in no block",
};

static ELSEWHERE: Statement = Statement {
    name: "held_by_others",
    sentence: "held by others: {left} of the device is not accounted for by this process",
};

static FULL: Statement = Statement {
    name: "device_full",
    sentence: "full: the reserved memory is in use",
};

static LIKELY_FULL: Statement = Statement {
    name: "device_likely_full",
    sentence: "probably full: nothing that was recorded shows another cause",
};

pub(super) const IMPOSSIBLE: Rule<OfProcess> = Rule {
    class: Class::GpuOutOfMemory,
    evidence: "the request is larger than the device",
    find: OfProcess::Failed(|about| {
        let next = vec![Advice::CheckRequest];
        (about.requested() > about.capacity?)
            .then(|| about.found(Grade::B, TOO_LARGE.with([]), next))
            .flatten()
    }),
};

pub(super) const FRAGMENTED: Rule<OfProcess> = Rule {
    class: Class::GpuOutOfMemory,
    evidence: "fragmentation: at least the requested size is reserved, but in no block",
    find: OfProcess::Failed(|about| {
        let unused = about.unused()?;
        let evidence = ENOUGH_IN_PIECES.with([("unused", Amount::Bytes(unused))]);
        let next = in_one_piece(about);
        (unused >= about.requested())
            .then(|| about.found(Grade::B, evidence, next))
            .flatten()
    }),
};

pub(super) const HELD_BY_OTHERS: Rule<OfProcess> = Rule {
    class: Class::GpuOutOfMemory,
    evidence: "held by others: the process left at least the requested size of the device unused",
    find: OfProcess::Failed(|about| {
        let left = about.left?;
        let evidence = ELSEWHERE.with([("left", Amount::Bytes(left))]);
        let next = vec![Advice::ListDeviceProcesses];
        (left >= about.requested())
            .then(|| about.found(Grade::C, evidence, next))
            .flatten()
    }),
};

pub(super) const LIKELY_FRAGMENTED: Rule<OfProcess> = Rule {
    class: Class::GpuOutOfMemory,
    evidence: "probably fragmentation: the reserved memory in no block and the rest of the device would be enough together; with the device's size unknown: 30 % of the reserved memory is in no block, although the allocator gave back what it could",
    find: OfProcess::Failed(|about| {
        let unused = about.unused().filter(|unused| *unused > 0.0)?;
        let share = unused / about.cache()?.reserved? as f64;
        let is_enough = match about.left {
            Some(left) => unused + left >= about.requested(),
            None => share >= REPORTED,
        };
        let evidence = MOSTLY_UNUSED.with([
            ("unused", Amount::Bytes(unused)),
            ("share", Amount::Share(share)),
        ]);
        let next = in_one_piece(about);
        is_enough
            .then(|| about.found(Grade::C, evidence, next))
            .flatten()
    }),
};

pub(super) const DEVICE_FULL: Rule<OfProcess> = Rule {
    class: Class::GpuOutOfMemory,
    evidence: "full: otherwise",
    find: OfProcess::Failed(|about| {
        let next = vec![Advice::FreeDeviceMemory, Advice::LookForDeviceProcesses];
        match about.unused().and(about.capacity) {
            Some(_) => about.found(Grade::B, FULL.with([]), next),
            None => about.found(Grade::C, LIKELY_FULL.with([]), next),
        }
    }),
};

fn in_one_piece(about: &OutOfMemory) -> Vec<Advice> {
    let settings = about.allocator.against_fragmentation.iter();
    let settings = settings.map(|setting| Advice::AgainstFragmentation(setting));
    settings.chain([Advice::UseLikeSizes]).collect()
}
