use std::{ffi::CString, fs, io::Write, os::unix::ffi::OsStrExt};

use super::*;

fn functions(lines: &str) -> Functions {
    let mut functions = Functions::default();
    functions.add(lines.as_bytes());
    functions
}

fn found(functions: &Functions, abs_addr: u64) -> Option<String> {
    functions.find(abs_addr).map(|name| name.to_string())
}

#[test]
fn only_addresses_within_a_line_have_its_name() {
    let map = functions("1000 20 JS:~f x.js:1:2\n0x2000 0x10 trace 3\n");
    assert_eq!(found(&map, 0xfff), None);
    assert_eq!(found(&map, 0x1000).as_deref(), Some("JS:~f x.js:1:2"));
    assert_eq!(found(&map, 0x101f).as_deref(), Some("JS:~f x.js:1:2"));
    assert_eq!(found(&map, 0x1020), None);
    assert_eq!(found(&map, 0x200f).as_deref(), Some("trace 3"));
    assert_eq!(found(&map, u64::MAX), None);
}

#[test]
fn a_later_line_wins_where_it_overlaps() {
    let map = functions("1000 100 old\n1040 20 inner\n10f0 40 tail\n");
    for (address, name) in [
        (0x103f, "old"),
        (0x1040, "inner"),
        (0x105f, "inner"),
        (0x1060, "old"),
        (0x10ef, "old"),
        (0x10f0, "tail"),
        (0x112f, "tail"),
    ] {
        assert_eq!(found(&map, address).as_deref(), Some(name), "{address:#x}");
    }
    let map = functions("1000 10 a\n1010 10 b\n1020 10 c\n1008 20 new\n");
    let names = [0x1007, 0x1008, 0x1027, 0x1028].map(|at| found(&map, at).unwrap());
    assert_eq!(names, ["a", "new", "new", "c"]);
}

#[test]
fn malformed_lines_are_left_out() {
    let map = functions(
        "\nx 10 a\n1000\n1000 10\n1000 0 empty\n1000 +10 sign\n1000 10  \nffffffffffffffff 2 over\n\
         fffffffffffffffff 1 long\n\u{fffd}\n3000 10 good\n",
    );
    assert_eq!(map.0.len(), 1);
    assert_eq!(found(&map, 0x3000).as_deref(), Some("good"));
}

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

fn load() -> Result<PerfMap, Error> {
    PerfMap::load(std::process::id())
}

#[test]
fn a_map_is_read_on_as_it_grows() {
    let own = OwnMap::new("1000 10 first\n2000 10 sec");
    let mut map = load().unwrap();
    assert_eq!(map.lookup(0x1000).as_deref(), Some("first"));
    assert_eq!(map.lookup(0x2000), None, "the line is not complete");
    own.append("ond\n3000 10 third\n");
    assert_eq!(map.lookup(0x2000).as_deref(), Some("second"));
    assert_eq!(map.lookup(0x3000).as_deref(), Some("third"));

    fs::write(&own.path, "4000 10 anew\n").unwrap();
    assert_eq!(map.lookup(0x4000).as_deref(), Some("anew"));
    assert_eq!(map.lookup(0x1000), None);
    // Without its name it still serves.
    fs::remove_file(&own.path).unwrap();
    assert_eq!(map.lookup(0x4000).as_deref(), Some("anew"));
    assert_eq!(map.lookup(0x5000), None);
}

#[test]
fn frames_have_the_function_or_the_reason_for_none() {
    let own = OwnMap::new("1000 10 LazyCompile:~f\n");
    let mut map = load().unwrap();
    let path = own.path.to_str().unwrap();
    let frame = map.frame(0x1008);
    assert_eq!(frame.function.as_deref(), Some("LazyCompile:~f"));
    assert_eq!(frame.module.as_deref(), Some(path));
    assert_eq!(frame.unresolved, None);
    let frame = map.frame(0x1010);
    assert_eq!(frame.function, None);
    let why = frame.unresolved.unwrap().to_string();
    assert!(why.starts_with("0x1010: ") && why.contains(path), "{why}");
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
        PerfMap::load(u32::MAX),
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
