use super::*;
use std::{
    os::unix::fs::{PermissionsExt, symlink},
    process::Command,
    time::Duration,
};

const ID: &str = "0123456789abcdef";

/// That of the C library, which is large enough to be kept.
fn table() -> Table {
    let path = Path::new("/usr/lib/x86_64-linux-gnu/libc.so.6");
    let bytes = fs::read(path).expect("libc.so.6; `cargo xtask setup` installs it");
    Table::compile(&*bytes).unwrap().unwrap()
}

fn cache() -> (tempfile::TempDir, Cache) {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(&folder.path().join("a/b")).unwrap();
    (folder, cache)
}

fn names(cache: &Cache) -> Vec<String> {
    let entries = fs::read_dir(&cache.folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_stored_table_reads_back() {
    let (_folder, cache) = cache();
    let table = table();
    assert_eq!(cache.get(ID), None);
    cache.put(ID, &table);
    assert_eq!(cache.get(ID), Some(table.clone()));
    assert_eq!(cache.get("0123456789abcdee"), None);
    // Again, over the entry that is there.
    cache.put(ID, &table);
    assert_eq!(names(&cache).len(), 1);
    assert_eq!(cache.get(ID), Some(table));
}

#[test]
fn small_tables_and_files_without_build_id_are_not_kept() {
    let (_folder, cache) = cache();
    let mut table = table();
    cache.put("../../../../etc/passwd", &table);
    cache.put("", &table);
    cache.put("ABCDEF0123456789", &table);
    table.words.truncate(MIN_WORDS - 1);
    cache.put(ID, &table);
    assert_eq!(names(&cache), [""; 0]);
}

#[test]
fn reads_no_entry_of_another_file() {
    let (_folder, cache) = cache();
    cache.put(ID, &table());
    let other = "fedcba9876543210";
    fs::rename(cache.path(ID).unwrap(), cache.path(other).unwrap()).unwrap();
    assert_eq!(cache.get(other), None);
}

#[test]
fn damage_is_noticed() {
    let table = table();
    let whole = entry::encode(&table, ID);
    assert_eq!(entry::decode(&whole, ID), Some(table));
    for len in [0, 7, 8, 31, 32, 100, whole.len() - 1] {
        assert_eq!(entry::decode(&whole[..len], ID), None, "{len} bytes");
    }
    for at in (0..whole.len()).step_by(whole.len() / 100) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        assert_eq!(entry::decode(&damaged, ID), None, "byte {at}");
    }
}

/// Entries that are whole, by their checksum, but lead lookups astray.
#[test]
fn forged_tables_are_refused() {
    type Forge = fn(&mut Table);
    let forgeries: [(&str, Forge); 12] = [
        ("no pages", |t| t.exec.pages = 0),
        ("a page more", |t| t.exec.pages += 1),
        ("pages past the end of addresses", |t| {
            t.exec.first_page = u32::MAX
        }),
        ("a page that begins elsewhere", |t| t.words[0] += 1),
        ("pages out of order", |t| t.words.swap(1, 2)),
        ("an end past the words", |t| {
            let pages = t.exec.pages as usize;
            t.words[pages] = t.words.len() as u32 + 1;
        }),
        ("rows out of order", |t| {
            let first = t.words[0] as usize;
            t.words.swap(first + 1, first + 2);
        }),
        ("a first row that is not at 0", |t| {
            let first = t.words[0] as usize;
            t.words[first] |= 1 << 16;
        }),
        ("an unknown rule", |t| t.rules.truncate(2)),
        ("an unknown kind", |t| t.rules[1].cfa = 200),
        ("half a block", |t| t.words.truncate(t.words.len() - 1)),
        ("a block too much", |t| {
            t.words
                .resize(t.words.len() + memtrace_common::unwind_table::BLOCK, 0);
        }),
    ];
    let table = table();
    for (what, forge) in forgeries {
        let mut forged = table.clone();
        forge(&mut forged);
        assert_ne!(forged, table, "{what}");
        assert_eq!(
            entry::decode(&entry::encode(&forged, ID), ID),
            None,
            "{what}"
        );
    }
}

#[test]
fn files_of_other_kinds_and_modes_are_not_read() {
    let (_folder, cache) = cache();
    cache.put(ID, &table());
    let path = cache.path(ID).unwrap();
    let set_mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));

    set_mode(&path, 0o620).unwrap();
    assert_eq!(cache.get(ID), None, "writable by a group");
    set_mode(&path, 0o600).unwrap();
    assert!(cache.get(ID).is_some());

    let moved = cache.folder.join("moved");
    fs::rename(&path, &moved).unwrap();
    symlink(&moved, &path).unwrap();
    assert_eq!(cache.get(ID), None, "a symbolic link");
    fs::remove_file(&path).unwrap();

    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(cache.get(ID), None, "a pipe");

    set_mode(&cache.folder, 0o777).unwrap();
    assert!(Cache::at(&cache.folder).is_none(), "a folder for all");
    set_mode(&cache.folder, 0o700).unwrap();
    assert!(Cache::at(&cache.folder).is_some());
    let link = cache.folder.join("link");
    symlink(&cache.folder, &link).unwrap();
    assert!(Cache::at(&link).is_none(), "a link to a folder");
}

