//! The kernel or a driver grows, no process does.

use crate::analysis::verdict::{
    advice::Advice,
    class::Class,
    evidence::Statement,
    rule::{DESCRIPTION, Description, OfProcess, Rule},
};

pub(super) const CLASS: Description = Description {
    name: "kernel",
    meaning: "memory of the kernel or a driver grows, but no process does",
    next: &[Advice::RunSlabtop],
    of_machine: true,
    ..DESCRIPTION
};

static GROWS: Statement = Statement {
    name: "kernel_grows",
    sentence: "memory of the kernel and its drivers {growth} in {length}, {rate}",
};

pub(super) const MACHINE: Rule<OfProcess> = Rule {
    class: Class::Kernel,
    evidence: "memory of the kernel grows by 1 % of the machine's memory",
    find: OfProcess::Flat(|judging| {
        judging.machine_grows(&judging.machine.kernel, Class::Kernel, &GROWS)
    }),
};
