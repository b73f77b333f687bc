//! The types of Python's objects that became more and more, in a line and as JSON.

use serde_json::{Value, json};

use super::holders::kept_by_json;
use crate::{
    analysis::verdict::{Diagnosis, Types},
    escape::clean,
    recording::GrowingType,
    units::size,
    view::{Filter, findings::row},
};

/// Types in a line.
const SHOWN: usize = 3;

/// `+110/s CIMultiDict (64 B), not reached from any root; +12/s dict (64 B)`.
pub(super) fn line(types: &Types) -> String {
    let shown: Vec<String> = types.growing.iter().take(SHOWN).map(words).collect();
    shown.join("; ")
}

fn words(of: &GrowingType) -> String {
    let per_s = of.per_s();
    let decimals = usize::from(per_s < 10.0);
    let reached = match of.is_unreached() {
        Some(true) => ", not reached from any root",
        _ => "",
    };
    let (name, size) = (clean(&of.name), size(of.size()));
    format!("+{per_s:.decimals$}/s {name} ({size}){reached}")
}

/// What was counted of each process.
pub(super) fn json(found: &Diagnosis, filter: &Filter) -> Value {
    let mut all: Vec<_> = found.types.iter().collect();
    all.sort_unstable_by_key(|(process, _)| **process);
    let all = all.into_iter().filter_map(|(process, types)| {
        let tgid = row(found, *process)?.tgid;
        let growing = types.growing.iter().map(|of| {
            json!({
                "type": of.name,
                "objects_per_s": of.per_s(),
                "seconds": of.seconds(),
                "from": of.first.count,
                "to": of.last.count,
                "size": of.size(),
                "examined": of.examined,
                "unreached": of.unreached,
            })
        });
        let growing: Vec<Value> = growing.collect();
        filter.pid.is_none_or(|pid| pid == tgid).then(|| {
            json!({
                "process": process.0,
                "tgid": tgid,
                "counted": types.census.counted,
                "too_large": types.census.too_large,
                "unreadable": types.census.unreadable,
                "growing": growing,
                "kept_by": types.keeper.as_ref().map(|of| kept_by_json(of, None, &found.stacks)),
            })
        })
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Objects;

    #[test]
    fn a_line_has_the_types_that_take_most() {
        let of = |name: &str, count: u64, bytes: u64, unreached| GrowingType {
            name: name.into(),
            first: Objects {
                time_ns: 1_000_000_000,
                count: 10,
                bytes: 640,
            },
            last: Objects {
                time_ns: 11_000_000_000,
                count: 10 + count,
                bytes: 640 + bytes,
            },
            examined: 32,
            unreached,
            ways: vec![],
        };
        let mut types = Types {
            growing: vec![
                of("multidict.CIMultiDict", 1100, 70_400, 30),
                of("dict", 52, 3328, 0),
            ],
            ..Types::default()
        };
        assert_eq!(
            line(&types),
            "+110/s multidict.CIMultiDict (64 B), not reached from any root; +5.2/s dict (64 B)"
        );
        types.growing[0].examined = 7;
        types.growing[0].unreached = 7;
        assert!(!line(&types).contains("root"), "too few were examined");
        assert!((types.rate() - 7372.8).abs() < 0.1);
    }
}
