//! Files that are made to harm the reader of a recording.

use rusqlite::Connection;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// SQL that makes a hostile recording out of one. `n` has the numbers from 1 to 100,000.
const STATEMENTS: &[(&str, &str)] = &[
    // Other things in place of tables.
    (
        "an endless view",
        "DROP TABLE interval; CREATE VIEW interval AS WITH RECURSIVE e(x) AS \
         (SELECT 1 UNION ALL SELECT x + 1 FROM e) SELECT x AS id, x AS time_ns, 0 AS emitted, 0 AS received FROM e",
    ),
    (
        "a view of large values",
        "DROP TABLE string; CREATE VIEW string AS SELECT x AS id, hex(zeroblob(100000000)) AS text FROM \
         (WITH RECURSIVE e(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM e) SELECT x FROM e)",
    ),
    (
        "a view beside the tables",
        "CREATE VIEW more AS SELECT * FROM site a, site b, site c",
    ),
    (
        "a full-text index",
        "DROP TABLE string; CREATE VIRTUAL TABLE string USING fts5(id, text)",
    ),
    (
        "an R-tree",
        "DROP TABLE site_history; CREATE VIRTUAL TABLE site_history USING rtree(interval, site, live_bytes)",
    ),
    (
        "a table of SQLite's own pages",
        "CREATE VIRTUAL TABLE pages USING dbstat",
    ),
    (
        "a trigger",
        "CREATE TRIGGER t AFTER INSERT ON site BEGIN DELETE FROM process; END",
    ),
    (
        "an index of an expression",
        "CREATE INDEX i ON string (upper(text) || hex(text))",
    ),
    (
        "a generated column",
        "CREATE TABLE f AS SELECT * FROM frame; DROP TABLE frame; \
         CREATE TABLE frame (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, function INTEGER, module INTEGER, \
         build_id INTEGER, file_offset INTEGER, file INTEGER, line INTEGER, \
         inlined INTEGER NOT NULL AS (length(zeroblob(1000000000))), unresolved INTEGER)",
    ),
    (
        "a view that claims to be a table",
        "PRAGMA writable_schema = ON; \
         UPDATE sqlite_master SET sql = 'CREATE VIEW site AS SELECT 1 AS id' WHERE name = 'site'",
    ),
    (
        "a virtual table that claims pages",
        "PRAGMA writable_schema = ON; \
         UPDATE sqlite_master SET sql = 'CREATE VIRTUAL TABLE site USING fts5(id)' WHERE name = 'site'",
    ),
    (
        "columns in another order",
        "DROP TABLE interval; CREATE TABLE interval \
         (time_ns INTEGER NOT NULL, id INTEGER PRIMARY KEY, emitted INTEGER NOT NULL, received INTEGER NOT NULL)",
    ),
    (
        "a history without its key",
        "ALTER TABLE site_history RENAME TO old; CREATE TABLE site_history AS SELECT * FROM old; DROP TABLE old; \
         INSERT INTO site_history SELECT x, x, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1 FROM n",
    ),
    ("a missing table", "DROP TABLE process"),
    (
        "two tables of one name",
        "PRAGMA writable_schema = ON; \
         INSERT INTO sqlite_master SELECT type, name, tbl_name, rootpage, sql FROM sqlite_master WHERE name = 'site'",
    ),
    (
        "deep expressions",
        "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = 'CREATE TABLE site (id INTEGER CHECK (' || \
         replace(hex(zeroblob(20000)), '00', '(') || '1' || replace(hex(zeroblob(20000)), '00', ')') || '))' \
         WHERE name = 'site'",
    ),
    (
        "statistics",
        "ANALYZE; UPDATE sqlite_stat1 SET stat = hex(zeroblob(100000))",
    ),
    // Too many rows.
    (
        "100,000 processes",
        "INSERT INTO process SELECT 1000 + x, x, 1, 'child', 'c', '[\"c\"]', \
         (SELECT min(started_ns) FROM process), NULL, NULL, NULL, NULL FROM n",
    ),
    (
        "100,000 processes with sites",
        "INSERT INTO process SELECT 1000 + x, x, 1, 'child', 'c' || x, '[\"c\"]', \
         (SELECT min(started_ns) FROM process), NULL, NULL, NULL, NULL FROM n; \
         INSERT INTO site SELECT 100000 + x, 1000 + x, 1, 1, 0, 100, 1, 0, 0, 100, 1, 0, 0, 100, 1, 0, 0, 0, 1, 1, \
         x'', NULL FROM n; \
         INSERT INTO layer_history SELECT 1000 + x, 1, 1, 100, 1, 0, 0, 100, 1, 0, 0, 100, 1, 0, 0, 0, 0 FROM n \
        ",
    ),
    (
        "100,000 intervals",
        "INSERT INTO interval SELECT 10000 + x, (SELECT max(time_ns) FROM interval) + x * 100000000, 0, 0 FROM n",
    ),
    (
        "100,000 sites of nothing",
        "INSERT INTO site SELECT 100000 + x, 4000000000, 1, 4000000000 - x, 0, 100, 1, 0, 0, 100, 1, 0, 0, 100, 1, \
         0, 0, 0, 1, 1, x'', NULL FROM n",
    ),
    (
        "100,000 facts",
        "INSERT INTO string SELECT 1000000 + x, 'python.package.p' || x FROM n; \
         INSERT OR REPLACE INTO fact SELECT 0, 1000000 + x, 1000000 + x FROM n",
    ),
    (
        "100,000 samples of memory",
        "INSERT OR REPLACE INTO memory (process, interval, pss) \
         SELECT (SELECT min(id) FROM process), 10000 + x, x FROM n",
    ),
    (
        "100,000 devices and streams",
        "INSERT INTO device_history SELECT 1, x % 250, x, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 FROM n; \
         INSERT INTO stream_history SELECT 1, x % 250, x, 1, 1, 1 FROM n",
    ),
    (
        "100,000 losses",
        "INSERT OR REPLACE INTO loss SELECT 1, 'r' || x, x FROM n",
    ),
    (
        "100,000 untraced processes",
        "INSERT OR REPLACE INTO untraced SELECT x, 'c', '[\"c\"]', 'why' FROM n",
    ),
    (
        "growth without bounds, and 100,000 steps to a holder",
        "INSERT OR REPLACE INTO holders VALUES ((SELECT min(id) FROM site), 1, 0); \
         INSERT OR REPLACE INTO holders_way VALUES ((SELECT min(id) FROM site), 0, 1, 'path', 5, NULL); \
         INSERT OR REPLACE INTO holders_step SELECT (SELECT min(id) FROM site), 0, x, 'object', 1, 1, 1, 9e999, 1, \
         NULL FROM n",
    ),
    (
        "100,000 ways to a holder",
        "INSERT OR REPLACE INTO holders VALUES ((SELECT min(id) FROM site), 1, 0); \
         INSERT OR REPLACE INTO holders_way SELECT (SELECT min(id) FROM site), x, 1, 'cycle', NULL, NULL FROM n",
    ),
    (
        "10,000 tables",
        "PRAGMA writable_schema = ON; INSERT INTO sqlite_master SELECT 'table', 't' || x, 't' || x, 2, \
         'CREATE TABLE t' || x || ' (a, b, c, d, e, f, g)' FROM n WHERE x <= 10000",
    ),
    // Too large values.
    (
        "names of 5 MB",
        "UPDATE string SET text = replace(hex(zeroblob(2500000)), '00', 'ab') WHERE id % 50 = 1",
    ),
    (
        "one name of 5 MB in all frames",
        "INSERT INTO string VALUES (1000000, replace(hex(zeroblob(2500000)), '00', 'ab')); \
         UPDATE frame SET function = 1000000, file = 1000000, module = 1000000",
    ),
    (
        "long names in many frames",
        "INSERT INTO string VALUES (1000000, replace(hex(zeroblob(30000)), '00', 'ab')); \
         INSERT INTO frame SELECT 1000000 + x, 'native', 1000000, 1000000, 1000000, 1, 1000000, 1, 0, NULL \
         FROM n",
    ),
    (
        "a command line of 6 MB",
        "UPDATE process SET cmdline = '[\"' || replace(hex(zeroblob(3000000)), '00', 'ab') || '\"]'",
    ),
    (
        "300,000 arguments",
        "UPDATE process SET cmdline = '[' || replace(hex(zeroblob(300000)), '00', '\"a\",') || '\"a\"]'",
    ),
    (
        "many facts of 5 MB",
        "INSERT INTO string SELECT 1000000 + x, 'python.package.p' || x FROM n WHERE x <= 5000; \
         INSERT INTO string VALUES (1000000, replace(hex(zeroblob(2500000)), '00', 'ab')); \
         INSERT OR REPLACE INTO fact SELECT 0, 1000000 + x, 1000000 FROM n WHERE x <= 5000",
    ),
    (
        "deep JSON",
        "UPDATE recording SET meta = replace(hex(zeroblob(1000000)), '00', '[')",
    ),
    (
        "births and ages of 20 MB",
        "INSERT OR REPLACE INTO births SELECT id, 1, zeroblob(20000001) FROM site LIMIT 3; \
         INSERT OR REPLACE INTO ages SELECT id, 1, zeroblob(20000000), zeroblob(20000000) FROM site LIMIT 3",
    ),
    (
        "locations of many frames",
        "UPDATE location SET frames = replace(hex(zeroblob(500000)), '00', x'01')",
    ),
    // Impossible values.
    (
        "negative times",
        "UPDATE interval SET time_ns = -time_ns; UPDATE process SET started_ns = -1",
    ),
    (
        "times that fall",
        "UPDATE interval SET time_ns = (SELECT max(time_ns) FROM interval) - id * 1000000000",
    ),
    (
        "times at the end of all clocks",
        "UPDATE interval SET time_ns = 2305843009213693951 - 1000 + id; \
         UPDATE process SET ended_ns = 2305843009213693951",
    ),
    (
        "the largest figures",
        "UPDATE site SET live_bytes = 9223372036854775807, alloc_bytes = 9223372036854775807; \
         UPDATE site_history SET live_bytes = 9223372036854775807",
    ),
    (
        "figures whose sum is too large",
        "UPDATE site SET live_bytes = 9007199254740992, live_count = 9007199254740992, \
         alloc_bytes = 9007199254740992, peak_bytes = 9007199254740992; \
         UPDATE site_history SET live_bytes = 9007199254740992, alloc_bytes = 9007199254740992; \
         UPDATE layer_history SET live_bytes = 9007199254740992, alloc_bytes = 9007199254740992; \
         INSERT INTO site SELECT 100000 + x, 1, 1, 1, 0, 9007199254740992, 1, 9007199254740992, 0, \
         9007199254740992, 1, 0, 0, 9007199254740992, 1, 0, 0, 0, 1, 1, x'', x % 250 FROM n WHERE x <= 5000",
    ),
    (
        "figures that contradict each other",
        "UPDATE site SET free_bytes = 9007199254740992, free_count = 9007199254740992, inherited_bytes = \
         9007199254740992; UPDATE site_history SET free_bytes = 9007199254740992, alloc_bytes = interval % 2; \
         UPDATE layer_history SET peak_bytes = 0, free_bytes = 9007199254740992",
    ),
    (
        "text in place of numbers",
        "UPDATE site SET live_bytes = 'many'; UPDATE process SET tgid = x'ff'",
    ),
    (
        "text that is not UTF-8",
        "UPDATE string SET text = CAST(x'ff1b5b324aff' AS TEXT)",
    ),
    (
        "sequences for the terminal",
        "UPDATE string SET text = char(27) || '[2J' || char(155) || '31m' || char(8238); \
         UPDATE process SET comm = char(27) || ']0;x' || char(7)",
    ),
    (
        "a layer, an end and an origin of the future",
        "UPDATE site SET layer = 200; UPDATE stack SET end = 'never'; UPDATE process SET origin = 'moon'",
    ),
    (
        "samples at their limits",
        "UPDATE memory SET pss = 9223372036854775807",
    ),
    (
        "memory at its largest",
        "UPDATE memory SET pss = 2305843009213693951",
    ),
    (
        "a start after the end",
        "UPDATE recording SET finished_ns = 1; UPDATE recording SET meta = \
         json_set(meta, '$.started_ns', 2305843009213693951, '$.interval_ns', 0, '$.page_size', 0)",
    ),
    (
        "a start that no clock shows",
        "UPDATE recording SET meta = json_set(meta, '$.started_ns', -1)",
    ),
    (
        "ids that are negative",
        "UPDATE site SET id = -id; UPDATE stack SET id = -id; UPDATE interval SET id = -id; \
         UPDATE process SET id = -id",
    ),
    (
        "ids that are huge",
        "UPDATE site SET id = 9223372036854775807 - id; UPDATE string SET id = 9223372036854775807 - id; \
         UPDATE frame SET id = 9223372036854775807 - id; UPDATE interval SET id = 9223372036854775807 - id",
    ),
    (
        "locations that are not in order",
        "UPDATE location SET id = id + 1000000 WHERE id % 2 = 1",
    ),
    (
        "processes that are each other's parents",
        "UPDATE process SET ppid = tgid, origin = 'attached'; \
         INSERT INTO process SELECT 1000 + x, x, 20001 - x, 'attached', 'c', '[\"c\"]', \
         (SELECT min(started_ns) FROM process), NULL, NULL, NULL, NULL FROM n WHERE x <= 2000",
    ),
    (
        "text with NUL and line breaks",
        "UPDATE string SET text = 'a' || char(0) || 'b' || char(10) || 'memtrace: all is well'; \
         UPDATE process SET comm = 'x' || char(0), cmdline = '[\"\\u0000\\n\"]'",
    ),
    (
        "figures that are not numbers",
        "UPDATE site SET live_bytes = 9e999; UPDATE site_history SET live_bytes = 1.5",
    ),
    (
        "deep JSON in a command line",
        "UPDATE process SET cmdline = replace(hex(zeroblob(1000000)), '00', '[')",
    ),
    (
        "processes of many numbers",
        "UPDATE process SET folded = 9007199254740992, tgid = 4294967295, exit_status = 4294967295",
    ),
];

