//! A disk that fills while memtrace records: recording ends with an error, and what was recorded stays readable.

use memtrace_tests::{
    Fixture,
    progress::Progress,
    record::{self, try_report},
    running::Running,
    targets, until,
};
use std::{
    ffi::CString,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::Command,
};

fn text(path: &Path) -> &str {
    path.to_str().expect("a temporary path is UTF-8")
}

/// A file system of its own that is small.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(fixture: &Fixture) -> Self {
        let path = fixture.path("disk");
        fs::create_dir(&path).expect("a folder");
        let target = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
        // SAFETY: all strings end with NUL and live as long as the call.
        let result = unsafe {
            libc::mount(
                c"none".as_ptr(),
                target.as_ptr(),
                c"tmpfs".as_ptr(),
                0,
                c"size=16m".as_ptr().cast(),
            )
        };
        assert_eq!(result, 0, "mount: {}", std::io::Error::last_os_error());
        Self(path)
    }

    /// Leaves no byte free, in the file that is returned.
    fn fill(&self) -> PathBuf {
        let filler = self.0.join("filler");
        let error = fs::write(&filler, vec![1; 32 << 20]).expect_err("it is small");
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        filler
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Ok(target) = CString::new(self.0.as_os_str().as_bytes()) {
            // SAFETY: the string ends with NUL and lives as long as the call.
            unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
        }
    }
}

#[test]
fn a_disk_that_fills() {
    let fixture = Fixture::new();
    let disk = SmallDisk::new(&fixture);
    let progress = Progress::new(&fixture);
    let mut target = Running::start(Command::new(targets::program("busy.cc")).arg(progress.path()));
    let file = disk.0.join("recording.mtr");
    let pid = target.pid().to_string();
    let arguments = [
        "record",
        "-p",
        &pid,
        "-o",
        text(&file),
        "--interval",
        "100ms",
    ];
    let running = Running::start(&mut record::command(arguments));
    running.await_stderr(record::BEGUN);
    let recorded = || {
        try_report(&file)
            .ok()
            .map(|report| report.total(target.pid(), "heap").alloc_count)
    };
    until("an interval in the recording", || {
        recorded().filter(|count| *count > 0)
    });
    let filler = disk.fill();

    // It ends by itself.
    let finished = running.wait();
    assert!(
        finished.status.code().is_some_and(|code| code != 0),
        "{finished:#?}"
    );
    assert!(!finished.stderr.contains("panicked"), "{finished:#?}");
    let mut lines = finished.stderr.lines();
    assert!(
        lines.any(|line| line.contains(text(&file))),
        "{finished:#?}"
    );

    fs::remove_file(filler).expect("the filler is there");
    assert!(
        recorded().is_some_and(|count| count > 0),
        "no longer readable"
    );
    target.expect_alive();
    progress.await_rounds(100);
}

/// The command's own failure is what its caller wants to know.
#[test]
fn a_disk_that_fills_does_not_hide_the_commands_failure() {
    let fixture = Fixture::new();
    let disk = SmallDisk::new(&fixture);
    let file = disk.0.join("recording.mtr");
    let mut command = record::command(["record", "-o", text(&file), "--interval", "100ms", "--"]);
    // Allocates at ever new places until its input ends.
    let script = "import os\nkept, number = [], 0\nprint('runs', flush=True)\n\
        os.set_blocking(0, False)\n\
        def ended():\n    try:\n        return os.read(0, 1) == b''\n    except BlockingIOError:\n        return False\n\
        while not ended():\n    number += 1\n    \
        exec(f'def f{number}(): return bytearray(2000)\\nkept.append(f{number}())')\n\
        os._exit(4)";
    command.arg(targets::interpreter()).args(["-c", script]);
    let mut running = Running::start(&mut command);
    running.await_stdout("runs");
    until("an interval in the recording", || {
        let report = try_report(&file).ok()?;
        (report.received > 0).then_some(())
    });
    disk.fill();
    running.await_stderr("memtrace: waiting for process");
    running.close_stdin();
    let finished = running.wait().expect_code(4);
    assert!(finished.stderr.contains("cannot write"), "{finished:#?}");
}
