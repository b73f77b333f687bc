//! Recordings of older versions: missing tables and columns are provided, empty. Later versions may
//! be left out, so additions need nothing here.

use rusqlite::{Connection, params};

use super::schema;

/// Columns that had another name before.
const RENAMED: [(&str, &str); 1] = [("runtime_by_cache", "runtime_by_torch")];

/// Makes tables and columns that the file lacks visible to this connection: nothing is written.
///
/// # Errors
/// The file cannot be read.
pub(super) fn complete(connection: &Connection) -> rusqlite::Result<()> {
    let wanted = Connection::open_in_memory()?;
    wanted.execute_batch(&schema::statements())?;
    let mut tables = wanted.prepare("SELECT name, sql FROM sqlite_master WHERE type = 'table'")?;
    let mut rows = tables.query([])?;
    while let Some(row) = rows.next()? {
        let (table, sql): (String, String) = (row.get(0)?, row.get(1)?);
        let there = columns(connection, &table)?;
        if there.is_empty() {
            let columns = sql.trim_start_matches("CREATE TABLE ");
            connection.execute_batch(&format!("CREATE TEMP TABLE {columns}"))?;
            continue;
        }
        let lacking: String = columns(&wanted, &table)?
            .into_iter()
            .filter(|(column, _)| !there.iter().any(|(known, _)| known == column))
            .map(|(column, default)| {
                let before = RENAMED.iter().find(|(now, _)| *now == column);
                let value = before.map_or(default, |(_, before)| format!("\"{before}\""));
                format!(", {value} AS \"{column}\"")
            })
            .collect();
        if !lacking.is_empty() {
            // A view of the same name is found before the table.
            connection.execute_batch(&format!(
                "CREATE TEMP VIEW \"{table}\" AS SELECT *{lacking} FROM main.\"{table}\""
            ))?;
        }
    }
    Ok(())
}

/// Names and default values of a table's columns; none if there is no such table.
fn columns(connection: &Connection, table: &str) -> rusqlite::Result<Vec<(String, String)>> {
    let mut columns = connection
        .prepare("SELECT name, coalesce(dflt_value, 'NULL') FROM pragma_table_info(?1, 'main')")?;
    let rows = columns.query_map(params![table], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_columns_that_are_lacking_are_empty() {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch(
                "CREATE TABLE recording (id INTEGER PRIMARY KEY, meta TEXT);
                 INSERT INTO recording VALUES (1, '{}');",
            )
            .unwrap();
        complete(&connection).unwrap();
        let finished: (String, Option<i64>) = connection
            .query_row("SELECT meta, finished_ns FROM recording", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .unwrap();
        assert_eq!(finished, ("{}".to_owned(), None));
        let sites: i64 = connection
            .query_row("SELECT count(*) FROM site", [], |row| row.get(0))
            .unwrap();
        assert_eq!(sites, 0);
    }

    #[test]
    fn a_whole_recording_needs_no_views() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(&schema::statements()).unwrap();
        complete(&connection).unwrap();
        let views: i64 = connection
            .query_row("SELECT count(*) FROM sqlite_temp_master", [], |row| {
                row.get(0)
            })
            .unwrap();
        assert_eq!(views, 0);
    }
}
