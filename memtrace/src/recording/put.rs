//! Writes a row of a table.

use rusqlite::{Connection, ToSql, params_from_iter};

/// Most columns of a table.
const MARKS: &str = "?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?";

/// Writes a row, in place of one with the same key: the values of its columns in order, in any number of parts.
pub(super) fn put(
    connection: &Connection,
    table: &str,
    parts: &[&[&dyn ToSql]],
) -> rusqlite::Result<()> {
    let columns: usize = parts.iter().map(|part| part.len()).sum();
    let marks = MARKS
        .get(..(2 * columns).saturating_sub(1))
        .unwrap_or_default();
    let values = parts.iter().copied().flatten();
    connection
        .prepare_cached(&format!("INSERT OR REPLACE INTO {table} VALUES ({marks})"))?
        .execute(params_from_iter(values))?;
    Ok(())
}

/// Figures as a part of a row.
pub(super) fn part<T: ToSql, const N: usize>(figures: &[T; N]) -> [&dyn ToSql; N] {
    figures.each_ref().map(|figure| figure as &dyn ToSql)
}
