//! Recordings with any values, as SQL could put them there.

use std::{fs, io, path::Path, sync::LazyLock};

use rusqlite::{Connection, params_from_iter, types::Value};

/// A recording of a program with several layers, processes and holders.
static ORIGINAL: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let packed = include_bytes!("../recording/tests/schemas/11.mtr.zst");
    zstd::decode_all(&packed[..]).unwrap_or_default()
});

/// Most changes to a recording.
const MOST: usize = 64;

/// Writes a recording with the changes that the bytes stand for.
pub(super) fn make(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::write(path, &*ORIGINAL)?;
    apply(path, bytes).map_err(io::Error::other)
}

fn apply(path: &Path, bytes: &[u8]) -> rusqlite::Result<()> {
    let connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA ignore_check_constraints = ON; BEGIN;",
    )?;
    let mut tables = connection.prepare("SELECT name FROM sqlite_master WHERE type = 'table'")?;
    let tables = tables.query_map([], |row| row.get::<_, String>(0))?;
    let tables = tables.collect::<rusqlite::Result<Vec<_>>>()?;
    let mut bytes = bytes.iter().copied();
    for _ in 0..MOST {
        let Some(table) = bytes.next() else { break };
        let Some(table) = tables.get(usize::from(table) % tables.len().max(1)) else {
            break;
        };
        // What a constraint refuses is left out.
        let _ = change(&connection, table, &mut bytes);
    }
    connection.execute_batch("COMMIT")
}

/// Changes one value of a table, removes a row, or adds one.
fn change(
    connection: &Connection,
    table: &str,
    bytes: &mut impl Iterator<Item = u8>,
) -> rusqlite::Result<usize> {
    let mut next = || bytes.next().unwrap_or_default();
    let (row, column, kind) = (next(), next(), next());
    let select = format!("SELECT * FROM {table} LIMIT 1 OFFSET {row}");
    let mut select = connection.prepare_cached(&select)?;
    let columns: Vec<String> = select.column_names().map(str::to_owned).collect();
    let mut values: Vec<Value> =
        select.query_row([], |row| (0..columns.len()).map(|at| row.get(at)).collect())?;
    let column = usize::from(column) % columns.len();
    let before = values.clone();
    values[column] = value(&before[column], kind, &mut next);
    let every = |each: &dyn Fn(&String) -> String, between: &str| {
        let columns: Vec<String> = columns.iter().map(each).collect();
        columns.join(between)
    };
    let same = every(&|name| format!("{name} IS ?"), " AND ");
    match kind {
        0..0xe0 => {
            let name = &columns[column];
            let update = format!("UPDATE OR REPLACE {table} SET {name} = ? WHERE {same}");
            let values = [values[column].clone()].into_iter().chain(before);
            connection
                .prepare_cached(&update)?
                .execute(params_from_iter(values))
        }
        0xe0..0xf0 => connection
            .prepare_cached(&format!("DELETE FROM {table} WHERE {same}"))?
            .execute(params_from_iter(before)),
        0xf0.. => {
            let places = every(&|_| "?".to_owned(), ", ");
            connection
                .prepare_cached(&format!("INSERT OR REPLACE INTO {table} VALUES ({places})"))?
                .execute(params_from_iter(values))
        }
    }
}

fn value(before: &Value, kind: u8, next: &mut impl FnMut() -> u8) -> Value {
    let mut word = || i64::from_le_bytes(std::array::from_fn(|_| next()));
    match kind % 8 {
        0 => Value::Null,
        1 => Value::Integer(word()),
        2 => Value::Integer(word() >> 48),
        3 => match before {
            Value::Integer(before) => Value::Integer(before.wrapping_add(word() >> 56)),
            _ => Value::Integer(word()),
        },
        4 => Value::Real(f64::from_bits(word() as u64)),
        5 => Value::Text("x".repeat((word() & 0xffff) as usize)),
        // The same with other bytes.
        _ => match before {
            Value::Blob(before) => Value::Blob(patched(before.clone(), next)),
            Value::Text(before) => {
                let patched = patched(before.clone().into_bytes(), next);
                Value::Text(String::from_utf8_lossy(&patched).into_owned())
            }
            other => other.clone(),
        },
    }
}

fn patched(mut bytes: Vec<u8>, next: &mut impl FnMut() -> u8) -> Vec<u8> {
    let at = usize::from(u16::from_le_bytes([next(), next()])) % (bytes.len() + 1);
    let (removed, added) = (usize::from(next() & 15), usize::from(next() & 15));
    let end = (at + removed).min(bytes.len());
    let new: Vec<u8> = (0..added).map(|_| next()).collect();
    bytes.splice(at..end, new);
    bytes
}
