//! Columns of a recording's tables as values. A figure that the schema does not
//! allow is an error, never a default.

use rusqlite::{Row, types::Type};

use super::{LocationId, Node, NodeId, encode::kind_name, varint};
use crate::{
    event::Layer,
    frames::{Frame, FrameKind},
    ledger::{Births, LIFETIME_BUCKETS, Totals},
};
use memtrace_common::unwind::End;

/// The latest time, nanoseconds, and the largest number: the sum of some does not overflow.
pub(super) const LATEST: u64 = 1 << 61;

/// The largest figure, bytes or a count.
const LARGEST: u64 = 1 << 53;

/// The longest name, bytes: those that memtrace writes are shorter than this by far.
const LONGEST_NAME: usize = 64 << 10;

/// Most rows of births of a site: those that memtrace writes are fewer.
const MOST_BIRTHS: usize = 4096;

/// Sums of the figures of rows. Those that no machine could reach are refused here, so that nobody who adds figures up
/// has to expect an overflow.
#[derive(Default)]
pub(super) struct Sums(u64);

impl Sums {
    const LARGEST: u64 = 1 << 62;

    pub(super) fn add(&mut self, totals: &Totals) -> rusqlite::Result<()> {
        let figures = [
            totals.live_bytes,
            totals.live_count,
            totals.inherited_bytes,
            totals.inherited_count,
            totals.alloc_bytes,
            totals.alloc_count,
            totals.free_bytes,
            totals.free_count,
            totals.peak_bytes,
        ];
        // Each is at most `LARGEST`, so this cannot overflow.
        self.0 += figures.iter().sum::<u64>();
        match self.0 <= Self::LARGEST {
            true => Ok(()),
            false => Err(unexpected(0, "figures, whose sum is too large")),
        }
    }
}

pub(super) fn frame(row: &Row) -> rusqlite::Result<Frame> {
    let kind: String = row.get(1)?;
    Ok(Frame {
        kind: [FrameKind::Native, FrameKind::Python]
            .into_iter()
            .find(|known| kind_name(*known) == kind)
            .ok_or_else(|| unexpected(1, "kind"))?,
        function: name(row, 2)?,
        module: name(row, 3)?,
        build_id: name(row, 4)?,
        file_offset: optional(row, 5)?,
        file: name(row, 6)?,
        line: row.get(7)?,
        inlined: row.get(8)?,
        is_packaged: false,
        unresolved: name(row, 9)?.map(Into::into),
    })
}

fn name(row: &Row, column: usize) -> rusqlite::Result<Option<String>> {
    let name: Option<String> = row.get(column)?;
    match &name {
        Some(name) if name.len() > LONGEST_NAME => Err(unexpected(column, "name, too long")),
        _ => Ok(name),
    }
}

/// The node of this id, from its stored form: the distance of its parent, and its location.
pub(super) fn node(id: u64, stored: &[u64]) -> Option<Node> {
    let [distance, location] = stored else {
        return None;
    };
    // A parent comes first, so that no path goes round in circles.
    let parent = id.checked_sub(*distance).filter(|_| *distance > 0)?;
    Some(Node {
        parent: NodeId(u32::try_from(parent).ok()?),
        location: LocationId(u32::try_from(*location).ok()?),
    })
}

pub(super) fn end(row: &Row, column: usize) -> rusqlite::Result<End> {
    let name = row.get_ref(column)?.as_str()?;
    End::ALL
        .into_iter()
        .find(|known| known.name() == name)
        .ok_or_else(|| unexpected(column, "end"))
}

/// The ten columns of [`Totals`] from column `first` on.
pub(super) fn totals(row: &Row, first: usize) -> rusqlite::Result<Totals> {
    Ok(Totals {
        live_bytes: figure(row, first)?,
        live_count: figure(row, first + 1)?,
        inherited_bytes: figure(row, first + 2)?,
        inherited_count: figure(row, first + 3)?,
        alloc_bytes: figure(row, first + 4)?,
        alloc_count: figure(row, first + 5)?,
        free_bytes: figure(row, first + 6)?,
        free_count: figure(row, first + 7)?,
        peak_bytes: figure(row, first + 8)?,
        peak_ns: uint(row, first + 9)?,
    })
}

/// At most [`LIFETIME_BUCKETS`].
pub(super) fn lifetimes(row: &Row, column: usize) -> rusqlite::Result<Box<[u64]>> {
    varint::unpack(row.get_ref(column)?.as_blob()?, LIFETIME_BUCKETS)
        .filter(|counts| counts.iter().all(|count| *count <= LARGEST))
        .map(Vec::into_boxed_slice)
        .ok_or_else(|| unexpected(column, "lifetimes"))
}

pub(super) fn unpack_births(packed: &[u8]) -> Option<Births> {
    let values = varint::unpack(packed, 3 * MOST_BIRTHS)?;
    let mut edge = 0u64;
    let mut rows = Vec::with_capacity(values.len() / 3);
    for row in values.chunks(3) {
        let [distance, bytes, count] = row else {
            return None;
        };
        edge = edge.checked_add(*distance).filter(|edge| *edge <= LATEST)?;
        if *bytes > LARGEST || *count > LARGEST {
            return None;
        }
        rows.push((edge, *bytes, *count));
    }
    Some(Births {
        rows,
        ..Births::default()
    })
}

pub(super) fn layer(row: &Row, column: usize) -> rusqlite::Result<Layer> {
    Layer::try_from(row.get::<_, u8>(column)?).map_err(|_| unexpected(column, "layer"))
}

pub(super) fn json<T: serde::de::DeserializeOwned>(
    row: &Row,
    column: usize,
) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
    })
}

pub(super) fn uint(row: &Row, column: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    in_range(value, LATEST, column)
}

/// Bytes, or a count.
pub(super) fn figure(row: &Row, column: usize) -> rusqlite::Result<u64> {
    in_range(row.get(column)?, LARGEST, column)
}

fn in_range(value: i64, most: u64, column: usize) -> rusqlite::Result<u64> {
    let known = u64::try_from(value).ok().filter(|value| *value <= most);
    known.ok_or(rusqlite::Error::IntegralValueOutOfRange(column, value))
}

pub(super) fn optional(row: &Row, column: usize) -> rusqlite::Result<Option<u64>> {
    row.get::<_, Option<i64>>(column)?
        .map(|value| in_range(value, LATEST, column))
        .transpose()
}

pub(super) fn unexpected(column: usize, what: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(
        column,
        Type::Blob,
        format!("unexpected value of `{what}`").into(),
    )
}
