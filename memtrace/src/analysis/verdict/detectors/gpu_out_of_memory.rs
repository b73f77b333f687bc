//! An allocation of device memory failed: free memory is fragmented, other processes hold it, or the
//! process uses it all.

use crate::analysis::verdict::{
    Class, Grade,
    evidence::{Amount, Statement},
    out_of_memory::OutOfMemory,
    rule::{DESCRIPTION, Description, OfProcess, Rule},
};

pub(super) const CLASS: Description = Description {
    name: "gpu-out-of-memory",
    meaning: "an allocation of GPU memory failed",
    on_screen: 4,
    ..DESCRIPTION
};

/// Least share of the caching allocator's memory outside blocks that makes fragmentation the cause.
const IN_PIECES: f64 = 0.5;

pub(in crate::analysis::verdict) static ASKED: Statement = Statement {
    name: "out_of_memory",
    sentence: "{line} asked {device} for {requested} in vain at {time}",
};

pub(in crate::analysis::verdict) static REPEATED: Statement = Statement {
    name: "out_of_memory_repeated",
    sentence: "that failed {count} times in all; the figures are those of the last",
};

pub(in crate::analysis::verdict) static HELD: Statement = Statement {
    name: "out_of_memory_held",
    sentence: "{cache}: {reserved} reserved, {allocated} allocated in blocks, {unused} in none",
};

pub(in crate::analysis::verdict) static LARGEST: Statement = Statement {
    name: "out_of_memory_largest_free",
    sentence: "its largest free block had {largest}",
};

pub(in crate::analysis::verdict) static KNOWN: Statement = Statement {
    name: "out_of_memory_known",
    sentence: "the process is known to have held {known}",
};

pub(in crate::analysis::verdict) static CAPACITY: Statement = Statement {
    name: "device_capacity",
    sentence: "the device has {capacity}",
};

pub(in crate::analysis::verdict) static HOLDER: Statement = Statement {
    name: "out_of_memory_holder",
    sentence: "{line} held {bytes} in {blocks} blocks",
};

static ENOUGH_IN_PIECES: Statement = Statement {
    name: "fragmented",
    sentence: "fragmentation: {unused} are reserved and in no block, but in pieces or for other streams",
};

static MOSTLY_UNUSED: Statement = Statement {
    name: "mostly_unused",
    sentence: "fragmentation, likely: {unused} ({share}) of what is reserved are in no block",
};

static ELSEWHERE: Statement = Statement {
    name: "held_by_others",
    sentence: "held by others: {left} of the device are not known to be this process's",
};

static FULL: Statement = Statement {
    name: "device_full",
    sentence: "full: what is reserved is in use",
};

pub(super) const FRAGMENTED: Rule<OfProcess> = Rule {
    class: Class::GpuOutOfMemory,
    evidence: "fragmentation: the caching allocator has as much as was asked for in no block",
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
    evidence: "held by others: the process left as much of the device as was asked for",
    find: OfProcess::Failed(|about| {
        let left = about.left?;
        let evidence = ELSEWHERE.with([("left", Amount::Bytes(left))]);
        let next = vec!["nvidia-smi: which processes have memory of the GPU".to_owned()];
        (left >= about.requested())
            .then(|| about.found(Grade::C, evidence, next))
            .flatten()
    }),
};

pub(super) const LIKELY_FRAGMENTED: Rule<OfProcess> = Rule {
    class: Class::GpuOutOfMemory,
    evidence: "fragmentation, likely: half of what it reserved is in no block, though it has given back what it could",
    find: OfProcess::Failed(|about| {
        let unused = about.unused()?;
        let reserved = about.cache()?.reserved? as f64;
        let evidence = MOSTLY_UNUSED.with([
            ("unused", Amount::Bytes(unused)),
            ("share", Amount::Share(unused / reserved.max(1.0))),
        ]);
        let next = in_one_piece(about);
        (reserved > 0.0 && unused >= IN_PIECES * reserved)
            .then(|| about.found(Grade::C, evidence, next))
            .flatten()
    }),
};

pub(super) const DEVICE_FULL: Rule<OfProcess> = Rule {
    class: Class::GpuOutOfMemory,
    evidence: "full: otherwise",
    find: OfProcess::Failed(|about| {
        let grade = match about.unused() {
            Some(_) => Grade::B,
            None => Grade::C,
        };
        let next = vec![
            "free what the lines above hold, or need less: smaller batches, no gradients in evaluation, checkpointing".to_owned(),
            "nvidia-smi: whether other processes have memory of the GPU".to_owned(),
        ];
        about.found(grade, FULL.with([]), next)
    }),
};

fn in_one_piece(about: &OutOfMemory) -> Vec<String> {
    let settings = about.allocator.against_fragmentation.iter();
    let sizes = "let sizes vary less: batches padded to the same lengths";
    settings
        .chain([&sizes])
        .map(|next| (*next).to_owned())
        .collect()
}