/// Those that take seconds: not every command reads them.
pub(crate) const COSTLY: &[&str] = &[
    "100,000 processes",
    "100,000 processes with sites",
    "many deep stacks",
    "a tree of endless rows: site",
    "a tree of endless rows: frame",
];

/// Makes the files one by one: together they would fill a disk.
struct Attacks<'a> {
    folder: PathBuf,
    base: Vec<u8>,
    /// Only those with this in their names.
    only: String,
    made: usize,
    visit: &'a mut dyn FnMut(&str, &Path),
}

impl Attacks<'_> {
    fn path(&self, name: &str) -> PathBuf {
        let name = name.replace([' ', ',', '/'], "-");
        self.folder.join(format!("{name}.mtr"))
    }

    fn bytes(&mut self, name: &str, content: &[u8]) {
        if name.contains(&self.only) {
            let path = self.path(name);
            fs::write(&path, content).expect("room for a file");
            self.visit(name, &path);
        }
    }

    fn visit(&mut self, name: &str, path: &Path) {
        self.made += 1;
        (self.visit)(name, path);
        fs::remove_file(path).expect("it is there");
    }

    fn sql(&mut self, name: &str, change: impl FnOnce(&Connection)) {
        if !name.contains(&self.only) {
            return;
        }
        let path = self.path(name);
        fs::write(&path, &self.base).expect("room for a file");
        let connection = Connection::open(&path).expect("a database");
        connection
            .execute_batch(
                "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; CREATE TEMP VIEW n AS \
                 WITH RECURSIVE e(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM e WHERE x < 100000) SELECT x FROM e;",
            )
            .expect("a temporary view");
        connection.set_db_config_defensive_off();
        change(&connection);
        drop(connection);
        self.visit(name, &path);
    }

    /// Nodes and stacks in place of the recording's own; stacks as pairs of id and node.
    fn stacks(&mut self, name: &str, nodes: &[(u64, u64)], stacks: u64, node: u64) {
        self.sql(name, |connection| {
            let sql = "DELETE FROM node; DELETE FROM stack";
            connection.execute_batch(sql).expect("empty tables");
            let mut first = 1_u64;
            for part in nodes.chunks(100_000) {
                let numbers = part.iter().flat_map(|(distance, location)| [*distance, *location]);
                let packed: Vec<u8> = numbers.flat_map(varint).collect();
                let insert = "INSERT INTO node VALUES (?1, ?2)";
                connection.execute(insert, (first as i64, packed)).expect("a row");
                first += part.len() as u64;
            }
            let mut insert = connection
                .prepare("INSERT INTO stack VALUES (?1, ?2, 'complete', NULL)")
                .expect("a statement");
            connection.execute_batch("BEGIN").expect("a transaction");
            for id in 1..=stacks {
                insert.execute((id as i64, node as i64)).expect("a row");
            }
            drop(insert);
            let sites = "UPDATE site SET stack = 1 + id % (SELECT max(id) FROM stack); \
                INSERT INTO site SELECT 100000 + x, (SELECT min(id) FROM process), 1, x, 0, 100, 1, 0, 0, 100, 1, 0, \
                0, 100, 1, 0, 0, 0, 1, 1, x'', NULL FROM n WHERE x <= (SELECT max(id) FROM stack); COMMIT";
            connection.execute_batch(sites).expect("sites");
        });
    }
}

