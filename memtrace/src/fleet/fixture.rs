//! Made-up recordings of a fleet.

use super::{group::Reading, host::Facts};
use crate::{analysis::verdict::Class, diff::fixture::python};

/// Sixteen hosts. Memory grows on those with many arenas and a new kernel, in one way or another. One is undetermined.
pub(crate) fn readings() -> Vec<Reading> {
    (0..16).map(reading).collect()
}

fn reading(number: usize) -> Reading {
    let grows = number < 8;
    let class = match number {
        0..5 => Class::Leak,
        5..8 => Class::Retention,
        15 => Class::Undetermined,
        _ => Class::None,
    };
    let (arenas, kernel) = if grows { ("8", "6.8") } else { ("2", "5.15") };
    let mut facts = Facts::new();
    for (field, value) in [
        ("env.MALLOC_ARENA_MAX", arenas),
        ("kernel.release", kernel),
        ("thp.enabled", ["always", "madvise"][number % 2]),
    ] {
        facts.insert(field.into(), [value.to_owned()].into());
    }
    Reading {
        host: format!("host-{number:02}"),
        facts,
        class,
        line: grows.then(|| python("handle", "/srv/app.py", 4)),
        rate: grows.then_some(1024.0 * (1 + number) as f64),
        given: None,
    }
}
