use std::{ffi::CString, fs, io::Write, os::unix::ffi::OsStrExt};

use super::*;

/// This process's map, removed in the end. Only one at a time: its name is given by the pid.
struct OwnMap {
    path: PathBuf,
    _turn: std::sync::MutexGuard<'static, ()>,
}

impl OwnMap {
    fn new(content: &str) -> Self {
        static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let map = Self {
            _turn: TURN
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner),
            path: format!("/tmp/perf-{}.map", std::process::id()).into(),
        };
        fs::write(&map.path, content).unwrap();
        map
    }

    fn append(&self, content: &str) {
        let mut file = fs::File::options().append(true).open(&self.path).unwrap();
        file.write_all(content.as_bytes()).unwrap();
    }
}

impl Drop for OwnMap {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn load() -> Result<MapFile, Error> {
    MapFile::open(std::process::id())
}

#[test]
fn a_map_is_opened_again_when_it_has_changed() {
    let own = OwnMap::new("1000 10 first\n");
    let mut map = load().unwrap();
    assert_eq!(map.reopen(), None);
    own.append("2000 10 second\n");
    assert_eq!(map.reopen(), Some(false));
    fs::write(&own.path, "3000 10 anew\n").unwrap();
    assert_eq!(map.reopen(), Some(true));
    // Without its name it still serves; removing it is a change of the file, too.
    fs::remove_file(&own.path).unwrap();
    map.reopen();
    assert_eq!(map.reopen(), None);
    assert_eq!(map.file.metadata().unwrap().size(), 13);
}

#[test]
fn a_file_that_is_not_the_processs_map_is_refused() {
    let own = OwnMap::new("1000 10 f\n");
    let old = fs::File::options().write(true).open(&own.path).unwrap();
    old.set_modified(UNIX_EPOCH + Duration::from_secs(1))
        .unwrap();
    assert!(matches!(load(), Err(Error::Stale { .. })));

    fs::remove_file(&own.path).unwrap();
    assert!(matches!(load(), Err(Error::Open { .. })));

    std::os::unix::fs::symlink("/etc/passwd", &own.path).unwrap();
    assert!(matches!(load(), Err(Error::Open { .. })));

    fs::remove_file(&own.path).unwrap();
    let name = CString::new(own.path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name lives.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    assert!(matches!(load(), Err(Error::Open { .. })));

    assert!(matches!(
        MapFile::open(u32::MAX),
        Err(Error::Process { .. })
    ));
}

#[test]
fn a_file_of_another_user_is_refused() {
    let own = OwnMap::new("1000 10 f\n");
    // SAFETY: geteuid has no preconditions.
    let uid = unsafe { libc::geteuid() };
    let root = Root::host().unwrap();
    let of_user = |uid| open(&root, &own.path, uid, Duration::ZERO);
    assert!(of_user(uid).is_ok());
    // Root's files are accepted for any process.
    assert_eq!(of_user(uid + 1).is_ok(), uid == 0);
    if uid == 0 {
        std::os::unix::fs::chown(&own.path, Some(12345), None).unwrap();
        let refused = of_user(54321);
        assert!(matches!(refused, Err(Error::Foreign { uid: 12345, .. })));
    }
}
