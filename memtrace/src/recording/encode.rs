//! Values as columns of a recording's tables: the inverse of [`super::decode`].

use super::{Origin, varint};
use crate::{frames::FrameKind, ledger::Births};

/// An unsigned figure as SQLite's signed integer. Real figures are far below
/// the limit; one beyond it is kept at the limit rather than losing the interval.
pub(super) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Triples of edge, bytes and count; each edge as its distance from the one before.
pub(super) fn pack_births(births: &Births) -> Vec<u8> {
    let mut before = 0;
    varint::pack(births.rows.iter().flat_map(|(edge, bytes, count)| {
        let distance = edge.saturating_sub(before);
        before = *edge;
        [distance, *bytes, *count]
    }))
}

/// As in the column `origin`, and in reports.
pub(super) fn origin_name(origin: Origin) -> &'static str {
    match origin {
        Origin::Attached => "attached",
        Origin::Launched => "launched",
        Origin::Child => "child",
    }
}

pub(super) fn kind_name(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::Native => "native",
        FrameKind::Python => "python",
    }
}

/// A value that is stored as JSON.
pub(super) fn to_json(value: &(impl serde::Serialize + ?Sized)) -> rusqlite::Result<String> {
    serde_json::to_string(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}
