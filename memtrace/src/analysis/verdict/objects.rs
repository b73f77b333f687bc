//! What fills arenas: the types of Python's objects that became more and more, as evidence.

use super::{
    diagnosis::{Scope, Verdict},
    evidence::{Amount, Evidence, Statement},
    types::Types,
};
use crate::{event::Layer, recording::GrowingType};

static GROWS: Statement = Statement {
    name: "type_grows",
    sentence: "objects of the type {type}: {growth} in {length}, {size} each",
};

static GROWS_UNREACHED: Statement = Statement {
    name: "unreached_type_grows",
    sentence: "objects of the type {type}: {growth} in {length}, {size} each; no root reaches {unreached} of {examined} of these that were examined",
};

/// Adds the types to the verdicts on the sites that took arenas.
pub(super) fn assign(sites: &mut [Verdict], types: &Types) {
    let is_arena =
        |of: &&mut Verdict| matches!(&of.scope, Scope::Site(key) if key.layer == Layer::Python);
    for verdict in sites.iter_mut().filter(is_arena) {
        verdict.evidence.extend(types.growing.iter().map(evidence));
    }
}

fn evidence(of: &GrowingType) -> Evidence {
    let growth = ("growth", Amount::CountChange(of.grown() as f64));
    let length = ("length", Amount::Seconds(of.seconds()));
    let size = ("size", Amount::Bytes(of.size() as f64));
    let of_type = ("type", Amount::Type(of.name.clone()));
    match of.is_unreached() {
        Some(true) => GROWS_UNREACHED.with([
            growth,
            length,
            size,
            ("unreached", Amount::Count(of.unreached.into())),
            ("examined", Amount::Count(of.examined.into())),
            of_type,
        ]),
        _ => GROWS.with([growth, length, size, of_type]),
    }
}
