//! Shared memory of the machine grows, in no process.

use crate::analysis::verdict::{
    advice::Advice,
    class::Class,
    evidence::Statement,
    rule::{DESCRIPTION, Description, OfProcess, Rule},
};

pub(super) const CLASS: Description = Description {
    name: "machine-shmem",
    meaning: "shared memory or tmpfs of the machine grows, in no process",
    next: &[Advice::ListSharedOfMachine],
    of_machine: true,
    ..DESCRIPTION
};

static GROWS: Statement = Statement {
    name: "machine_shared_memory_grows",
    sentence: "shared memory of the machine {growth} in {length}, {rate}",
};

pub(super) const MACHINE: Rule<OfProcess> = Rule {
    class: Class::MachineShmem,
    evidence: "shared memory that no process maps grows by 1 % of the machine's memory",
    find: OfProcess::Flat(|judging| {
        judging.machine_grows(&judging.machine.shared, Class::MachineShmem, &GROWS)
    }),
};