/// Without it, `writable_schema` does nothing.
trait Writable {
    fn set_db_config_defensive_off(&self);
}

impl Writable for Connection {
    fn set_db_config_defensive_off(&self) {
        use rusqlite::config::DbConfig;
        for (config, value) in [
            (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false),
            (DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true),
        ] {
            self.set_db_config(config, value).expect("a setting");
        }
    }
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A page of a table's tree whose children are all the same.
fn interior_page(child: u32, size: usize) -> Vec<u8> {
    let count = (size - 12) / 8;
    let mut page = vec![0; size];
    page[0] = 5;
    page[3..5].copy_from_slice(&(count as u16).to_be_bytes());
    page[5..7].copy_from_slice(&((size - 6 * count) as u16).to_be_bytes());
    page[8..12].copy_from_slice(&child.to_be_bytes());
    for cell in 0..count {
        let at = size - 6 * (cell + 1);
        page[12 + 2 * cell..14 + 2 * cell].copy_from_slice(&(at as u16).to_be_bytes());
        page[at..at + 4].copy_from_slice(&child.to_be_bytes());
        page[at + 4] = 1;
    }
    page
}

/// Calls `visit` with each hostile file. Returns their number.
pub(crate) fn attacks(folder: &Path, base: Vec<u8>, visit: &mut dyn FnMut(&str, &Path)) -> usize {
    let mut attacks = Attacks {
        folder: folder.into(),
        base,
        only: std::env::var("MEMTRACE_HOSTILE").unwrap_or_default(),
        made: 0,
        visit,
    };
    for (name, sql) in STATEMENTS {
        attacks.sql(name, |connection| {
            if let Err(error) = connection.execute_batch(sql) {
                // The schema may not be usable any more, which is the purpose.
                eprintln!("{name}: {error}");
            }
        });
    }
    // Stacks.
    let chain: Vec<_> = (0..1_000_000).map(|_| (1, 1)).collect();
    attacks.stacks("a stack a million deep", &chain, 1000, 1_000_000);
    attacks.stacks("many deep stacks", &chain[..2000], 50_000, 2000);
    attacks.stacks("a node that is its own parent", &[(0, 1)], 1, 1);
    attacks.stacks("a parent before the first", &[(7, 1)], 1, 1);
    attacks.stacks("a location that is not there", &[(1, 4_000_000_000)], 10, 1);
    attacks.stacks("a stack that is not there", &[(1, 1)], 10, 4_000_000_000);
    attacks.sql("an integer of many bytes", |connection| {
        let sql = "UPDATE node SET nodes = x'ffffffffffffffffffffffffffffff7f'";
        connection.execute_batch(sql).expect("an update");
    });
    // The file itself.
    let base = attacks.base.clone();
    let page = usize::from(u16::from_be_bytes([base[16], base[17]]));
    for length in [512, 4000, page, base.len() / 3, base.len() - 1] {
        attacks.bytes(&format!("cut to {length}"), &base[..length]);
    }
    let mut random = fastrand::Rng::with_seed(45);
    for seed in 0..6 {
        let mut damaged = base.clone();
        for _ in 0..1 << (seed % 8) {
            let at = random.usize(100..damaged.len());
            damaged[at] = random.u8(..);
        }
        attacks.bytes(&format!("damage {seed}"), &damaged);
    }
    for size in [512_u16, 1] {
        // 1 stands for 65,536.
        let mut pages = base.clone();
        pages[16..18].copy_from_slice(&size.to_be_bytes());
        attacks.bytes(&format!("pages of another size: {size}"), &pages);
    }
    let mut free = base.clone();
    free[32..36].copy_from_slice(&2_u32.to_be_bytes());
    free[36..40].copy_from_slice(&u32::MAX.to_be_bytes());
    attacks.bytes("free pages without end", &free);
    let mut logged = base.clone();
    // A log whose checksum is right, with a page in place of the root.
    logged.extend(interior_page(1, page));
    let trailer = [&0_u64.to_le_bytes()[..], &(base.len() as u64).to_le_bytes()].concat();
    logged.extend(trailer);
    logged.extend([1_u32, page as u32].map(u32::to_le_bytes).concat());
    let checksum = crc32fast::hash(&logged[base.len()..]);
    logged.extend([checksum, 0].map(u32::to_le_bytes).concat());
    logged.extend(b"mtrc log");
    attacks.bytes("a log with another first page", &logged);
    let mut wal = base.clone();
    (wal[18], wal[19]) = (2, 2);
    attacks.bytes("a write-ahead log", &wal);
    let mut pages = base.clone();
    pages[28..32].copy_from_slice(&u32::MAX.to_be_bytes());
    attacks.bytes("four billion pages", &pages);
    let mut reserved = base.clone();
    reserved[20] = 255;
    attacks.bytes("pages with reserved bytes", &reserved);
    for (name, length, count, size) in [
        ("a log of the whole file", 0_u64, u32::MAX, 4096_u32),
        ("a log beyond the file", u64::MAX, 1, 4096),
        ("a log with pages of 0 bytes", base.len() as u64, 0, 0),
    ] {
        let mut logged = base.clone();
        logged.extend(length.to_le_bytes());
        logged.extend([count, size, 0, 0].map(u32::to_le_bytes).concat());
        logged.extend(b"mtrc log");
        attacks.bytes(name, &logged);
    }
    // Trees whose branches are one another: few pages have endless rows.
    for table in ["site", "frame"] {
        let name = format!("a tree of endless rows: {table}");
        let path = attacks.path(&name);
        fs::write(&path, &base).expect("room for a file");
        let root: i64 = Connection::open(&path)
            .and_then(|connection| {
                let sql = "SELECT rootpage FROM sqlite_master WHERE name = ?1";
                connection.query_row(sql, [table], |row| row.get(0))
            })
            .expect("a root");
        let mut content = base.clone();
        let count = (content.len() / page) as u32;
        let at = (root as usize - 1) * page;
        let old_root = content[at..at + page].to_vec();
        content.extend(old_root);
        for level in 0..4 {
            content.extend(interior_page(count + 1 + level, page));
        }
        content[at..at + page].copy_from_slice(&interior_page(count + 5, page));
        content[28..32].copy_from_slice(&(count + 5).to_be_bytes());
        attacks.bytes(&name, &content);
    }
    attacks.made
}
