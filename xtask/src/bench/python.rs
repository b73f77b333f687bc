//! Workloads in Python, with and without PyTorch.

use super::workloads::{Kind, Means, Program, Workload};
use crate::command::root;
use std::path::Path;

/// A subcommand of `xtask/bench/python.py`, its description and iterations.
const PLAIN: [(&str, &str, u32); 4] = [
    ("json", "CPython, records to JSON and back", 600),
    ("dicts", "CPython, dicts that are filled and sorted", 600),
    (
        "regex",
        "CPython, a regular expression compiled and applied",
        500,
    ),
    ("import", "CPython, some eighty modules imported anew", 10),
];

/// Arguments of `xtask/bench/steps.py`.
const STEPS: [(&str, &str, u32); 4] = [
    ("training", "small", 1000),
    ("training", "large", 5),
    ("inference", "small", 3000),
    ("inference", "large", 20),
];

pub(super) fn workloads(means: &Means) -> Vec<Workload> {
    let plain = PLAIN.iter().map(|(name, what, count)| Workload {
        name: format!("python-{name}"),
        what: (*what).to_owned(),
        unit: "ms per iteration",
        kind: script(means.python, "python.py", &[name, &count.to_string()]),
    });
    let torch = means.torch.into_iter().flat_map(|environment| {
        STEPS.iter().map(|(kind, size, count)| Workload {
            name: format!("torch-{kind}-{size}"),
            what: format!("PyTorch on the CPU, {kind}, {size} layers"),
            unit: "ms per step",
            kind: script(
                &environment.join("bin/python"),
                "steps.py",
                &[kind, size, &count.to_string()],
            ),
        })
    });
    plain.chain(torch).collect()
}

fn script(python: &Path, name: &str, arguments: &[&str]) -> Kind {
    if !python.is_file() {
        return Kind::Missing(format!("not installed: no `{}`", python.display()));
    }
    let script = root().join("xtask/bench").join(name);
    let mut all = vec![script.display().to_string()];
    all.extend(arguments.iter().map(|&argument| argument.to_owned()));
    Kind::Program(Program {
        program: python.to_owned(),
        arguments: all,
        untraced: None,
        python: true,
    })
}