#[test]
fn the_least_recently_used_table_goes() {
    let (_folder, mut cache) = cache();
    let table = table();
    let size = entry::encode(&table, ID).len() as u64;
    cache.limit = 2 * size;
    let [a, b, c] = ["aaaaaaaa00000000", "bbbbbbbb00000000", "cccccccc00000000"];
    for (id, age) in [(a, 200), (b, 100)] {
        cache.put(id, &table);
        let file = File::options()
            .write(true)
            .open(cache.path(id).unwrap())
            .unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age))
            .unwrap();
    }
    assert!(cache.get(a).is_some());
    cache.put(c, &table);
    assert!(cache.get(a).is_some());
    assert_eq!(cache.get(b), None);
    assert!(cache.get(c).is_some());
    cache.limit = size - 1;
    cache.put(b, &table);
    assert_eq!(cache.get(b), None, "larger than all may be");
    assert!(cache.get(a).is_some(), "evicted for nothing");
}

/// Needs root: runs itself again as under sudo.
#[test]
fn under_sudo_all_is_the_invoking_users_as_root() {
    if std::env::var_os("MEMTRACE_TEST_CACHE").is_none() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(folder.path(), Some(12345), Some(54321)).unwrap();
        let status = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "unwind::cache::tests::under_sudo_all_is_the_invoking_users_as_root",
            ])
            .envs([("SUDO_UID", "12345"), ("SUDO_GID", "54321")])
            .env("MEMTRACE_TEST_CACHE", folder.path())
            .status();
        assert!(status.unwrap().success());
        return;
    }
    let folder = PathBuf::from(std::env::var_os("MEMTRACE_TEST_CACHE").unwrap());
    let cache = Cache::at(&folder.join("memtrace/unwind")).unwrap();
    let table = table();
    cache.put(ID, &table);
    assert_eq!(cache.get(ID), Some(table.clone()));
    for path in [
        &folder.join("memtrace"),
        &cache.folder,
        &cache.path(ID).unwrap(),
    ] {
        let metadata = fs::metadata(path).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (12345, 54321), "{path:?}");
    }

    // A folder of root's, that the user's link leads to.
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), folder.join("out")).unwrap();
    assert!(Cache::at(&folder.join("out/unwind")).is_none());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);

    // Another's entry.
    std::os::unix::fs::chown(cache.path(ID).unwrap(), Some(23456), None).unwrap();
    assert_eq!(cache.get(ID), None);

    // And root's rights are back.
    fs::write(outside.path().join("file"), "").unwrap();
}
