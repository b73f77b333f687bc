//! Recordings of older versions: missing tables and columns are provided, empty. Later versions may
//! be left out, so additions need nothing here.

use std::collections::HashMap;

use rusqlite::{Connection, params};

use super::schema;

/// Columns that had another name before.
const RENAMED: [(&str, &str); 1] = [("runtime_by_cache", "runtime_by_torch")];

/// Looks for anything but ordinary tables, and for tables that are not as memtrace makes them: a view or a virtual table
/// in place of one could make SQLite do anything. Returns the name of the first.
pub(super) fn intruder(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let mut schema =
        connection.prepare("SELECT name, type, rootpage, sql FROM main.sqlite_master")?;
    let mut rows = schema.query([])?;
    let mut number = 0;
    while let Some(row) = rows.next()? {
        let (name, kind): (String, String) = (row.get(0)?, row.get(1)?);
        let (page, sql): (i64, Option<String>) = (row.get(2)?, row.get(3)?);
        let is_ordinary = match &*kind {
            "table" => sql.is_some_and(|sql| sql.starts_with("CREATE TABLE ")),
            // Of a primary key.
            "index" => sql.is_none(),
            _ => false,
        };
        number += 1;
        if !is_ordinary || page <= 0 || number > MOST {
            return Ok(Some(name));
        }
    }
    let wanted = Connection::open_in_memory()?;
    wanted.execute_batch(&schema::statements())?;
    let kinds = kinds(connection)?;
    for (table, kind) in self::kinds(&wanted)? {
        let Some(found) = kinds.get(&table) else {
            continue;
        };
        let (wanted, found_columns) = (shape(&wanted, &table)?, shape(connection, &table)?);
        let mut both = wanted.iter().zip(&found_columns);
        if *found != kind || !both.all(|(wanted, found)| wanted.is_met_by(found)) {
            return Ok(Some(table));
        }
    }
    let mut others = kinds.into_iter().filter(|(_, (kind, _))| kind != "table");
    Ok(others.next().map(|(name, _)| name))
}

/// Tables and indices that a recording has at most.
const MOST: u32 = 200;

/// The tables, their kinds, and whether they are without row IDs.
fn kinds(connection: &Connection) -> rusqlite::Result<HashMap<String, (String, bool)>> {
    let mut list = connection.prepare(
        "SELECT name, type, wr FROM pragma_table_list WHERE schema = 'main' AND name NOT LIKE 'sqlite_%'",
    )?;
    let rows = list.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
    rows.collect()
}

/// A column, as far as reading depends on it.
#[derive(Debug, PartialEq, Eq)]
struct Column {
    name: String,
    kind: String,
    not_null: bool,
    /// Its place in the primary key.
    key: i64,
    /// Not 0: it is generated, or hidden.
    hidden: i64,
}

impl Column {
    fn is_met_by(&self, found: &Self) -> bool {
        let before = RENAMED.iter().find(|(now, _)| *now == self.name);
        let is_named =
            self.name == found.name || before.is_some_and(|(_, before)| *before == found.name);
        let Self {
            name: _,
            kind,
            not_null,
            key,
            hidden,
        } = found;
        is_named
            && (&self.kind, self.not_null, self.key, self.hidden)
                == (kind, *not_null, *key, *hidden)
    }
}

fn shape(connection: &Connection, table: &str) -> rusqlite::Result<Vec<Column>> {
    let mut columns = connection.prepare(
        "SELECT name, type, \"notnull\", pk, hidden FROM pragma_table_xinfo(?1, 'main')",
    )?;
    let rows = columns.query_map(params![table], |row| {
        Ok(Column {
            name: row.get(0)?,
            kind: row.get(1)?,
            not_null: row.get(2)?,
            key: row.get(3)?,
            hidden: row.get(4)?,
        })
    })?;
    rows.collect()
}

/// Makes tables and columns that the file lacks visible to this connection: nothing is written.
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
